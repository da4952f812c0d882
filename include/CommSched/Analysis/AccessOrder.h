//===- AccessOrder.h - The order of accesses, derived a second time ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Schedulers keep the dependences of Dependence.h, so a dependence that is missing there gives a wrong program that all
// else calls right. This file derives, by other code and simpler rules, which memory each operation of a block may
// read or write, and checks that a new order keeps every two accesses to one memory in their order if one of them
// writes. It uses neither StorageMap nor the dependences.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_ACCESSORDER_H
#define COMMSCHED_ANALYSIS_ACCESSORDER_H

#include "CommSched/Support/Units.h"
#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include <memory>
#include <optional>
#include <vector>

namespace commsched {

/// One operation's access to an object.
struct ObjectAccess {
  /// The operation's place in the block as given.
  int32_t node = 0;
  /// Whether it writes; it may read as well.
  bool writes = false;
  /// Whether it is a wait. Two waits need no order: if what they wait for is in flight at one time, nothing that both
  /// touch is written, and otherwise a start stands between them.
  bool waits = false;
};

/// What the operations of a block, its terminator excluded, may access.
struct BlockAccesses {
  int32_t numNodes = 0;
  /// Indexed by object: the accesses by operations that name it, at most one for each operation, in the order of the
  /// block.
  std::vector<std::vector<ObjectAccess>> objects;
  /// Indexed by object: whether accesses of unknown origin may reach it.
  std::vector<bool> exposed;
  /// Indexed by object: whether it is there when the block begins, so that an earlier run of a loop's body may have
  /// accessed it. A resource that is no memory is there.
  std::vector<bool> comesIn;
  /// Indexed by object: whether an argument of the block may be it, or the terminator hands it on.
  std::vector<bool> isCarried;
  /// Accesses that may reach every exposed object: by calls, operations of unknown effects, memrefs of unknown origin.
  std::vector<ObjectAccess> anywhere;
};

/// Two operations whose accesses are in the wrong order.
struct OrderViolation {
  /// Nodes: `second` comes after `first` in the block as given, and has to stay there.
  int32_t first = 0, second = 0;
};

/// When a node happens in a new order: its accesses begin at `begin` and are over at `end`, both inclusive.
struct AccessTime {
  int32_t begin = 0, end = 0;
};

/// Finds two accesses that may touch one memory, one of them a write, of which the earlier one is not over before the
/// later one begins. `times` is indexed by node. O(nodes + accesses).
std::optional<OrderViolation> findViolation(const BlockAccesses &accesses, llvm::ArrayRef<AccessTime> times);

/// Whether an operation accesses something, and whether it writes it.
struct AccessKind {
  bool touches = false, writes = false;
};

/// What calls do to memory. Not for several threads at once, and only as long as no function is erased.
class CallSummaries {
public:
  /// What one slot of a result may be: slots of arguments, memory that the callee makes (numbered, since two results
  /// may be the same), memory from outside (a global), or anything that is exposed.
  struct Result {
    llvm::SmallVector<int32_t, 2> arguments, made;
    bool outside = false, unknown = false;
  };
  struct Argument {
    AccessKind access;
    /// Other code knows it afterwards.
    bool captured = false;
  };
  struct Summary {
    /// Indexed by slot of the results, and of the arguments. A tensor or memref has one slot, a future several.
    std::vector<Result> results;
    std::vector<Argument> arguments;
    /// Accesses to memory from outside, and to anything that is exposed.
    AccessKind outside, anywhere;
    /// Resources that are no memory, and whether they are written.
    std::vector<std::pair<mlir::TypeID, bool>> resources;
  };

  /// Null if the callee is unknown, has no body, or calls itself.
  const Summary *of(mlir::Operation *call);

private:
  Summary derive(mlir::Operation *function);

  mlir::SymbolTableCollection symbols;
  /// Indexed by function; null while it is being derived.
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<Summary>> summaries;
};

namespace detail {
class MemoryFlow;
} // namespace detail

/// The accesses of the blocks of one function. It is derived from the function as it is at construction; reordering
/// the operations of its blocks does not invalidate it.
class AccessOrder {
public:
  /// O(operations + operands), times the objects that a value may be.
  AccessOrder(mlir::Operation *function, CallSummaries &summaries);
  ~AccessOrder();

  /// The accesses of one block of the function. O(nested operations + operands), times the objects that a value may be.
  BlockAccesses derive(mlir::Block &block) const;

private:
  CallSummaries &summaries;
  std::unique_ptr<detail::MemoryFlow> flow;
};

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_ACCESSORDER_H
