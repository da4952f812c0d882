//===- AccessOrder.cpp - The order of accesses, derived a second time -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The accesses of an operation are those of all operations in its regions. A start reads its inputs and writes its
// destinations, and so does the wait that completes it, so nothing that conflicts with them passes either one. What a
// value may be, MemoryFlow says.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/AccessOrder.h"
#include "CommSched/Dialect/Comm/Effects.h"
#include "MemoryFlow.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

//===-----------------------------------------------------------------------------------------===//
// Waits that complete nothing
//===-----------------------------------------------------------------------------------------===//

namespace {

/// Finds waits for collectives that another wait has certainly completed. They only read.
class RepeatedWaits {
public:
  explicit RepeatedWaits(Block &block) {
    llvm::MapVector<Value, SmallVector<Operation *, 2>> waits;
    block.walk<WalkOrder::PreOrder>([&](WaitOp wait) { waits[wait.getFuture()].push_back(wait); });
    for (auto &[future, ops] : waits)
      visit(block, ops, isCompleteBefore(block, future));
  }

  bool contains(Operation *wait) const { return repeated.contains(wait); }

private:
  /// Whether an operation in a block around `block` has waited already.
  static bool isCompleteBefore(Block &block, Value future) {
    return llvm::any_of(future.getUsers(), [&](Operation *user) {
      if (!isa<WaitOp>(user) || user->getBlock() == &block)
        return false;
      Operation *around = user->getBlock()->findAncestorOpInBlock(*block.getParentOp());
      return around && user->isBeforeInBlock(around);
    });
  }

  /// `waits` are all in `block`, in order. Returns whether the block is left with the collective completed.
  bool visit(Block &block, ArrayRef<Operation *> waits, bool isComplete) {
    while (!waits.empty()) {
      Operation *op = block.findAncestorOpInBlock(*waits.front());
      ArrayRef<Operation *> inside =
          waits.take_while([&](Operation *wait) { return block.findAncestorOpInBlock(*wait) == op; });
      waits = waits.drop_front(inside.size());
      if (op != inside.front()) {
        isComplete |= visitRegions(op, inside, isComplete);
        continue;
      }
      if (isComplete)
        repeated.insert(op);
      isComplete = true;
    }
    return isComplete;
  }

  /// Returns whether every way through `op` waits.
  bool visitRegions(Operation *op, ArrayRef<Operation *> waits, bool isComplete) {
    llvm::SmallPtrSet<Region *, 4> waiting;
    for (Region &region : op->getRegions())
      for (Block &block : region) {
        SmallVector<Operation *> inside;
        llvm::copy_if(waits, std::back_inserter(inside),
                      [&](Operation *wait) { return block.findAncestorOpInBlock(*wait) != nullptr; });
        bool isEntry = block.isEntryBlock();
        if (visit(block, inside, isComplete && isEntry) && isEntry)
          waiting.insert(&region);
      }
    auto branch = dyn_cast<RegionBranchOpInterface>(op);
    if (!branch)
      return false;
    SmallVector<RegionSuccessor> successors;
    branch.getSuccessorRegions(RegionBranchPoint::parent(), successors);
    return !successors.empty() && llvm::all_of(successors, [&](RegionSuccessor &successor) {
      return successor.getSuccessor() && waiting.contains(successor.getSuccessor());
    });
  }

  llvm::DenseSet<Operation *> repeated;
};

//===-----------------------------------------------------------------------------------------===//
// Accesses
//===-----------------------------------------------------------------------------------------===//

/// Collects what some operations access.
class AccessSet {
public:
  /// `repeatedWaits` may be null: every wait may then be the first.
  AccessSet(const MemoryFlow &flow, CallSummaries &summaries, const RepeatedWaits *repeatedWaits)
      : flow(flow), summaries(summaries), repeatedWaits(repeatedWaits) {}

  /// Indexed by object: whether it is written.
  llvm::SmallMapVector<ObjectId, bool, 8> objects;
  llvm::SmallMapVector<TypeID, bool, 1> resources;
  AccessKind anywhere;

  /// Adds the accesses of an operation and of those in its regions.
  void addTree(Operation *op) {
    op->walk([&](Operation *inner) { visit(inner); });
  }

private:
  void visit(Operation *op) {
    if (auto start = dyn_cast<CollectiveOpInterface>(op))
      return visitStart(start);
    if (auto wait = dyn_cast<WaitOp>(op))
      return visitWait(wait);
    if (auto call = dyn_cast<CallOpInterface>(op))
      if (const CallSummaries::Summary *summary = summaries.of(op))
        return visitCall(call, *summary);
    bool isUnknown = hasUndeclaredEffects(op);
    auto storage = dyn_cast<StorageOpInterface>(op);
    for (OpOperand &operand : op->getOpOperands()) {
      if (isUnknown)
        addAll(operand.get(), /*writes=*/true);
      else if (storage)
        add(operand.get(), 0, storage.mutatesOperand(operand.getOperandNumber()));
      else if (isa<TensorType>(operand.get().getType()))
        add(operand.get(), 0, /*writes=*/false);
    }
    if (isUnknown)
      addAnywhere(/*writes=*/true);
    else
      visitEffects(op);
  }

  void visitCall(CallOpInterface call, const CallSummaries::Summary &summary) {
    for (auto [operand, argument] : llvm::zip(slotsOf(call.getArgOperands()), summary.arguments))
      if (argument.access.touches)
        add(operand.first, operand.second, argument.access.writes);
    if (summary.outside.touches)
      add(kOutside, summary.outside.writes);
    if (summary.anywhere.touches)
      addAnywhere(summary.anywhere.writes);
    for (auto [resource, writes] : summary.resources)
      resources[resource] |= writes;
  }

  void visitStart(CollectiveOpInterface start) {
    for (Value input : start.getCollectiveInputs())
      add(input, 0, /*writes=*/false);
    for (Value dest : start.getCollectiveDests())
      add(dest, 0, /*writes=*/true);
  }

  /// Nobody sees what a collective receives in memory of its own before a wait, so a wait counts as its reader.
  void visitWait(WaitOp wait) {
    Value future = wait.getFuture();
    unsigned values = numSlots(future.getType()) - 1;
    add(future, values, /*writes=*/false);
    bool completes = !repeatedWaits || !repeatedWaits->contains(wait);
    for (unsigned slot = 0; slot < values; ++slot)
      for (ObjectId object : flow.of(future, slot))
        add(object, completes && !flow.isReceived(object));
    for (Value buffer : wait.getInflight())
      add(buffer, 0, /*writes=*/false);
  }

  void visitEffects(Operation *op) {
    auto interface = dyn_cast<MemoryEffectOpInterface>(op);
    if (!interface)
      return;
    SmallVector<MemoryEffects::EffectInstance> effects;
    interface.getEffects(effects);
    for (const MemoryEffects::EffectInstance &effect : effects) {
      if (isa<MemoryEffects::Allocate>(effect.getEffect()))
        continue;
      bool writes = !isa<MemoryEffects::Read>(effect.getEffect());
      SideEffects::Resource *resource = effect.getResource();
      if (Value value = effect.getValue(); value && numSlots(value.getType()) > 0)
        addAll(value, writes);
      else if (isa<SideEffects::DefaultResource>(resource))
        addAnywhere(writes);
      // These stand for what starts, waits and StorageOpInterface say exactly.
      else if (!isa<InFlightResource, ParameterStorageResource, SideEffects::AutomaticAllocationScopeResource>(
                   resource))
        resources[resource->getResourceID()] |= writes;
    }
  }

  void add(ObjectId object, bool writes) {
    if (object == kAnyExposed)
      return addAnywhere(writes);
    objects[object] |= writes;
  }

  void add(Value value, unsigned slot, bool writes) {
    for (ObjectId object : flow.of(value, slot))
      add(object, writes);
  }

  void addAll(Value value, bool writes) {
    for (unsigned slot = 0; slot < numSlots(value.getType()); ++slot)
      add(value, slot, writes);
  }

  void addAnywhere(bool writes) {
    anywhere.touches = true;
    anywhere.writes |= writes;
  }

  const MemoryFlow &flow;
  CallSummaries &summaries;
  const RepeatedWaits *repeatedWaits;
};

/// What a function is given: tensors are memory of their own, and so are memrefs with `llvm.noalias`.
MemoryFlow::Objects ofArgument(MemoryFlow &flow, Value value) {
  bool isMemref = isa<BaseMemRefType>(value.getType());
  if (auto future = dyn_cast<FutureType>(value.getType()))
    isMemref = llvm::any_of(future.getTypes(), llvm::IsaPred<BaseMemRefType>);
  auto argument = dyn_cast<BlockArgument>(value);
  auto function =
      argument ? dyn_cast_if_present<FunctionOpInterface>(argument.getOwner()->getParentOp()) : FunctionOpInterface();
  bool isAlone = function && function.getArgAttr(argument.getArgNumber(), "llvm.noalias");
  return {isMemref && !isAlone ? kOutside : flow.addObject()};
}

} // namespace

AccessOrder::AccessOrder(Operation *function, CallSummaries &summaries)
    : summaries(summaries),
      flow(std::make_unique<MemoryFlow>(
          function, summaries, [](MemoryFlow &flow, Value value, unsigned) { return ofArgument(flow, value); })) {}

AccessOrder::~AccessOrder() = default;

/// Objects that come into a block are told apart from what the block makes, even by the same operation: a loop's body
/// is given what it made in an earlier iteration.
BlockAccesses AccessOrder::derive(Block &block) const {
  llvm::DenseMap<ObjectId, ObjectId> inBlock = {{kOutside, kOutside}, {kAnyExposed, kAnyExposed}};
  MemoryFlow local(block, summaries, [&](MemoryFlow &local, Value value, unsigned slot) {
    MemoryFlow::Objects objects;
    for (ObjectId object : flow->of(value, slot)) {
      auto [known, isNew] = inBlock.try_emplace(object);
      if (isNew)
        known->second = local.addObject(flow->isExposed(object), flow->isReceived(object));
      objects.push_back(known->second);
    }
    return objects;
  });
  RepeatedWaits repeatedWaits(block);
  BlockAccesses result;
  result.objects.resize(local.numObjects());
  // Resources are objects behind those of the flow.
  llvm::DenseMap<TypeID, size_t> resources;
  for (Operation &op : block) {
    if (&op == &block.back() && op.hasTrait<OpTrait::IsTerminator>())
      break;
    AccessSet accesses(local, summaries, &repeatedWaits);
    accesses.addTree(&op);
    int32_t node = result.numNodes++;
    bool waits = isa<WaitOp>(op);
    for (auto [object, writes] : accesses.objects)
      result.objects[object].push_back({node, writes, waits});
    for (auto [resource, writes] : accesses.resources) {
      auto [known, isNew] = resources.try_emplace(resource, result.objects.size());
      if (isNew)
        result.objects.emplace_back();
      result.objects[known->second].push_back({node, writes, waits});
    }
    if (accesses.anywhere.touches)
      result.anywhere.push_back({node, accesses.anywhere.writes, waits});
  }
  result.exposed.assign(result.objects.size(), false);
  for (ObjectId object = 0; object < local.numObjects(); ++object)
    result.exposed[object] = local.isExposed(object);
  result.comesIn.assign(result.objects.size(), false);
  for (auto [outside, object] : inBlock)
    result.comesIn[object] = true;
  for (auto [resource, object] : resources)
    result.comesIn[object] = true;
  SmallVector<Value> carried(block.getArguments());
  if (block.mightHaveTerminator())
    llvm::append_range(carried, block.getTerminator()->getOperands());
  result.isCarried.assign(result.objects.size(), false);
  for (auto [value, slot] : slotsOf(carried))
    for (ObjectId object : local.of(value, slot))
      result.isCarried[object] = true;
  return result;
}

//===-----------------------------------------------------------------------------------------===//
// Calls
//===-----------------------------------------------------------------------------------------===//

const CallSummaries::Summary *CallSummaries::of(Operation *call) {
  auto callee = dyn_cast_if_present<FunctionOpInterface>(cast<CallOpInterface>(call).resolveCallableInTable(&symbols));
  if (!callee || callee.isExternal())
    return nullptr;
  auto [known, isNew] = summaries.try_emplace(callee);
  if (!isNew)
    return known->second.get();
  // The map may grow meanwhile. A call of the function by itself finds null.
  auto summary = std::make_unique<Summary>(derive(callee));
  return (summaries[callee] = std::move(summary)).get();
}

CallSummaries::Summary CallSummaries::derive(Operation *function) {
  Summary summary;
  auto slots = slotsOf(cast<FunctionOpInterface>(function).getArguments());
  summary.arguments.resize(slots.size());
  llvm::DenseMap<std::pair<Value, unsigned>, int32_t> numberOf;
  for (auto [number, slot] : llvm::enumerate(slots))
    numberOf[slot] = static_cast<int32_t>(number);
  // Indexed by object: the slot of the arguments that it stands for.
  llvm::DenseMap<ObjectId, int32_t> argumentOf;
  MemoryFlow flow(function, *this, [&](MemoryFlow &flow, Value value, unsigned slot) {
    ObjectId object = flow.addObject();
    argumentOf[object] = numberOf.lookup({value, slot});
    return MemoryFlow::Objects{object};
  });
  for (auto [object, number] : argumentOf)
    summary.arguments[number].captured = flow.isExposed(object);
  AccessSet accesses(flow, *this, /*repeatedWaits=*/nullptr);
  for (Region &region : function->getRegions())
    for (Operation &op : region.getOps())
      accesses.addTree(&op);
  for (auto [object, writes] : accesses.objects)
    if (auto argument = argumentOf.find(object); argument != argumentOf.end())
      summary.arguments[argument->second].access = {true, writes};
    else if (object == kOutside)
      summary.outside = {true, writes};
  summary.anywhere = accesses.anywhere;
  summary.resources.assign(accesses.resources.begin(), accesses.resources.end());
  for (Block &block : function->getRegion(0)) {
    if (block.empty() || !block.back().hasTrait<OpTrait::ReturnLike>())
      continue;
    auto returned = slotsOf(block.back().getOperands());
    summary.results.resize(returned.size());
    for (auto [result, slot] : llvm::zip_equal(summary.results, returned))
      for (ObjectId object : flow.of(slot.first, slot.second))
        if (auto argument = argumentOf.find(object); argument != argumentOf.end())
          result.arguments.push_back(argument->second);
        else if (object > kAnyExposed)
          result.made.push_back(object);
        else
          (object == kOutside ? result.outside : result.unknown) = true;
  }
  return summary;
}

//===-----------------------------------------------------------------------------------------===//
// Orders
//===-----------------------------------------------------------------------------------------===//

namespace {

/// The latest of some accesses.
struct Latest {
  int32_t end = -1, node = -1;

  void take(int32_t other, AccessTime time) {
    if (time.end > end)
      *this = {time.end, other};
  }
};

/// The accesses so far, in the order of the block as given: all, and those that are no waits.
struct History {
  Latest write, any, otherWrite, other;

  void take(ObjectAccess access, AccessTime time) {
    any.take(access.node, time);
    if (access.writes)
      write.take(access.node, time);
    if (access.waits)
      return;
    other.take(access.node, time);
    if (access.writes)
      otherWrite.take(access.node, time);
  }
  /// The earlier node that is not over when a later access begins; -1 if there is none.
  int32_t findLate(ObjectAccess access, AccessTime time) const {
    const Latest &conflict = access.waits ? (access.writes ? other : otherWrite) : access.writes ? any : write;
    return conflict.end >= time.begin ? conflict.node : -1;
  }
};

} // namespace

/// Accesses by name of exposed objects against those that may reach all of them.
static std::optional<OrderViolation> findExposed(const BlockAccesses &accesses, ArrayRef<AccessTime> times) {
  // Indexed by node: whether it accesses an exposed object by name, whether it writes one, and whether it is a wait.
  std::vector<bool> touches(accesses.numNodes), writes(accesses.numNodes), waits(accesses.numNodes);
  for (auto [object, list] : llvm::enumerate(accesses.objects))
    for (ObjectAccess access : list)
      if (accesses.exposed[object]) {
        touches[access.node] = true;
        writes[access.node] = writes[access.node] || access.writes;
        waits[access.node] = access.waits;
      }
  History named, anywhere;
  auto next = accesses.anywhere.begin();
  for (int32_t node = 0; node < accesses.numNodes; ++node) {
    ObjectAccess access = {node, writes[node], waits[node]};
    if (touches[node])
      if (int32_t late = anywhere.findLate(access, times[node]); late >= 0)
        return OrderViolation{late, node};
    if (next != accesses.anywhere.end() && next->node == node) {
      for (const History *history : {&named, &anywhere})
        if (int32_t late = history->findLate(*next, times[node]); late >= 0)
          return OrderViolation{late, node};
      anywhere.take(*next++, times[node]);
    }
    if (touches[node])
      named.take(access, times[node]);
  }
  return std::nullopt;
}

std::optional<OrderViolation> commsched::findViolation(const BlockAccesses &accesses, ArrayRef<AccessTime> times) {
  for (const std::vector<ObjectAccess> &object : accesses.objects) {
    History history;
    for (ObjectAccess access : object) {
      if (int32_t late = history.findLate(access, times[access.node]); late >= 0)
        return OrderViolation{late, access.node};
      history.take(access, times[access.node]);
    }
  }
  return findExposed(accesses, times);
}
