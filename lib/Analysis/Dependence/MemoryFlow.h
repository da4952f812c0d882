//===- MemoryFlow.h - The memory that values may be -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Private to AccessOrder: a points-to analysis over values. It shares no code with Storage.h and has simpler rules.
// Every value is a few slots, and every slot may be some objects; objects flow from slot to slot along views, branches
// and calls until nothing changes. It knows neither sizes nor lives.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_ANALYSIS_DEPENDENCE_MEMORYFLOW_H
#define COMMSCHED_LIB_ANALYSIS_DEPENDENCE_MEMORYFLOW_H

#include "CommSched/Analysis/AccessOrder.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/DenseMap.h"

namespace commsched::detail {

/// Index of an object within a MemoryFlow.
using ObjectId = int32_t;

/// What other code may know too: globals, and memrefs that come in without `llvm.noalias`. It is exposed.
inline constexpr ObjectId kOutside = 0;
/// Any exposed object: a memref of unknown origin.
inline constexpr ObjectId kAnyExposed = 1;

/// A tensor or memref has one slot. A future has one for each of its values, and one for all inputs in flight.
unsigned numSlots(mlir::Type type);

/// The slots of all values, in turn.
llvm::SmallVector<std::pair<mlir::Value, unsigned>> slotsOf(mlir::ValueRange values);

/// Which objects the slots of values may be.
class MemoryFlow {
public:
  using Objects = llvm::SmallVector<ObjectId, 2>;
  /// What a slot of a value from outside may be. The callback may add objects.
  using Incoming = llvm::function_ref<Objects(MemoryFlow &, mlir::Value, unsigned slot)>;

  /// Follows all operations in the regions of `function`.
  MemoryFlow(mlir::Operation *function, CallSummaries &summaries, Incoming incoming);
  /// Follows the operations of `block`, nested ones included. Its arguments come from outside.
  MemoryFlow(mlir::Block &block, CallSummaries &summaries, Incoming incoming);

  /// The objects, ascending; empty for values without memory, and for values that nothing asked for.
  llvm::ArrayRef<ObjectId> of(mlir::Value value, unsigned slot = 0) const;
  /// `isExposed`: see isExposed(); `isReceived`: see isReceived().
  ObjectId addObject(bool isExposed = false, bool isReceived = false);
  ObjectId numObjects() const { return static_cast<ObjectId>(exposed.size()); }
  /// Whether code that is not seen may access an object.
  bool isExposed(ObjectId object) const { return exposed[object]; }
  /// Whether a start made the object for what it receives, so that nobody sees it before a wait.
  bool isReceived(ObjectId object) const { return received.contains(object); }

private:
  using Slot = int32_t;

  Slot slotOf(mlir::Value value, unsigned slot = 0);
  bool comesIn(mlir::Value value) const;
  void put(Slot slot, ObjectId object);
  void flow(Slot from, Slot to);
  void flow(mlir::Value from, mlir::Value to);
  void flowAll(mlir::ValueRange from, mlir::ValueRange to);
  void expose(mlir::Value value);
  void makeFresh(mlir::Value value);

  void visit(mlir::Operation *op);
  void visitStart(comm::CollectiveOpInterface start);
  void visitRegions(mlir::Operation *op);
  void visitBranch(mlir::BranchOpInterface branch);
  void visitCall(mlir::CallOpInterface call);
  void visitLeaf(mlir::Operation *op);
  bool visitView(mlir::Operation *op);
  void visitUnknown(mlir::Operation *op);
  void visitMemref(mlir::OpResult result);
  void exposeCaptured(mlir::Operation *op);
  void propagate();

  CallSummaries &summaries;
  /// Called during construction only.
  Incoming incoming;
  mlir::Operation *function = nullptr;
  mlir::Block *block = nullptr;
  llvm::DenseMap<mlir::Value, Slot> firstSlots;
  /// Indexed by slot: the objects, ascending, and the slots to which they flow.
  std::vector<Objects> objects;
  std::vector<llvm::SmallVector<Slot, 2>> flows;
  std::vector<Slot> changed;
  /// Objects that flow here are exposed.
  Slot exposedSlot = 0;
  /// Indexed by object.
  std::vector<bool> exposed;
  llvm::DenseSet<ObjectId> received;
};

} // namespace commsched::detail

#endif // COMMSCHED_LIB_ANALYSIS_DEPENDENCE_MEMORYFLOW_H
