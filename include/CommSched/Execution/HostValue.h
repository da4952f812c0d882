//===- HostValue.h - Arguments and results of a run -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A dense tensor on the host, what fills it, and numpy's file format for it.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_EXECUTION_HOSTVALUE_H
#define COMMSCHED_EXECUTION_HOSTVALUE_H

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/Error.h"
#include <cstdlib>
#include <memory>

namespace commsched {

/// Bytes whose allocation may fail: how many there are is up to programs, files and options.
class HostBuffer {
public:
  /// Gets `size` bytes, all zero. False, and nothing changes, if there is no memory for them.
  bool reset(int64_t size);
  char *data() { return memory.get(); }
  const char *data() const { return memory.get(); }
  int64_t size() const { return length; }

private:
  struct Free {
    void operator()(char *bytes) const { std::free(bytes); }
  };
  std::unique_ptr<char, Free> memory;
  int64_t length = 0;
};

struct HostValue {
  mlir::Type elementType;
  llvm::SmallVector<int64_t> shape;
  bool isScalar = false;             ///< passed by value, not as a buffer
  llvm::SmallVector<bool> isDynamic; ///< by dimension: the type leaves the size open
  HostBuffer bytes;

  int64_t elements() const { return elementBytes() ? byteSize().value_or(0) / elementBytes() : 0; }
  int64_t elementBytes() const;
  /// Bytes of all elements, with or without memory for them; none where 64 bits do not count them.
  std::optional<int64_t> byteSize() const;

  /// A value of a type without memory: a ranked tensor, a ranked memref in row-major order and plain memory, an
  /// integer, an index or a floating-point type, all of elements of at most 64 bits. Dynamic dimensions get
  /// `dynamicSize` elements. An error for other types and for sizes that 64 bits do not count.
  static llvm::Expected<HostValue> ofType(mlir::Type type, int64_t dynamicSize);
  /// The same type and shape, without memory.
  HostValue like() const;
  /// Gets memory, all zero; an error if there is none.
  llvm::Error allocate();
  /// Small values, exact in every floating-point type, different by seed, rank, argument and element.
  void fill(uint64_t seed, int64_t rank, int64_t argument);
  /// Element `index` in words.
  std::string elementText(int64_t index) const;
  /// The first elements in words.
  std::string text() const;
};

/// Reads a .npy file into `value`, whose type and shape it must have; dynamic dimensions take the file's sizes. bf16 is
/// stored as 16-bit unsigned integers.
llvm::Error readNpy(llvm::StringRef path, HostValue &value);
llvm::Error writeNpy(llvm::StringRef path, const HostValue &value);

} // namespace commsched

#endif // COMMSCHED_EXECUTION_HOSTVALUE_H
