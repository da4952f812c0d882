//===- CommRemoveUnshardedParamUsage.cpp - The pass comm-remove-unsharded-param-usage ---------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// FSDP2 allocates the storage of an unsharded parameter, copies the gathered value into it, uses it, and frees the
// storage:
//
//   resize_storage %p to FULL;  fsdp.copy %y into %p;  uses of %p;  resize_storage %p to 0
//
// The uses can read %y, and then the copy and the resizes are not needed. The pass decides each parameter separately.
// It reads the events of the parameter's storage, through views and futures in flight too, from the storage map. The
// sequence of events must match the pattern, once or several times.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Storage.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "RewriteRemarks.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
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

/// An operand whose storage is that of a parameter or of a copied value. Its operation is in the block or nested in it.
struct Event {
  /// Position of the block's operation.
  int64_t position;
  OpOperand *operand;
};

/// The events between a copy into the parameter and the next copy or resize.
struct Window {
  Operation *copy;
  Value source;
  int64_t begin, end;
  SmallVector<OpOperand *> uses;
};

/// The rewrite of one parameter.
struct Plan {
  SmallVector<Window> windows;
  SmallVector<Operation *> erased;
};

/// Why a parameter is not rewritten, and at which operation.
struct Refusal {
  Operation *op;
  std::string reason;
  /// True if the program writes a parameter that it also gathers into. This is probably a mistake.
  bool isMutation = false;
  /// True if there is nothing to rewrite, and so no remark.
  bool isSilent = false;
};

/// Returns true if the operation writes the storage of the operand, directly or as the destination of a collective.
bool isWritten(OpOperand &operand) {
  auto start = dyn_cast<CollectiveOpInterface>(operand.getOwner());
  return commsched::mutatesOperand(operand) ||
         (start && operand.getOperandNumber() >= start.getCollectiveInputs().size());
}

/// All events of one block, by storage class.
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

  /// Position of the block's operation that defines or contains the definition of `value`; -1 for arguments and
  /// captured values.
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

/// Matches the events of `param` with the pattern, or returns the operation that prevents it.
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

  /// The storage always exists. Before the first copy it has contents from the caller, and after the last copy the
  /// caller reads it. So the last copy stays.
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
    if (joinsStorages(user))
      return Refusal{user, "the operation gives the parameter or another tensor to the same result"};
    if (event.operand->get() == param)
      plan.windows.back().uses.push_back(event.operand);
    else if (events.positionOf(event.operand->get()) < plan.windows.back().begin)
      return Refusal{user, "the operation uses a view of what the parameter held before"};
    return std::nullopt;
  }

  /// Returns true if a branch, a loop or a select makes a result of one of several storages. The program may write the
  /// others, and the copied value would have to be a tensor that can be written.
  bool joinsStorages(Operation *user) const {
    Operation *giver = user->hasTrait<OpTrait::IsTerminator>() ? user->getParentOp() : user;
    if (!isa<RegionBranchOpInterface, SelectLikeOpInterface>(giver))
      return false;
    return llvm::any_of(giver->getResults(), [&](Value result) {
      ArrayRef<StorageId> ids = events.storage.of(result);
      return ids.size() > 1 && llvm::is_contained(ids, events.storage.of(param).front());
    });
  }

  std::optional<Refusal> stepResize(ResizeStorageOp resize, bool direct, const Event &event, Plan &plan) {
    if (!direct)
      return Refusal{resize, "the resize is of a view, or nested in another operation"};
    int64_t bytes = resize.getBytes();
    // Uneven sharding pads the storage, so it may be larger than the parameter.
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

  /// The copied value must not be written while the uses read it.
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
  /// Returns true if the storage is resized. Otherwise it is full from the beginning.
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
        remarkMissed(resize, kPassName, "expected a tensor argument of the function as the parameter");
      else
        params.insert(param);
    }
    for (FsdpCopyOp copy : block.getOps<FsdpCopyOp>())
      if (auto param = dyn_cast<BlockArgument>(copy.getDest());
          param && param.getOwner() == &block && isa<RankedTensorType>(param.getType()))
        params.insert(param);
    if (params.empty())
      return;
    // The storage map stays valid, because a rewrite replaces uses of its own parameter only.
    Events events(block);
    SmallVector<Plan> plans;
    for (BlockArgument param : params) {
      Plan plan;
      if (std::optional<Refusal> refusal = PatternReader(events, param).read(plan)) {
        if (refusal->isSilent)
          continue;
        remarkMissed(refusal->op, kPassName,
                     "argument #" + std::to_string(param.getArgNumber()) + ": " + refusal->reason);
        if (refusal->isMutation)
          refusal->op->emitWarning() << "writes argument #" << param.getArgNumber()
                                     << ", an unsharded parameter into which gathered values are copied; the next "
                                        "copy or resize discards the write, and the parameter's copies stay";
        continue;
      }
      int64_t bytes = getStaticBytes(param.getType()).value_or(0) * plan.windows.size();
      remarkPassed(plan.windows.front().copy, kPassName,
                   "argument #" + std::to_string(param.getArgNumber()) + ": its uses read the copied value", bytes);
      plans.push_back(std::move(plan));
    }
    for (const Plan &plan : plans)
      carryOut(plan);
  }
};

} // namespace
