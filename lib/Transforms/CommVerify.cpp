//===- CommVerify.cpp - The pass comm-verify --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// Looks for what the types do not forbid and what hangs or corrupts at run time.
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Transforms/Passes.h"
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

/// Blocks of a region that its entry reaches.
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

/// Every future is waited for on a path, or leaves the block.
LogicalResult verifyWaits(CollectiveOpInterface start) {
  Value future = start.getCollectiveFuture();
  if (future.use_empty())
    return start->emitOpError("is never waited for, and its future does not leave the function");
  for (Operation *user : future.getUsers())
    if (isReachable(user))
      return success();
  InFlightDiagnostic diagnostic = start->emitOpError("is waited for only where no path leads");
  diagnostic.attachNote((*future.user_begin())->getLoc()) << "no path reaches this wait";
  return diagnostic;
}

//===-----------------------------------------------------------------------------------------===//
// Buffers in flight
//===-----------------------------------------------------------------------------------------===//

/// What of a storage class is in flight in a block.
struct InFlight {
  Operation *start = nullptr;
  bool written = false;
};

/// Goes through one block and checks every access to storage that is in flight.
class FlightChecker {
public:
  explicit FlightChecker(Block &block) : block(block), storage(block) {}

  LogicalResult run() {
    LogicalResult result = success();
    for (Operation &op : block) {
      if (auto wait = dyn_cast<WaitOp>(op)) {
        land(storage.startOf(wait.getFuture()));
        continue;
      }
      op.walk([&](Operation *inner) {
        if (!isa<WaitOp>(inner) && failed(check(inner)))
          result = failure();
      });
      if (auto start = dyn_cast<CollectiveOpInterface>(op))
        takeOff(start);
    }
    return result;
  }

private:
  void takeOff(CollectiveOpInterface start) {
    auto add = [&](Value value, bool written) {
      for (StorageId id : storage.of(value))
        inFlight[id].push_back({start, written});
    };
    for (Value input : start.getCollectiveInputs())
      add(input, false);
    for (Value dest : start.getCollectiveDests())
      add(dest, true);
    flights[start] = storage.of(start.getCollectiveFuture()).vec();
  }

  void land(Operation *start) {
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

  /// Whether an operation reads or writes what an operand refers to.
  static std::pair<bool, bool> getAccess(OpOperand &operand) {
    if (!isa<BaseMemRefType>(operand.get().getType()))
      return {true, mutatesOperand(operand)};
    auto effects = dyn_cast<MemoryEffectOpInterface>(operand.getOwner());
    if (!effects)
      return {false, false}; // a region's operations are visited themselves; unknown effects are nobody's
    llvm::SmallVector<MemoryEffects::EffectInstance, 4> found;
    effects.getEffectsOnValue(operand.get(), found);
    bool reads = false, writes = false;
    for (const MemoryEffects::EffectInstance &effect : found) {
      reads |= isa<MemoryEffects::Read>(effect.getEffect());
      writes |= isa<MemoryEffects::Write, MemoryEffects::Free>(effect.getEffect());
    }
    return {reads, writes};
  }

  LogicalResult checkOperand(OpOperand &operand) {
    auto start = dyn_cast<CollectiveOpInterface>(operand.getOwner());
    bool isDest = start && llvm::is_contained(start.getCollectiveDests(), operand.get());
    auto [reads, writes] = getAccess(operand);
    writes |= isDest;
    bool tensor = !isa<BaseMemRefType>(operand.get().getType());
    for (StorageId id : storage.of(operand.get())) {
      auto it = inFlight.find(id);
      if (it == inFlight.end())
        continue;
      for (InFlight entry : it->second) {
        // In place, the slice that is sent is part of the destination.
        bool readsDest = reads && entry.written && !tensor;
        if (!writes && !readsDest)
          continue;
        InFlightDiagnostic diagnostic = operand.getOwner()->emitOpError()
                                        << (writes ? "writes" : "reads") << " operand #" << operand.getOperandNumber()
                                        << ", which a collective has in flight";
        diagnostic.attachNote(entry.start->getLoc()) << "started here, and not yet waited for";
        return diagnostic;
      }
    }
    return success();
  }

  Block &block;
  StorageMap storage;
  llvm::DenseMap<StorageId, llvm::SmallVector<InFlight, 1>> inFlight;
  llvm::DenseMap<Operation *, std::vector<StorageId>> flights;
};

//===-----------------------------------------------------------------------------------------===//
// Divergence
//===-----------------------------------------------------------------------------------------===//

/// Operations that tell the rank.
bool tellsRank(Operation *op) {
  return llvm::StringSwitch<bool>(op->getName().getStringRef())
      .Cases({"mpi.comm_rank", "shard.process_multi_index", "shard.process_linear_index"}, true)
      .Default(false);
}

/// Collectives whose result is the same on all ranks of the group.
bool makesUniform(Operation *op) {
  auto wait = dyn_cast<WaitOp>(op);
  auto start = wait ? wait.getFuture().getDefiningOp<CollectiveOpInterface>() : CollectiveOpInterface();
  return start && llvm::is_contained({CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::Broadcast},
                                     start.getCollectiveKind());
}

/// Marks what depends on the rank and complains about collectives under it.
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
          complain(&inner, op);
  }

  /// The first operand of a branch decides; loops' other operands are data.
  void visitBranch(Operation *op) {
    bool decides = isa<LoopLikeOpInterface>(op)
                       ? llvm::any_of(controlOperands(op), [&](Value v) { return tainted.contains(v); })
                       : tainted.contains(op->getOperand(0));
    if (decides)
      for (Region &region : op->getRegions())
        region.walk([&](Operation *inner) { complain(inner, op); });
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

  void complain(Operation *op, Operation *branch) {
    if (!isa<CollectiveOpInterface>(op) || !complained.insert(op).second)
      return;
    InFlightDiagnostic diagnostic =
        op->emitOpError("is under control flow that depends on the rank: not all ranks reach it");
    diagnostic.attachNote(branch->getLoc()) << "the branch is here";
    result = failure();
  }

  llvm::DenseSet<Value> tainted;
  llvm::SmallPtrSet<Operation *, 4> complained;
  LogicalResult result = success();
};

struct CommVerifyPass : public commsched::impl::CommVerifyBase<CommVerifyPass> {
  void runOnOperation() final {
    bool failedAny = false;
    getOperation().walk([&](FunctionOpInterface function) {
      function.walk([&](CollectiveOpInterface start) { failedAny |= failed(verifyWaits(start)); });
      function.walk([&](Block *block) {
        if (block->getParentOp() != getOperation() && !block->getOps<CollectiveOpInterface>().empty())
          failedAny |= failed(FlightChecker(*block).run());
      });
      failedAny |= failed(DivergenceChecker().run(function));
    });
    stampSignature(getOperation());
    if (failedAny)
      signalPassFailure();
  }
};

} // namespace
