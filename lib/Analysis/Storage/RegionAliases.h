//===- RegionAliases.h - Values that a region operation passes around -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Private to the analysis: which values from outside an operation with regions may have the storage of an argument of
// these regions. A loop carries each of its values by itself, but may exchange them in its yield.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_ANALYSIS_STORAGE_REGIONALIASES_H
#define COMMSCHED_LIB_ANALYSIS_STORAGE_REGIONALIASES_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/IntEqClasses.h"
#include "llvm/ADT/SmallVector.h"

namespace commsched::detail {

/// The values in and around an operation, in classes: values that may have one storage, in one iteration or in several,
/// are in one class. Values that an operation inside makes new storage for connect nothing by themselves.
class RegionAliases {
public:
  /// O(nested operations + operands) times the inverse of Ackermann's function.
  explicit RegionAliases(mlir::Operation *op);

  /// Whether a value may have the storage of another one.
  bool knows(mlir::Value value) const { return numbers.contains(value); }
  /// The number of the class of an argument of a region, or of a result, that is known.
  unsigned classOf(mlir::Value value) const { return classes.findLeader(numbers.lookup(value)); }
  /// The shaped values and futures from outside that are in a class, each once, in the order of their first use.
  mlir::ValueRange outsideOf(unsigned number) const;
  /// Whether a value of a class may be memory that an operation found by itself (see StorageSources).
  bool mayBeUnknown(unsigned number) const { return unknown.contains(number); }

private:
  unsigned numberOf(mlir::Value value);
  void join(mlir::Value a, mlir::Value b);
  void joinAll(mlir::ValueRange values);
  void visit(mlir::Operation *op);
  void visitRegions(mlir::Operation *op);
  void visitResult(mlir::OpResult result);
  void visitWait(comm::WaitOp wait);
  bool isOutside(mlir::Value value) const;

  mlir::Operation *op;
  llvm::IntEqClasses classes;
  llvm::DenseMap<mlir::Value, unsigned> numbers;
  llvm::SmallVector<mlir::Value> values;                               ///< indexed by number
  llvm::DenseMap<unsigned, llvm::SmallVector<mlir::Value, 2>> outside; ///< indexed by class
  llvm::DenseSet<unsigned> unknown;                                    ///< classes
  llvm::SmallVector<mlir::Value, 1> unknownValues;
  llvm::DenseMap<mlir::Value, comm::WaitOp> firstWaits; ///< indexed by future
};

} // namespace commsched::detail

#endif // COMMSCHED_LIB_ANALYSIS_STORAGE_REGIONALIASES_H
