//===- LoopStages.cpp - Collectives that may run in another iteration -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The candidates come from the dependences of the body: everything before a gather, everything behind a reduction. What
// other iterations access is checked by the second derivation of accesses (AccessOrder.h): memory that is there when an
// iteration begins is the same in all iterations, so all accesses to it stay in one stage if one of them writes.
//
//===------------------------------------------------------------------------------------------===//

#include "LoopStages.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Dialect/Comm/Effects.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

StringRef commsched::stringify(MovedCollectives moved) {
  switch (moved) {
  case MovedCollectives::Ahead:
    return "collectives ahead";
  case MovedCollectives::Behind:
    return "collectives behind";
  case MovedCollectives::Both:
    return "collectives ahead and behind";
  }
  llvm_unreachable("no such choice");
}

/// Calls `visit` with each value that an operation or one of its regions reads from outside of the operation.
static void forEachRead(Operation *op, llvm::function_ref<void(Value)> visit) {
  for (Value operand : op->getOperands())
    visit(operand);
  visitUsedValuesDefinedAbove(op->getRegions(), [&](OpOperand *operand) { visit(operand->get()); });
}

LoopBody::LoopBody(scf::ForOp loop, const AccessOrder &order, bool besideMessages)
    : loop(loop), nodes(*loop.getBody()), accesses(order.derive(*loop.getBody())), besideMessages(besideMessages) {
  preds = computeDependences(nodes, StorageMap(*loop.getBody()), CollectiveOrder::Free, besideMessages);
  succs.resize(nodes.size());
  for (NodeId node = 0; node < nodes.size(); ++node)
    for (NodeId before : preds[node])
      succs[before].push_back(node);
  whyNone = findObstacle();
  if (!whyNone.empty())
    return;
  for (NodeId node = 0; node < nodes.size(); ++node) {
    if (!isa<CollectiveOpInterface>(nodes[node]))
      continue;
    if (std::optional<llvm::BitVector> moved = aheadOf(node))
      ahead.push_back({node, std::move(*moved)});
    else if (std::optional<llvm::BitVector> moved = behindOf(node))
      behind.push_back({node, std::move(*moved)});
  }
  if (ahead.empty() && behind.empty())
    whyNone = "each collective needs what the iteration before computes, and its result is read in the same iteration";
}

std::string LoopBody::findObstacle() const {
  for (Operation &op : *loop.getBody()) {
    bool isPlaced = op.hasAttr(CommDialect::kStreamAttrName) || op.hasAttr(CommDialect::kUnitAttrName) ||
                    op.hasAttr(CommDialect::kPinnedAttrName);
    if (isPlaced || isa<BarrierOp>(op))
      return "'" + nameOperation(&op) + "' has a fixed place";
    bool isUnknown = false;
    op.walk([&](Operation *inner) { isUnknown |= hasUndeclaredEffects(inner); });
    if (isUnknown)
      return "nobody says which memory '" + nameOperation(&op) + "' touches";
  }
  for (Value value : loop.getBody()->getTerminator()->getOperands())
    if (Operation *def = value.getDefiningOp(); !def || def->getBlock() != loop.getBody())
      return "the loop hands on a value that no operation of its body computes";
  return "";
}

/// The nodes that compute, in the iteration before, what an operation reads of it.
SmallVector<NodeId> LoopBody::carriedInto(NodeId node) const {
  SmallVector<NodeId> from;
  Operation *yield = loop.getBody()->getTerminator();
  forEachRead(nodes[node], [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument && argument.getOwner() == loop.getBody() && argument != loop.getInductionVar())
      from.push_back(nodes.find(yield->getOperand(argument.getArgNumber() - 1).getDefiningOp()));
  });
  return from;
}

/// Whether operations may run in another iteration: all but messages, calls, and what communicates inside.
bool LoopBody::isMovable(const llvm::BitVector &moved) const {
  for (int index : moved.set_bits()) {
    Operation *op = nodes[index];
    if (isa<SendOp, RecvOp, CallOpInterface>(op))
      return false;
    WalkResult inside = op->walk([&](Operation *inner) {
      bool communicates = isa<CollectiveOpInterface, WaitOp>(inner);
      return communicates && inner != op ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (inside.wasInterrupted())
      return false;
  }
  return true;
}

/// A collective, its waits, and all that they need.
std::optional<llvm::BitVector> LoopBody::aheadOf(NodeId start) const {
  llvm::BitVector moved(nodes.size());
  SmallVector<NodeId> stack = {start};
  for (Operation *user : nodes[start]->getUsers()) {
    if (!isa<WaitOp>(user) || user->getBlock() != loop.getBody())
      return std::nullopt;
    stack.push_back(nodes.find(user));
  }
  while (!stack.empty()) {
    NodeId node = stack.pop_back_val();
    if (moved.test(node))
      continue;
    moved.set(node);
    if (!carriedInto(node).empty())
      return std::nullopt;
    llvm::append_range(stack, preds[node]);
  }
  return isMovable(moved) ? std::optional(moved) : std::nullopt;
}

/// Whether a collective needs, of the iteration before, what some operations compute.
bool LoopBody::isCarriedInto(NodeId start, const llvm::BitVector &moved) const {
  llvm::BitVector seen(nodes.size());
  SmallVector<NodeId> stack = {start};
  while (!stack.empty()) {
    NodeId node = stack.pop_back_val();
    if (seen.test(node))
      continue;
    seen.set(node);
    if (llvm::any_of(carriedInto(node), [&](NodeId from) { return moved.test(from); }))
      return true;
    llvm::append_range(stack, preds[node]);
  }
  return false;
}

/// Whether operations read only carried values that they compute themselves, and nobody else reads these.
bool LoopBody::staysCarriedInside(const llvm::BitVector &moved) const {
  Operation *yield = loop.getBody()->getTerminator();
  for (auto [argument, value] : llvm::zip_equal(loop.getRegionIterArgs(), yield->getOperands())) {
    bool isComputed = moved.test(nodes.find(value.getDefiningOp()));
    for (Operation *user : argument.getUsers())
      if (NodeId node = nodes.find(user); node == kNone || moved.test(node) != isComputed)
        return false;
  }
  return true;
}

/// A collective and all that needs it. It stays if it needs its own result of the iteration before: it could not begin
/// earlier.
std::optional<llvm::BitVector> LoopBody::behindOf(NodeId start) const {
  llvm::BitVector moved(nodes.size());
  SmallVector<NodeId> stack = {start};
  while (!stack.empty()) {
    NodeId node = stack.pop_back_val();
    if (moved.test(node))
      continue;
    moved.set(node);
    llvm::append_range(stack, succs[node]);
  }
  bool moves = isMovable(moved) && staysCarriedInside(moved) && !isCarriedInto(start, moved);
  return moves ? std::optional(moved) : std::nullopt;
}

/// Indexed by node: the stage if these operations run early and late. None of them runs both.
static std::vector<unsigned> stagesOf(const llvm::BitVector &early, const llvm::BitVector &late) {
  unsigned middle = early.any() ? 1 : 0;
  std::vector<unsigned> result(early.size(), middle);
  for (int node : early.set_bits())
    result[node] = 0;
  for (int node : late.set_bits())
    result[node] = middle + 1;
  return result;
}

/// Moves groups as long as nothing stands against it: all of them at once, or else one after the other. Returns their
/// starts.
SmallVector<Operation *> LoopBody::addGroups(ArrayRef<Group> groups, bool areEarly, llvm::BitVector &early,
                                             llvm::BitVector &late) const {
  llvm::BitVector &to = areEarly ? early : late;
  auto add = [&](ArrayRef<Group> some) {
    llvm::BitVector before = to;
    for (const Group &group : some)
      to |= group.nodes;
    bool isAllowed = !early.anyCommon(late) && check(stagesOf(early, late)).empty();
    if (!isAllowed)
      to = before;
    return isAllowed;
  };
  bool allAtOnce = add(groups);
  SmallVector<Operation *> starts;
  for (const Group &group : groups)
    if (allAtOnce || add(group))
      starts.push_back(nodes[group.start]);
  return starts;
}

std::optional<LoopStages> LoopBody::stages(MovedCollectives moved) const {
  // A collective that runs behind would begin behind the waits for those that run ahead.
  if (besideMessages && moved == MovedCollectives::Both)
    return std::nullopt;
  LoopStages result;
  llvm::BitVector early(nodes.size()), late(nodes.size());
  if (moved != MovedCollectives::Behind)
    result.ahead = addGroups(ahead, /*areEarly=*/true, early, late);
  if (moved != MovedCollectives::Ahead)
    result.behind = addGroups(behind, /*areEarly=*/false, early, late);
  bool isMissing = moved == MovedCollectives::Both ? result.ahead.empty() || result.behind.empty()
                                                   : result.ahead.empty() && result.behind.empty();
  if (isMissing)
    return std::nullopt;
  result.of = stagesOf(early, late);
  result.last = unsigned(early.any()) + unsigned(late.any());
  return result;
}

/// Returns why operations cannot have these stages; empty if they can.
std::string LoopBody::check(ArrayRef<unsigned> stageOf) const {
  std::string wrong = checkUses(stageOf);
  return wrong.empty() ? checkAccesses(stageOf) : wrong;
}

/// A value is read in the stage in which it is computed or later, and a carried value in the very stage.
std::string LoopBody::checkUses(ArrayRef<unsigned> stageOf) const {
  Operation *yield = loop.getBody()->getTerminator();
  std::string wrong;
  for (NodeId node = 0; node < nodes.size() && wrong.empty(); ++node)
    forEachRead(nodes[node], [&](Value value) {
      auto argument = dyn_cast<BlockArgument>(value);
      bool isCarried = argument && argument.getOwner() == loop.getBody() && argument.getArgNumber() > 0;
      if (isCarried)
        value = yield->getOperand(argument.getArgNumber() - 1);
      Operation *def = value.getDefiningOp();
      NodeId from = def && def->getBlock() == loop.getBody() ? nodes.find(def) : kNone;
      if (from != kNone && (isCarried ? stageOf[from] != stageOf[node] : stageOf[from] > stageOf[node]))
        wrong = "'" + nameOperation(nodes[node]) + "' would read a value before it is computed";
    });
  return wrong;
}

/// Returns the two of some accesses that show that they are not all in one stage although one of them writes.
static std::optional<std::pair<NodeId, NodeId>> findSpread(ArrayRef<ObjectAccess> accesses,
                                                           ArrayRef<unsigned> stageOf) {
  const auto *writer = llvm::find_if(accesses, [](const ObjectAccess &access) { return access.writes; });
  if (writer == accesses.end())
    return std::nullopt;
  for (const ObjectAccess &other : accesses)
    if (stageOf[other.node] != stageOf[writer->node])
      return std::pair(writer->node, other.node);
  return std::nullopt;
}

/// Returns two accesses of one iteration, one of which writes, of which the later one is in an earlier stage.
static std::optional<std::pair<NodeId, NodeId>> findReversal(ArrayRef<ObjectAccess> accesses,
                                                             ArrayRef<unsigned> stageOf) {
  const ObjectAccess *latest = nullptr, *latestWriter = nullptr;
  for (const ObjectAccess &access : accesses) {
    unsigned stage = stageOf[access.node];
    for (const ObjectAccess *before : {access.writes ? latest : nullptr, latestWriter})
      if (before && stageOf[before->node] > stage)
        return std::pair(before->node, access.node);
    if (!latest || stage > stageOf[latest->node])
      latest = &access;
    if (access.writes && (!latestWriter || stage > stageOf[latestWriter->node]))
      latestWriter = &access;
  }
  return std::nullopt;
}

/// Memory that other iterations may access is accessed in one stage if an access writes: what is there when an
/// iteration begins, and all that iterations hand on together, since what one of them hands on may be any object that
/// the next one is given. Another object that the body makes is new in each iteration, so a later stage may read it.
std::string LoopBody::checkAccesses(ArrayRef<unsigned> stageOf) const {
  auto describe = [&](std::optional<std::pair<NodeId, NodeId>> wrong) -> std::string {
    return wrong ? "'" + nameOperation(nodes[wrong->first]) + "' and '" + nameOperation(nodes[wrong->second]) +
                       "' may access the same memory"
                 : "";
  };
  std::vector<ObjectAccess> carried, anywhere = accesses.anywhere;
  for (size_t object = 0; object < accesses.objects.size(); ++object) {
    ArrayRef<ObjectAccess> here = accesses.objects[object];
    if (accesses.exposed[object])
      llvm::append_range(anywhere, here);
    if (accesses.isCarried[object])
      llvm::append_range(carried, here);
    if (auto wrong = accesses.comesIn[object] ? findSpread(here, stageOf) : findReversal(here, stageOf))
      return describe(wrong);
  }
  if (auto wrong = accesses.anywhere.empty() ? std::nullopt : findSpread(anywhere, stageOf))
    return describe(wrong);
  return describe(findSpread(carried, stageOf));
}
