//===- CommVerify.cpp - The pass comm-verify --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Finds programs that the types allow but that hang or corrupt data at run time.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/CertainWait.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Analysis/TensorPlaces.h"
#include "CommSched/Transforms/Passes.h"
#include "FlightsAcrossBlocks.h"
#include "MemoryChoices.h"
#include "MemoryRanges.h"
#include "PlaceCheck.h"
#include "StreamCheck.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/StringSwitch.h"

namespace commsched {
#define GEN_PASS_DEF_COMMVERIFY
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

//===-----------------------------------------------------------------------------------------===//
// Waits
//===-----------------------------------------------------------------------------------------===//

/// Blocks of a region that are reachable from its entry.
llvm::SmallPtrSet<Block *, 8> findReachable(Region &region) {
  llvm::SmallPtrSet<Block *, 8> reached;
  llvm::SmallVector<Block *> worklist = {&region.front()};
  while (!worklist.empty()) {
    Block *block = worklist.pop_back_val();
    if (reached.insert(block).second)
      llvm::append_range(worklist, block->getSuccessors());
  }
  return reached;
}

bool isReachable(Operation *op) {
  for (Block *block = op->getBlock(); block; block = block->getParentOp() ? block->getParentOp()->getBlock() : nullptr)
    if (block->getParent() && !block->isEntryBlock() && !findReachable(*block->getParent()).contains(block))
      return false;
  return true;
}

/// Checks that a future has a reachable wait or leaves the block.
LogicalResult verifyWaits(CollectiveOpInterface start) {
  Value future = start.getCollectiveFuture();
  if (future.use_empty())
    return start->emitOpError("expected a wait or a future that leaves the function, got neither");
  for (Operation *user : future.getUsers())
    if (isReachable(user))
      return success();
  InFlightDiagnostic diagnostic = start->emitOpError("is waited for only in unreachable code");
  diagnostic.attachNote((*future.user_begin())->getLoc()) << "this wait is unreachable";
  return diagnostic;
}

//===-----------------------------------------------------------------------------------------===//
// Buffers in flight
//===-----------------------------------------------------------------------------------------===//

/// A collective in flight that uses a storage class.
struct InFlight {
  Operation *start = nullptr;
  Value value;
  bool written = false;
};

/// Visits one block and checks every access to storage in flight.
class FlightChecker {
public:
  FlightChecker(Block &block, const TensorPlaces &places)
      : block(block), places(places), storage(block), choices(block) {}

  LogicalResult run() {
    findCertainCompletions();
    LogicalResult result = success();
    for (Operation &op : block) {
      findGiven(op);
      if (failed(visit(op)))
        result = failure();
      for (Operation *start : completeAfter.lookup(&op))
        endFlight(start);
      if (auto wait = dyn_cast<WaitOp>(op))
        llvm::for_each(findCompleted(wait), [&](Operation *start) { endFlight(start); });
      if (auto start = dyn_cast<CollectiveOpInterface>(op)) {
        if (failed(checkDestinations(start)))
          result = failure();
        beginFlight(start);
      }
    }
    return result;
  }

private:
  /// Finds the operations of the block that wait on every path through them.
  void findCertainCompletions() {
    for (auto start : block.getOps<CollectiveOpInterface>())
      for (Operation *op : findCertainWaits(start.getCollectiveFuture(), block))
        completeAfter[op].push_back(start);
  }

  /// Finds the collectives whose futures an operation with regions is given. What they have in flight inside depends on
  /// the path to there (FlightsAcrossBlocks.h).
  void findGiven(Operation &op) {
    given.clear();
    if (isa<RegionBranchOpInterface>(op))
      for (Value operand : op.getOperands())
        if (Operation *start = operand.getDefiningOp(); start && flights.contains(start))
          given.insert(start);
  }

  /// Checks an operation and its nested operations. A collective that is complete inside a region counts as in flight
  /// again after the region, because control may take another path.
  LogicalResult visit(Operation &op) {
    if (isa<WaitOp>(op))
      return success();
    LogicalResult result = check(&op);
    for (Region &region : op.getRegions())
      for (Block &inner : region) {
        llvm::SmallVector<Operation *> completed;
        for (Operation &nested : inner) {
          if (failed(visit(nested)))
            result = failure();
          if (auto wait = dyn_cast<WaitOp>(nested))
            for (Operation *start : findCompleted(wait)) {
              endFlight(start);
              completed.push_back(start);
            }
        }
        for (Operation *start : completed)
          beginFlight(cast<CollectiveOpInterface>(start));
      }
    return result;
  }

  /// Returns true if a wait may complete a collective of the block. A future from a loop or a branch may be any future
  /// that was passed on and has the same storage in flight. What may be complete is not reported.
  bool mayComplete(WaitOp wait, CollectiveOpInterface start) const {
    Value future = wait.getFuture(), started = start.getCollectiveFuture();
    if (Operation *known = storage.startOf(future))
      return known == start;
    return !llvm::all_of(started.getUsers(), llvm::IsaPred<WaitOp>) && haveCommonClass(future, started);
  }

  bool haveCommonClass(Value a, Value b) const {
    return llvm::any_of(storage.of(a), [&](StorageId id) { return llvm::is_contained(storage.of(b), id); });
  }

  /// The collectives in flight that may be complete after a wait.
  llvm::SmallVector<Operation *> findCompleted(WaitOp wait) const {
    llvm::SmallVector<Operation *> completed;
    if (Operation *start = storage.startOf(wait.getFuture())) {
      if (flights.contains(start))
        completed.push_back(start);
      return completed;
    }
    for (Operation *start : llvm::make_first_range(flights))
      if (mayComplete(wait, cast<CollectiveOpInterface>(start)))
        completed.push_back(start);
    llvm::sort(completed, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    return completed;
  }

  /// Returns true if control may come back to a basic block.
  static bool isInCycle(Block &nested) {
    return llvm::any_of(nested.getSuccessors(),
                        [&](Block *successor) { return successor == &nested || successor->isReachable(&nested); });
  }

  /// Returns true if a collective of the block may be complete whenever control reaches `op` in a nested region. What
  /// is outside of the block comes before the collective. A loop may put another collective in flight after the wait
  /// for a future that it carries, and carry what that one uses to the next iteration: such a wait completes nothing
  /// outside of its iteration.
  bool isCompleteBefore(Operation *op, CollectiveOpInterface start) const {
    if (!block.findAncestorOpInBlock(*op))
      return false;
    bool complete = false;
    for (; op->getBlock() != &block; op = op->getParentOp()) {
      auto isBefore = [&](Operation *wait) { return wait->isBeforeInBlock(op); };
      if (llvm::any_of(findCertainWaits(start.getCollectiveFuture(), *op->getBlock()), isBefore))
        return true;
      complete |= llvm::any_of(op->getBlock()->getOps<WaitOp>(),
                               [&](WaitOp wait) { return isBefore(wait) && mayComplete(wait, start); });
      complete &= !isa<LoopLikeOpInterface>(op->getParentOp()) && !isInCycle(*op->getBlock());
    }
    return complete;
  }

  /// Returns true for a tensor that is no place. As a destination it keeps its contents for who still needs them, also
  /// if passes have made one of the destinations of several collectives: bufferization finds storage for the results.
  bool isValue(Value value) const { return isa<TensorType>(value.getType()) && !places.isPlace(value); }

  /// The future and the number of the result of which a tensor is a view, if its destination is a value; null if not.
  std::pair<Value, unsigned> findResult(Value tensor) const {
    for (; tensor; tensor = findSource(tensor))
      if (auto wait = tensor.getDefiningOp<WaitOp>())
        if (Value dest = findSource(tensor); dest && isValue(dest))
          return {wait.getFuture(), cast<OpResult>(tensor).getResultNumber()};
    return {};
  }

  /// Returns true for results of two collectives, or two of one, in storage that bufferization finds for each.
  bool areResultsOfTwo(Value a, Value b) const {
    auto first = findResult(a), second = findResult(b);
    return first.first && second.first && first != second;
  }

  /// Returns true if an operation writes the value of an operand as a destination only, and the value is no place.
  bool isValueWritten(OpOperand &operand) const {
    return isValue(operand.get()) && llvm::any_of(findDestinations(operand.getOwner()),
                                                  [&](OpOperand *dest) { return dest->get() == operand.get(); });
  }

  void beginFlight(CollectiveOpInterface start) {
    auto add = [&](Value value, bool written) {
      for (StorageId id : storage.of(value))
        inFlight[id].push_back({start, value, written});
    };
    for (Value input : start.getCollectiveInputs())
      add(input, false);
    for (Value dest : start.getCollectiveDests())
      if (!isValue(dest))
        add(dest, true);
    flights[start] = storage.of(start.getCollectiveFuture()).vec();
  }

  void endFlight(Operation *start) {
    for (StorageId id : flights.lookup(start))
      llvm::erase_if(inFlight[id], [&](InFlight entry) { return entry.start == start; });
    flights.erase(start);
  }

  LogicalResult check(Operation *op) {
    if (inFlight.empty() || isa<ViewLikeOpInterface>(op))
      return success();
    for (OpOperand &operand : op->getOpOperands())
      if (failed(checkOperand(operand)))
        return failure();
    return success();
  }

  /// Returns true if a value may overlap what an entry of storage class `id` has in flight.
  bool mayBeInUse(Value value, InFlight entry, StorageId id) {
    // What a branch or a loop makes of a tensor may be a copy of it; StorageMap knows which.
    if (!isa<BaseMemRefType>(value.getType()))
      return llvm::is_contained(storage.of(value), id) && !areApart(entry.value, value) &&
             !areResultsOfTwo(entry.value, value);
    // The result of an operation with regions has the classes of all that its regions may join. Those of the values
    // that it is chosen from are fewer, and one of them may be of a region.
    llvm::SmallVector<Value> used = choices.findChoices(entry.value);
    auto mayOverlap = [&](Value choice) {
      if (areApart(entry.value, choice))
        return false;
      return used.empty() || choices.isChosen(choice) || llvm::any_of(used, [&](Value part) {
               return (storage.of(part).empty() || haveCommonClass(part, choice)) && !areApart(part, choice);
             });
    };
    auto start = cast<CollectiveOpInterface>(entry.start);
    return choices.mayBeInUse(value, mayOverlap, [&](Operation *op) { return isCompleteBefore(op, start); });
  }

  /// Checks that no destination of a start is a view of the memory of another destination, or of the input of another
  /// value, unless they are apart: the order in which a backend carries out the values of one start is not defined.
  /// Tensors that are values get storage of their own from bufferization.
  LogicalResult checkDestinations(CollectiveOpInterface start) {
    OperandRange inputs = start.getCollectiveInputs(), dests = start.getCollectiveDests();
    for (auto [index, dest] : llvm::enumerate(dests)) {
      if (isValue(dest))
        continue;
      auto mayOverlap = [dest = dest](Value other) {
        return findRoot(dest) == findRoot(other) && !areApart(dest, other);
      };
      for (unsigned other = 0; other < std::max<size_t>(inputs.size(), index); ++other) {
        bool isRead = other < inputs.size() && other != index && mayOverlap(inputs[other]);
        if (isRead || (other < index && mayOverlap(dests[other])))
          return start->emitOpError() << "writes value #" << index << " where " << (isRead ? "input #" : "value #")
                                      << other << " may be; expected memory of its own for each value";
      }
    }
    return success();
  }

  LogicalResult checkOperand(OpOperand &operand) {
    auto start = dyn_cast<CollectiveOpInterface>(operand.getOwner());
    bool isDest = start && llvm::is_contained(start.getCollectiveDests(), operand.get());
    auto [reads, writes] = getAccess(operand);
    writes |= isDest;
    writes &= !isValueWritten(operand);
    bool tensor = !isa<BaseMemRefType>(operand.get().getType());
    for (StorageId id : storage.of(operand.get())) {
      auto it = inFlight.find(id);
      if (it == inFlight.end())
        continue;
      for (InFlight entry : it->second) {
        if (!tensor && operand.getOwner()->getBlock() != &block && given.contains(entry.start))
          continue;
        // In an in-place collective, the slice that is sent is part of the destination.
        bool readsDest = reads && entry.written && !tensor;
        if ((!writes && !readsDest) || !mayBeInUse(operand.get(), entry, id))
          continue;
        InFlightDiagnostic diagnostic = operand.getOwner()->emitOpError()
                                        << (writes ? "writes" : "reads") << " operand #" << operand.getOperandNumber()
                                        << ", which is in flight";
        diagnostic.attachNote(entry.start->getLoc())
            << "the collective is started here and has no certain wait in between";
        for (Value value : {operand.get(), entry.value})
          if (auto call = findRoot(value).getDefiningOp<CallOpInterface>())
            diagnostic.attachNote(call->getLoc()) << "what this call returns may be whatever it is given; wait before "
                                                     "the access, or inline the call";
        return diagnostic;
      }
    }
    return success();
  }

  Block &block;
  const TensorPlaces &places;
  StorageMap storage;
  MemoryChoices choices;
  llvm::DenseMap<StorageId, llvm::SmallVector<InFlight, 1>> inFlight;
  llvm::DenseMap<Operation *, std::vector<StorageId>> flights;
  llvm::SmallPtrSet<Operation *, 2> given;
  /// Indexed by operation of the block: the starts that are complete after it.
  llvm::DenseMap<Operation *, llvm::SmallVector<Operation *, 1>> completeAfter;
};

//===-----------------------------------------------------------------------------------------===//
// Divergence
//===-----------------------------------------------------------------------------------------===//

/// Returns true for operations whose result is the rank or a coordinate of it.
bool tellsRank(Operation *op) {
  return llvm::StringSwitch<bool>(op->getName().getStringRef())
      .Cases({"mpi.comm_rank", "shard.process_multi_index", "shard.process_linear_index"}, true)
      .Default(false);
}

/// Returns true for waits whose results are equal on all ranks of the group.
bool makesUniform(Operation *op) {
  auto wait = dyn_cast<WaitOp>(op);
  auto start = wait ? wait.getFuture().getDefiningOp<CollectiveOpInterface>() : CollectiveOpInterface();
  return start && llvm::is_contained({CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::Broadcast},
                                     start.getCollectiveKind());
}

/// Marks values that depend on the rank, and reports collectives under control flow that depends on them.
class DivergenceChecker {
public:
  LogicalResult run(Operation *function) {
    function->walk<WalkOrder::PreOrder>([&](Operation *op) { visit(op); });
    return result;
  }

private:
  void visit(Operation *op) {
    bool depends = tellsRank(op) || llvm::any_of(op->getOperands(), [&](Value v) { return tainted.contains(v); });
    if (!depends || makesUniform(op))
      return;
    for (Value value : op->getResults())
      tainted.insert(value);
    if (op->getNumRegions() > 0 && isa<RegionBranchOpInterface>(op))
      visitBranch(op);
    if (op->getNumSuccessors() > 1)
      for (Block *successor : op->getSuccessors())
        for (Operation &inner : *successor)
          report(&inner, op);
  }

  /// The first operand of a branch decides. Of a loop's operands, those of index type decide; the others are data.
  void visitBranch(Operation *op) {
    bool decides = isa<LoopLikeOpInterface>(op)
                       ? llvm::any_of(controlOperands(op), [&](Value v) { return tainted.contains(v); })
                       : tainted.contains(op->getOperand(0));
    if (decides)
      for (Region &region : op->getRegions())
        region.walk([&](Operation *inner) { report(inner, op); });
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          tainted.insert(argument);
  }

  static llvm::SmallVector<Value> controlOperands(Operation *op) {
    llvm::SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      if (operand.getType().isIndex())
        operands.push_back(operand);
    return operands;
  }

  void report(Operation *op, Operation *branch) {
    if (!isa<CollectiveOpInterface>(op) || !reported.insert(op).second)
      return;
    InFlightDiagnostic diagnostic =
        op->emitOpError("expected control flow that is equal on all ranks, got a condition that depends on the rank");
    diagnostic.attachNote(branch->getLoc()) << "this operation branches on a value that depends on the rank";
    result = failure();
  }

  llvm::DenseSet<Value> tainted;
  llvm::SmallPtrSet<Operation *, 4> reported;
  LogicalResult result = success();
};

struct CommVerifyPass : public commsched::impl::CommVerifyBase<CommVerifyPass> {
  void runOnOperation() final {
    bool failedAny = failed(checkPlaces(getOperation()));
    TensorPlaces places(getOperation());
    getOperation().walk([&](FunctionOpInterface function) {
      bool failedInBlock = false;
      function.walk([&](CollectiveOpInterface start) { failedAny |= failed(verifyWaits(start)); });
      function.walk([&](Block *block) {
        if (block->getParentOp() == getOperation())
          return;
        if (!block->getOps<CollectiveOpInterface>().empty())
          failedInBlock |= failed(FlightChecker(*block, places).run());
        failedAny |= failed(checkStreams(*block));
      });
      // An access that is wrong within its block is reported once.
      failedAny |= failedInBlock || failed(checkFlightsAcrossBlocks(function));
      failedAny |= failed(DivergenceChecker().run(function));
    });
    stampSignature(getOperation());
    if (failedAny)
      signalPassFailure();
  }
};

} // namespace
