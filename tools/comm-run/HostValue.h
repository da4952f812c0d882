//===- HostValue.h - Arguments and results of a run ----------------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// A dense tensor on the host, what fills it, and numpy's file format for it.
//
//===--------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TOOLS_COMM_RUN_HOSTVALUE_H
#define COMMSCHED_TOOLS_COMM_RUN_HOSTVALUE_H

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/Error.h"
#include <vector>

namespace commsched {

struct HostValue {
  mlir::Type elementType;
  llvm::SmallVector<int64_t> shape;
  bool isScalar = false;             ///< passed by value, not as a buffer
  llvm::SmallVector<bool> isDynamic; ///< by dimension: the type leaves the size open
  std::vector<char> bytes;

  int64_t elements() const;
  int64_t elementBytes() const;

  /// A value of a ranked tensor, ranked memref, integer, index or floating-point type; zeros. Dynamic dimensions get
  /// `dynamicSize` elements. An error for other types.
  static llvm::Expected<HostValue> zeros(mlir::Type type, int64_t dynamicSize);
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

#endif // COMMSCHED_TOOLS_COMM_RUN_HOSTVALUE_H
