//===- MessageList.cpp - The messages that a program is certain to start ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Visits the operations in the order in which they run. A future stands for the steps of its start, also through calls
// and the iterations of loops. A wait that may not run, or whose future is not known, is left out: then the ranks look
// for fewer cycles, and refuse no program that can run.
//
//===------------------------------------------------------------------------------------------===//

#include "MessageList.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/Streams.h"
#include "CommSched/Runtime/Runtime.h"
#include "FunctionLowering.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"
#include <map>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Limits of a list and of the operations that are visited for it: loops are expanded.
static constexpr size_t kMostSteps = 1 << 16;
static constexpr int64_t kMostVisits = 1 << 20;

namespace {
class MessageLister {
public:
  explicit MessageLister(SymbolTableCollection &symbols) : symbols(symbols) {}

  std::optional<std::vector<MessageStep>> run(func::FuncOp function) {
    if (!visit(function.getBody()))
      return std::nullopt;
    if (!knowsCollectives)
      dropCollectives();
    return std::move(steps);
  }

private:
  using Steps = SmallVector<int64_t, 1>;

  /// These return false if the list is not certain.
  bool visit(Region &region);
  bool visit(Operation *op);
  bool visitLoop(scf::ForOp loop);
  bool visitCall(func::CallOp call);
  bool visitUncertain(Operation *op);

  void visitStart(CollectiveOpInterface start);
  void visitWait(WaitOp wait);
  void addStep(CollectiveOpInterface start, Value data);
  void dropCollectives();
  const std::vector<Operation *> &communicating(Region &region);
  /// The steps of a future, to be given to another value.
  void bind(ValueRange values, ArrayRef<Steps> given);
  SmallVector<Steps> stepsOf(ValueRange values) const;

  SymbolTableCollection &symbols;
  std::vector<MessageStep> steps;
  llvm::DenseMap<Value, Steps> futures;
  std::map<Region *, std::vector<Operation *>> known; ///< the operations that communicate, per region
  llvm::SmallPtrSet<Operation *, 4> active;           ///< callees that are being visited
  int64_t batch = 0, visits = 0;
  bool knowsCollectives = true;
};
} // namespace

static bool isMessage(Operation *op) {
  auto start = dyn_cast<CollectiveOpInterface>(op);
  return start && start.isPointToPoint();
}

/// The operations of a region that start, wait or call, themselves or in their regions. A loop visits only these.
const std::vector<Operation *> &MessageLister::communicating(Region &region) {
  auto [entry, isNew] = known.try_emplace(&region);
  if (isNew)
    for (Operation &op : region.getOps())
      if (isa<CollectiveOpInterface, WaitOp, func::CallOp, func::CallIndirectOp>(op) ||
          llvm::any_of(op.getRegions(), [&](Region &inner) { return !communicating(inner).empty(); }))
        entry->second.push_back(&op);
  return entry->second;
}

SmallVector<MessageLister::Steps> MessageLister::stepsOf(ValueRange values) const {
  return llvm::map_to_vector(values, [&](Value value) { return futures.lookup(value); });
}

void MessageLister::bind(ValueRange values, ArrayRef<Steps> given) {
  for (auto [value, of] : llvm::zip(values, given))
    if (isa<FutureType>(value.getType()))
      futures[value] = of;
}

bool MessageLister::visit(Region &region) {
  const std::vector<Operation *> &operations = communicating(region);
  return operations.empty() ||
         (region.hasOneBlock() && llvm::all_of(operations, [&](Operation *op) { return visit(op); }));
}

bool MessageLister::visit(Operation *op) {
  if (++visits > kMostVisits || steps.size() > kMostSteps)
    return false;
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](CollectiveOpInterface start) { return visitStart(start), true; })
      .Case([&](WaitOp wait) { return visitWait(wait), true; })
      .Case([&](scf::ForOp loop) { return visitLoop(loop); })
      .Case([&](func::CallOp call) { return visitCall(call); })
      .Default([&](Operation *other) { return visitUncertain(other); });
}

/// The body may run or not, and more than once. Any function may be behind a pointer.
bool MessageLister::visitUncertain(Operation *op) {
  bool hasMessages = false;
  op->walk([&](Operation *inner) {
    hasMessages |= isMessage(inner) || isa<func::CallOp, func::CallIndirectOp>(inner);
    knowsCollectives &= !isa<CollectiveOpInterface>(inner);
  });
  return !hasMessages;
}

bool MessageLister::visitLoop(scf::ForOp loop) {
  std::optional<APInt> count = loop.getStaticTripCount();
  if (!count || count->getActiveBits() > 32)
    return visitUncertain(loop);
  SmallVector<Steps> carried = stepsOf(loop.getInitArgs());
  for (uint64_t iteration = 0, end = count->getZExtValue(); iteration < end; ++iteration) {
    bind(loop.getRegionIterArgs(), carried);
    if (++visits > kMostVisits || !visit(loop.getRegion()))
      return false;
    carried = stepsOf(loop.getBody()->getTerminator()->getOperands());
  }
  bind(loop.getResults(), carried);
  return true;
}

bool MessageLister::visitCall(func::CallOp call) {
  auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(call, call.getCalleeAttr());
  if (!callee || callee.isDeclaration())
    return true; // foreign code knows no futures
  if (!active.insert(callee).second)
    return false; // it calls itself
  bind(callee.getArguments(), stepsOf(call.getOperands()));
  if (!visit(callee.getBody()))
    return false;
  active.erase(callee);
  bind(call.getResults(), stepsOf(callee.getBody().front().getTerminator()->getOperands()));
  return true;
}

void MessageLister::addStep(CollectiveOpInterface start, Value data) {
  MessageStep step;
  step.kind = static_cast<int64_t>(start.getCollectiveKind());
  step.dtype = -1;
  step.count = -1;
  if (data) {
    auto type = cast<ShapedType>(data.getType());
    step.dtype = getRuntimeDtype(type.getElementType());
    step.count = type.hasStaticShape() ? type.getNumElements() : -1;
  }
  step.group = start.getGroupAttr().getValue().str();
  step.location = locationText(start.getLoc());
  if (auto send = dyn_cast<SendOp>(start.getOperation())) {
    step.peer = send.getPeer();
    step.tag = send.getTag();
  } else if (auto receive = dyn_cast<RecvOp>(start.getOperation())) {
    step.peer = receive.getPeer();
    step.tag = receive.getTag();
  }
  step.batch = batch;
  step.stream = getStreamNumber(start);
  futures[start.getCollectiveFuture()].push_back(static_cast<int64_t>(steps.size()));
  steps.push_back(std::move(step));
}

void MessageLister::visitStart(CollectiveOpInterface start) {
  futures[start.getCollectiveFuture()].clear();
  SmallVector<Value> data(start.getCollectiveInputs());
  if (data.empty())
    llvm::append_range(data, start.getCollectiveDests());
  // A list is one group of calls, as is what lies between two waits or collectives.
  bool isAlone = data.size() > 1 || !start.isPointToPoint();
  batch += isAlone;
  if (start.isPointToPoint())
    llvm::for_each(data, [&](Value value) { addStep(start, value); });
  else
    addStep(start, data.empty() ? Value() : data.front());
  batch += isAlone;
}

void MessageLister::visitWait(WaitOp wait) {
  ++batch;
  for (int64_t start : futures.lookup(wait.getFuture())) {
    MessageStep step;
    step.kind = COMMRT_AWAIT;
    step.stream = getStreamNumber(wait);
    step.awaited = start;
    steps.push_back(std::move(step));
  }
}

/// Leaves out the collectives and the waits for them.
void MessageLister::dropCollectives() {
  auto isKept = [](const MessageStep &step) { return step.kind == COMMRT_SEND || step.kind == COMMRT_RECV; };
  std::vector<int64_t> places(steps.size(), -1);
  std::vector<MessageStep> kept;
  for (auto [index, step] : llvm::enumerate(steps)) {
    if (step.kind == COMMRT_AWAIT && places[step.awaited] >= 0)
      step.awaited = places[step.awaited];
    else if (!isKept(step))
      continue;
    places[index] = static_cast<int64_t>(kept.size());
    kept.push_back(std::move(step));
  }
  steps = std::move(kept);
}

std::optional<std::vector<MessageStep>> commsched::listMessages(ModuleOp module) {
  if (!module.walk([](Operation *op) { return isMessage(op) ? WalkResult::interrupt() : WalkResult::advance(); })
           .wasInterrupted())
    return std::vector<MessageStep>();
  SymbolTableCollection symbols;
  std::vector<MessageStep> found;
  llvm::StringSet<> called;
  module.walk([&](func::CallOp call) { called.insert(call.getCallee()); });
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function.isPublic() || function.isDeclaration() || called.contains(function.getName()))
      continue;
    std::optional<std::vector<MessageStep>> steps = MessageLister(symbols).run(function);
    if (!steps)
      return std::nullopt;
    bool hasMessages = llvm::any_of(
        *steps, [](const MessageStep &step) { return step.kind == COMMRT_SEND || step.kind == COMMRT_RECV; });
    if (hasMessages && !found.empty())
      return std::nullopt; // one may send what another one receives
    if (hasMessages)
      found = std::move(*steps);
  }
  return found;
}
