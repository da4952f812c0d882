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

/// Bytes whose allocation may fail, because programs, files and options determine their number.
class HostBuffer {
public:
  /// Allocates `size` bytes, all zero. Returns false, and changes nothing, if there is not enough memory.
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
  llvm::SmallVector<bool> isDynamic; ///< indexed by dimension: true if the type leaves the size open
  HostBuffer bytes;

  int64_t elements() const { return elementBytes() ? byteSize().value_or(0) / elementBytes() : 0; }
  int64_t elementBytes() const;
  /// Bytes of all elements, whether allocated or not; none if the number exceeds 64 bits.
  std::optional<int64_t> byteSize() const;

  /// A value of a type, without memory: a ranked tensor, a ranked memref in row-major order and plain memory, an
  /// integer, an index or a floating-point number, with elements of at most 64 bits. Dynamic dimensions get
  /// `dynamicSize` elements. An error for other types and for sizes beyond 64 bits.
  static llvm::Expected<HostValue> ofType(mlir::Type type, int64_t dynamicSize);
  /// A value of the same type and shape, without memory.
  HostValue like() const;
  /// Allocates memory, all zero; an error if there is not enough.
  llvm::Error allocate();
  /// Fills in small values, exact in every floating-point type, that differ by seed, rank, argument and element.
  void fill(uint64_t seed, int64_t rank, int64_t argument);
  /// Element `index` as text.
  std::string elementText(int64_t index) const;
  /// The first elements as text.
  std::string text() const;
};

/// Reads a .npy file into `value`, whose type and shape the file must have. Dynamic dimensions take the file's sizes.
/// bf16 is stored as 16-bit unsigned integers.
llvm::Error readNpy(llvm::StringRef path, HostValue &value);
llvm::Error writeNpy(llvm::StringRef path, const HostValue &value);

} // namespace commsched

#endif // COMMSCHED_EXECUTION_HOSTVALUE_H
