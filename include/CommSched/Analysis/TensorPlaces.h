//===- TensorPlaces.h - Tensors that programs use as places -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Most tensors are values: their contents never change. A tensor whose storage the program writes and reads again is a
// place, and its contents depend on the time. Operations without memory effects may only know values, because every
// pass may move, merge and fold them. Rationale.md, "Values and places", has the rules and the argument.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_TENSORPLACES_H
#define COMMSCHED_ANALYSIS_TENSORPLACES_H

#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/IntEqClasses.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"

namespace commsched {

/// The operands of tensor type whose contents an operation ignores, and whose storage it may give to its results (or,
/// of a collective, to the results of the wait).
llvm::SmallVector<mlir::OpOperand *> findDestinations(mlir::Operation *op);

/// The tensors in an operation, in classes of those that may name one storage. Results of waits, and of operations with
/// destinations, are in a class with the destination only if that is a place.
class TensorPlaces {
public:
  /// Analyses `root` and the functions in it that it calls. O(operations + operands) times the inverse of Ackermann's
  /// function, and times the number of rounds in which places are found, which is 2 for most programs.
  explicit TensorPlaces(mlir::Operation *root);

  /// A use of a place that is for values alone.
  struct Violation {
    /// What `op` does: without memory effects it reads a place or makes it, or it is a loop that carries it although
    /// the place has other names, so that it matters whether the loop copies it, or it passes it to a function that
    /// calls itself, which may get a copy, or it passes a part of it to a function, which gets a copy.
    enum class Kind { Reads, Makes, Carries, Passes, PassesPart } kind = Kind::Reads;
    mlir::Operation *op = nullptr;
    /// One of the operations that make the tensor a place.
    mlir::Operation *writer = nullptr;
  };
  /// The violations, in the order of the program, at most one per operation. O(operations + operands), and for each
  /// loop O(uses of the tensors that it carries).
  llvm::SmallVector<Violation> findViolations() const;

  bool isPlace(mlir::Value tensor) const;
  /// Whether a tensor that is no place would be one if it were a destination of `write`. O(accesses to its storage).
  bool becomesPlace(mlir::Value tensor, mlir::Operation *write) const;

private:
  /// What happens to one class.
  struct Class {
    /// Operations that write into it, each once: those that mutate it, and those of which it is a destination.
    llvm::SmallVector<mlir::Operation *, 2> mutations, destinations;
    /// Operations with memory effects that read it.
    llvm::SmallVector<mlir::Operation *, 4> reads;
    llvm::SmallVector<mlir::Value, 4> names;
    /// The block of all its names; null if they are in several.
    mlir::Block *block = nullptr;
    /// Whether an operation without memory effects makes it. Passes may merge such tensors, so they are values.
    bool isMadeByValues = false;
    /// Whether it has an argument that belongs to a caller outside of the root.
    bool isCallers = false;
    bool isPlace = false;
  };

  unsigned numberOf(mlir::Value value);
  void join(mlir::Value a, mlir::Value b);
  void joinAliases(mlir::Operation *op);
  void joinRegions(mlir::Operation *op);
  void joinCall(mlir::Operation *op);
  void visitUses(mlir::Operation *op);
  void findClasses();
  bool joinResultsOfPlaces();
  bool usesAsPlace(const Class &info) const;
  llvm::SmallVector<mlir::Value> resultsInto(const Class &info, mlir::Operation *op) const;
  bool isResultRead(const Class &info, mlir::Operation *first, mlir::Operation *second) const;
  const Class *find(mlir::Value tensor) const;
  const Class *findShared(mlir::Operation *loop) const;
  const Class *findPassed(mlir::Operation *op) const;
  const Class *findPassedPart(mlir::Operation *op) const;

  mlir::Operation *root;
  /// The functions that may call themselves, directly or through others.
  llvm::SmallPtrSet<mlir::Operation *, 4> recursive;
  llvm::IntEqClasses classes;
  llvm::DenseMap<mlir::Value, unsigned> numbers;
  /// Indexed by the leader of a class.
  llvm::DenseMap<unsigned, Class> infos;
};

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_TENSORPLACES_H
