//===- CommRemoveUnshardedParamUsage.cpp - The pass comm-remove-unsharded-param-usage ---------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// FSDP2 gives an unsharded parameter storage, copies the gathered value into it, uses it and takes the storage away:
//
//   resize_storage %p to FULL;  fsdp.copy %y into %p;  uses of %p;  resize_storage %p to 0
//
// The uses can read %y, and then the copy and the resizes go. Each parameter is decided on by itself. What happens to
// its storage, through views and futures in flight too, is read off the storage map as a sequence of events, which has
// to match the pattern, once or several times.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Storage.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "RewriteRemarks.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/MapVector.h"

namespace commsched {
#define GEN_PASS_DEF_COMMREMOVEUNSHARDEDPARAMUSAGE
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

constexpr llvm::StringLiteral kPassName = "comm-remove-unsharded-param-usage";

/// One operand, of an operation of the block or nested in it, whose storage is a parameter's (or a copied value's).
struct Event {
  /// Place of the block's operation.
  int64_t position;
  OpOperand *operand;
};

/// Between a copy into the parameter and the next copy or resize.
struct Window {
  Operation *copy;
  Value source;
  int64_t begin, end;
  SmallVector<OpOperand *> uses;
};

/// What to do about one parameter.
struct Plan {
  SmallVector<Window> windows;
  SmallVector<Operation *> erased;
};

/// Why a parameter is left alone, and where.
struct Refusal {
  Operation *op;
  std::string reason;
  /// The program writes a parameter that it also gathers into: more likely a mistake than a missed optimization.
  bool isMutation = false;
  /// Nothing was to be gained: no remark.
  bool isSilent = false;
};

/// Whether the operation writes the storage of the operand: itself, or as the destination of a collective.
bool isWritten(OpOperand &operand) {
  auto start = dyn_cast<CollectiveOpInterface>(operand.getOwner());
  return commsched::mutatesOperand(operand) ||
         (start && operand.getOperandNumber() >= start.getCollectiveInputs().size());
}

/// All events of one block by storage class.
class Events {
public:
  explicit Events(Block &block) : storage(block), block(block) {
    int64_t position = 0;
    for (Operation &op : block) {
      positions[&op] = position;
      op.walk([&](Operation *nested) {
        for (OpOperand &operand : nested->getOpOperands())
          for (StorageId id : storage.of(operand.get()))
            events[id].push_back({position, &operand});
      });
      ++position;
    }
    numPositions = position;
  }

  /// The number of operations of the block.
  int64_t size() const { return numPositions; }

  ArrayRef<Event> of(StorageId id) const {
    auto it = events.find(id);
    return it == events.end() ? ArrayRef<Event>() : ArrayRef<Event>(it->second);
  }

  /// Where the operation of the block stands that makes `value` or holds it; -1 for arguments and captured values.
  int64_t positionOf(Value value) const {
    Operation *op = value.getDefiningOp();
    if (!op)
      op = value.getParentBlock()->getParentOp();
    op = op ? block.findAncestorOpInBlock(*op) : nullptr;
    return op ? positions.lookup(op) : -1;
  }

  const StorageMap storage;
  Block &block;

private:
  int64_t numPositions = 0;
  llvm::DenseMap<StorageId, SmallVector<Event>> events;
  llvm::DenseMap<Operation *, int64_t> positions;
};

/// Reads the events of `param` as the pattern, or says what stands in the way.
class PatternReader {
public:
  PatternReader(const Events &events, BlockArgument param) : events(events), param(param) {
    fullBytes = getStaticBytes(param.getType());
    resized = llvm::any_of(param.getUsers(), [](Operation *user) { return isa<ResizeStorageOp>(user); });
    state = resized ? State::Empty : State::Full;
  }

  std::optional<Refusal> read(Plan &plan) {
    ArrayRef<StorageId> ids = events.storage.of(param);
    if (ids.size() != 1 || !fullBytes)
      return Refusal{firstResize(), "the parameter has no storage of a known size of its own"};
    for (const Event &event : events.of(ids.front()))
      if (std::optional<Refusal> refusal = step(event, plan))
        return refusal;
    if (!lastResize)
      return finishWithoutResizes(plan);
    if (state != State::Empty)
      return Refusal{lastResize, "nothing takes the storage away again"};
    if (plan.windows.empty())
      return Refusal{firstResize(), "nothing is copied into the parameter"};
    return checkSources(plan);
  }

private:
  enum class State { Empty, Full, Copied };

  /// The storage is there all the time, before the first copy with what the caller left in it, and after the last one
  /// with what the caller finds: the last copy stays.
  std::optional<Refusal> finishWithoutResizes(Plan &plan) {
    plan.erased.pop_back();
    plan.windows.back().end = events.size();
    if (llvm::all_of(plan.windows, [](const Window &window) { return window.uses.empty(); }))
      return Refusal{plan.windows.back().copy, "", /*isMutation=*/false, /*isSilent=*/true};
    return checkSources(plan);
  }

  Operation *firstResize() const {
    for (Operation *user : param.getUsers())
      if (isa<ResizeStorageOp>(user) || !lastUser)
        lastUser = user;
    return lastUser;
  }

  std::optional<Refusal> step(const Event &event, Plan &plan) {
    Operation *user = event.operand->getOwner();
    bool direct = event.operand->get() == param && user->getBlock() == &events.block;
    if (auto resize = dyn_cast<ResizeStorageOp>(user))
      return stepResize(resize, direct, event, plan);
    auto copy = dyn_cast<FsdpCopyOp>(user);
    if (copy && event.operand == &copy.getDestMutable())
      return stepCopy(copy, direct, event, plan);
    if (user->hasTrait<OpTrait::IsTerminator>() && user->getBlock() == &events.block) {
      if (!resized && event.operand->get() == param)
        return std::nullopt; // It leaves with the contents of the last copy, which stays.
      return Refusal{user, "the parameter, a view of it or a collective on it leaves the block"};
    }
    if (isWritten(*event.operand))
      return Refusal{user, "the operation writes the parameter", /*isMutation=*/resized};
    if (!resized && state == State::Full)
      return std::nullopt; // It reads what the caller left.
    if (state != State::Copied)
      return Refusal{user, "the operation uses the parameter, or a view of it, where it has no contents"};
    if (event.operand->get() == param)
      plan.windows.back().uses.push_back(event.operand);
    else if (events.positionOf(event.operand->get()) < plan.windows.back().begin)
      return Refusal{user, "the operation uses a view of what the parameter held before"};
    return std::nullopt;
  }

  std::optional<Refusal> stepResize(ResizeStorageOp resize, bool direct, const Event &event, Plan &plan) {
    if (!direct)
      return Refusal{resize, "the resize is of a view, or nested in another operation"};
    int64_t bytes = resize.getBytes();
    // Uneven sharding pads the storage: it may be larger than the parameter.
    if (bytes != 0 && bytes < *fullBytes)
      return Refusal{resize,
                     "the parameter has " + std::to_string(*fullBytes) + " bytes, more than " + std::to_string(bytes)};
    if ((bytes != 0) != (state == State::Empty))
      return Refusal{resize, bytes ? "the storage is full already" : "the storage is empty already"};
    if (bytes == 0 && state == State::Full)
      return Refusal{resize, "nothing was copied into the storage"};
    if (bytes == 0)
      plan.windows.back().end = event.position;
    state = bytes ? State::Full : State::Empty;
    lastResize = resize;
    plan.erased.push_back(resize);
    return std::nullopt;
  }

  std::optional<Refusal> stepCopy(FsdpCopyOp copy, bool direct, const Event &event, Plan &plan) {
    if (!direct)
      return Refusal{copy, "the copy is into a view, or nested in another operation"};
    if (state == State::Empty)
      return Refusal{copy, "the copy is into empty storage"};
    if (copy.getSource().getType() != param.getType())
      return Refusal{copy, "the copied value has another type than the parameter"};
    if (state == State::Copied)
      plan.windows.back().end = event.position;
    state = State::Copied;
    plan.windows.push_back({copy, copy.getSource(), event.position, event.position, {}});
    plan.erased.push_back(copy);
    return std::nullopt;
  }

  /// What is copied must not be written while the uses read it instead.
  std::optional<Refusal> checkSources(const Plan &plan) {
    for (const Window &window : plan.windows)
      for (StorageId id : events.storage.of(window.source))
        for (const Event &event : events.of(id)) {
          if (isa<ResizeStorageOp>(event.operand->getOwner()))
            return Refusal{window.copy, "what is copied is a parameter that is resized too"};
          auto copy = dyn_cast<FsdpCopyOp>(event.operand->getOwner());
          if (copy && event.operand == &copy.getDestMutable())
            return Refusal{window.copy, "what is copied is a parameter that is copied into too"};
          bool inside = event.position > window.begin && event.position < window.end;
          if (inside && isWritten(*event.operand))
            return Refusal{event.operand->getOwner(), "the operation writes the value that was copied"};
        }
    return std::nullopt;
  }

  const Events &events;
  BlockArgument param;
  std::optional<int64_t> fullBytes;
  /// Whether the storage comes and goes. Otherwise it is full from the beginning.
  bool resized;
  State state;
  Operation *lastResize = nullptr;
  mutable Operation *lastUser = nullptr;
};

void carryOut(const Plan &plan) {
  for (const Window &window : plan.windows)
    for (OpOperand *use : window.uses)
      use->set(window.source);
  for (Operation *op : plan.erased)
    op->erase();
}

struct CommRemoveUnshardedParamUsagePass
    : public commsched::impl::CommRemoveUnshardedParamUsageBase<CommRemoveUnshardedParamUsagePass> {
  using CommRemoveUnshardedParamUsageBase::CommRemoveUnshardedParamUsageBase;

  void runOnOperation() final {
    TrafficCheck before(getOperation());
    getOperation()->walk([&](FunctionOpInterface function) {
      if (!function.isExternal())
        runOnBlock(function.getFunctionBody().front());
    });
    if (failed(before.compare(TrafficCheck(getOperation()), getOperation()->getLoc(), getArgument())))
      signalPassFailure();
  }

private:
  void runOnBlock(Block &block) {
    llvm::SetVector<BlockArgument> params;
    for (ResizeStorageOp resize : block.getOps<ResizeStorageOp>()) {
      auto param = dyn_cast<BlockArgument>(resize.getValue());
      if (!param || param.getOwner() != &block || !isa<RankedTensorType>(param.getType()))
        remarkMissed(resize.getLoc(), kPassName, "only tensor arguments of the function are parameters");
      else
        params.insert(param);
    }
    for (FsdpCopyOp copy : block.getOps<FsdpCopyOp>())
      if (auto param = dyn_cast<BlockArgument>(copy.getDest());
          param && param.getOwner() == &block && isa<RankedTensorType>(param.getType()))
        params.insert(param);
    if (params.empty())
      return;
    // The storage map stays valid: a plan replaces uses of its own parameter only.
    Events events(block);
    SmallVector<Plan> plans;
    for (BlockArgument param : params) {
      Plan plan;
      if (std::optional<Refusal> refusal = PatternReader(events, param).read(plan)) {
        if (refusal->isSilent)
          continue;
        remarkMissed(refusal->op->getLoc(), kPassName,
                     "argument #" + std::to_string(param.getArgNumber()) + ": " + refusal->reason);
        if (refusal->isMutation)
          refusal->op->emitWarning() << "writes argument #" << param.getArgNumber()
                                     << ", an unsharded parameter that gathered values are copied into; the write is "
                                        "lost with the next copy or resize, and the parameter's copies stay";
        continue;
      }
      int64_t bytes = getStaticBytes(param.getType()).value_or(0) * plan.windows.size();
      remarkPassed(plan.windows.front().copy->getLoc(), kPassName,
                   "argument #" + std::to_string(param.getArgNumber()) + ": its uses read what was copied", bytes);
      plans.push_back(std::move(plan));
    }
    for (const Plan &plan : plans)
      carryOut(plan);
  }
};

} // namespace
