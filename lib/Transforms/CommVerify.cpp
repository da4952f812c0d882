//===- CommVerify.cpp - The pass comm-verify --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Looks for what the types do not forbid and what hangs or corrupts at run time.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/CertainWait.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
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
  Value value;
  bool written = false;
};

/// Bytes that a memref refers to within `base`, which is no view itself.
struct ByteRange {
  Value base;
  int64_t begin = 0, end = 0;
};

/// Bytes of a memref of static shape without gaps; none for others.
std::optional<int64_t> getBytes(Value memref) {
  auto type = dyn_cast<MemRefType>(memref.getType());
  if (!type || !type.hasStaticShape() || !type.getLayout().isIdentity() || !type.getElementType().isIntOrFloat())
    return std::nullopt;
  int64_t bytes = llvm::PowerOf2Ceil(llvm::divideCeil(type.getElementTypeBitWidth(), 8));
  for (int64_t size : type.getShape())
    if (llvm::MulOverflow(bytes, size, bytes))
      return std::nullopt;
  return bytes;
}

/// What a memref is another name for: the source of a view, the destination that a wait gives back; null if nothing.
Value findSource(Value memref) {
  auto result = dyn_cast<OpResult>(memref);
  if (!result)
    return {};
  if (auto wait = dyn_cast<WaitOp>(result.getOwner())) {
    auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>();
    bool known = start && result.getResultNumber() < start.getCollectiveDests().size();
    return known ? start.getCollectiveDests()[result.getResultNumber()] : Value();
  }
  return getAliasedValue(result);
}

/// Where a `memref.view`, or a view of one, lies; none where a place or a size is not a constant. A buffer plan makes
/// such views of one arena.
std::optional<ByteRange> findRange(Value memref) {
  // Of other views, all that they are a view of counts.
  for (Value source = findSource(memref); source && !memref.getDefiningOp<memref::ViewOp>();
       source = findSource(memref))
    memref = source;
  std::optional<int64_t> bytes = getBytes(memref);
  int64_t begin = 0, end;
  for (auto view = memref.getDefiningOp<memref::ViewOp>(); view; view = memref.getDefiningOp<memref::ViewOp>()) {
    std::optional<int64_t> shift = getConstantIntValue(view.getByteShift());
    if (!shift || llvm::AddOverflow(begin, *shift, begin))
      return std::nullopt;
    memref = view.getSource();
  }
  if (!bytes || llvm::AddOverflow(begin, *bytes, end) || findSource(memref))
    return std::nullopt;
  return ByteRange{memref, begin, end};
}

/// Whether two memrefs certainly have no byte in common. False says nothing.
bool areApart(Value a, Value b) {
  if (a == b || !isa<MemRefType>(a.getType()) || !isa<MemRefType>(b.getType()))
    return false;
  std::optional<ByteRange> left = findRange(a), right = findRange(b);
  return left && right && left->base == right->base && (left->end <= right->begin || right->end <= left->begin);
}

/// Goes through one block and checks every access to storage that is in flight.
class FlightChecker {
public:
  explicit FlightChecker(Block &block) : block(block), storage(block) {}

  LogicalResult run() {
    findCertainlyLanded();
    LogicalResult result = success();
    for (Operation &op : block) {
      if (failed(visit(op)))
        result = failure();
      for (Operation *start : landedBehind.lookup(&op))
        land(start);
      if (auto start = dyn_cast<CollectiveOpInterface>(op))
        takeOff(start);
    }
    return result;
  }

private:
  /// Operations of the block with waits on every way through them.
  void findCertainlyLanded() {
    for (auto start : block.getOps<CollectiveOpInterface>())
      for (Operation *op : findCertainWaits(start.getCollectiveFuture(), block))
        landedBehind[op].push_back(start);
  }

  /// Checks an operation and what is nested in it. What lands within a region is in flight again behind it: control may
  /// take another way.
  LogicalResult visit(Operation &op) {
    if (isa<WaitOp>(op))
      return success();
    LogicalResult result = check(&op);
    for (Region &region : op.getRegions())
      for (Block &inner : region) {
        llvm::SmallVector<Operation *> landed;
        for (Operation &nested : inner) {
          if (failed(visit(nested)))
            result = failure();
          auto wait = dyn_cast<WaitOp>(nested);
          Operation *start = wait ? storage.startOf(wait.getFuture()) : nullptr;
          if (start && flights.contains(start)) {
            land(start);
            landed.push_back(start);
          }
        }
        for (Operation *start : landed)
          takeOff(cast<CollectiveOpInterface>(start));
      }
    return result;
  }

  void takeOff(CollectiveOpInterface start) {
    auto add = [&](Value value, bool written) {
      for (StorageId id : storage.of(value))
        inFlight[id].push_back({start, value, written});
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
        if ((!writes && !readsDest) || areApart(entry.value, operand.get()))
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
  /// By operation of the block: the starts that are complete behind it.
  llvm::DenseMap<Operation *, llvm::SmallVector<Operation *, 1>> landedBehind;
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
