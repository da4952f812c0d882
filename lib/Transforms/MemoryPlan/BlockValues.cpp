//===- BlockValues.cpp - Values of a block that can be made again -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "BlockValues.h"
#include "CommSched/Dialect/Comm/Effects.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

//===-----------------------------------------------------------------------------------------===//
// Operations
//===-----------------------------------------------------------------------------------------===//

/// Whether an operation does no more than to read tensors and to make new ones.
static bool onlyMakesValues(Operation *op) {
  if (hasUndeclaredEffects(op))
    return false;
  auto effectOp = dyn_cast<MemoryEffectOpInterface>(op);
  if (!effectOp)
    return isMemoryEffectFree(op);
  SmallVector<MemoryEffects::EffectInstance> effects;
  effectOp.getEffects(effects);
  return llvm::all_of(effects, [](const MemoryEffects::EffectInstance &effect) {
    return isa<MemoryEffects::Allocate>(effect.getEffect()) ||
           (isa<MemoryEffects::Read>(effect.getEffect()) && isa<ParameterStorageResource>(effect.getResource()));
  });
}

static bool isRepeatableStart(CollectiveOpInterface start) {
  return start.getCollectiveDests().empty() && !start.isPointToPoint() &&
         start.getCollectiveKind() != CollectiveKind::Barrier;
}

bool commsched::isRepeatable(Operation *op) {
  constexpr llvm::StringLiteral kPlaced[] = {CommDialect::kPinnedAttrName,    CommDialect::kUnitAttrName,
                                             CommDialect::kAfterUnitAttrName, CommDialect::kStreamAttrName,
                                             CommDialect::kHybridAttrName,    kInPlaceAttrName};
  if (op->getNumResults() == 0 || op->hasTrait<OpTrait::ConstantLike>() || isa<CallOpInterface>(op) ||
      llvm::any_of(kPlaced, [&](StringRef name) { return op->hasAttr(name); }))
    return false;
  auto isMemref = [](Type type) { return isa<BaseMemRefType>(type); };
  if (llvm::any_of(op->getOperandTypes(), isMemref) || llvm::any_of(op->getResultTypes(), isMemref))
    return false;
  if (auto start = dyn_cast<CollectiveOpInterface>(op))
    return isRepeatableStart(start);
  if (auto wait = dyn_cast<WaitOp>(op))
    return wait.getInflight().empty();
  // The body of a structured operation sees elements alone.
  if (op->getNumRegions() > 0 && !isa<DestinationStyleOpInterface>(op))
    return false;
  return onlyMakesValues(op);
}

SmallVector<Value> commsched::valuesReadBy(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  if (op->getNumRegions() > 0)
    op->walk([&](Operation *inner) {
      if (inner != op)
        llvm::copy_if(inner->getOperands(), std::back_inserter(values),
                      [&](Value value) { return value.getParentBlock() == op->getBlock(); });
    });
  return values;
}

//===-----------------------------------------------------------------------------------------===//
// Values
//===-----------------------------------------------------------------------------------------===//

BlockValues::BlockValues(Block &block)
    : blockNodes(block), storage(block), writers(computeWriters(blockNodes, storage)), membersOf(writers.size()),
      usersOf(writers.size()), isMixed(writers.size(), false), isCopiedDestination(writers.size(), false),
      ofClass(writers.size(), kNone) {
  collect();
  llvm::DenseMap<NodeId, int32_t> known;
  std::vector<RepeatableValue> found;
  for (auto [id, entry] : llvm::enumerate(storage.classes())) {
    if (!entry.def)
      continue;
    auto [it, isNew] = known.try_emplace(blockNodes.find(entry.def), static_cast<int32_t>(found.size()));
    if (isNew)
      found.emplace_back().base = it->first;
    RepeatableValue &value = found[it->second];
    value.classes.push_back(static_cast<StorageId>(id));
    llvm::append_range(value.members, membersOf[id]);
    llvm::append_range(value.users, usersOf[id]);
  }
  llvm::sort(found, [](const RepeatableValue &a, const RepeatableValue &b) { return a.base < b.base; });
  for (RepeatableValue &value : found) {
    for (auto *nodes : {&value.members, &value.users}) {
      llvm::sort(*nodes);
      nodes->erase(llvm::unique(*nodes), nodes->end());
    }
    if (!isPlain(value))
      continue;
    for (StorageId id : value.classes)
      ofClass[id] = static_cast<int32_t>(list.size());
    list.push_back(std::move(value));
  }
}

void BlockValues::collect() {
  auto add = [](llvm::SmallVector<NodeId, 4> &nodes, NodeId id) {
    if (nodes.empty() || nodes.back() != id)
      nodes.push_back(id);
  };
  for (NodeId id = 0; id < blockNodes.size(); ++id)
    blockNodes[id]->walk([&](Operation *op) {
      const bool isNested = op != blockNodes[id];
      for (Value operand : op->getOperands())
        for (StorageId storageId : storage.of(operand)) {
          add(usersOf[storageId], id);
          if (isa<FutureType, BaseMemRefType>(operand.getType()) && (isNested || !isa<WaitOp>(op)))
            isMixed[storageId] = true;
        }
      for (Value result : op->getResults()) {
        SmallVector<StorageId, 2> ids = madeIn(result);
        for (StorageId storageId : ids) {
          add(usersOf[storageId], id);
          add(membersOf[storageId], id);
          bool isOneOfSeveral = ids.size() > 1 && !isa<CollectiveOpInterface>(op);
          if (isNested || isOneOfSeveral || isa<BaseMemRefType>(result.getType()))
            isMixed[storageId] = true;
        }
      }
      noteDestinations(op);
    });
}

/// The storage that a result is in. What a start reads is in flight with its future, but is none of that.
SmallVector<StorageId, 2> BlockValues::madeIn(Value result) const {
  auto start = result.getDefiningOp<CollectiveOpInterface>();
  if (!start)
    return SmallVector<StorageId, 2>(storage.of(result));
  SmallVector<StorageId, 2> ids;
  for (unsigned index = 0, count = cast<FutureType>(result.getType()).getTypes().size(); index < count; ++index)
    llvm::append_range(ids, storage.ofFutureValue(result, index));
  return ids;
}

/// A destination becomes the storage of the result if it has one use. A further reader would change that.
void BlockValues::noteDestinations(Operation *op) {
  auto destinationOp = dyn_cast<DestinationStyleOpInterface>(op);
  if (!destinationOp)
    return;
  for (OpOperand &dest : destinationOp.getDpsInitsMutable())
    for (StorageId id : isa<TensorType>(dest.get().getType()) ? storage.of(dest.get()) : ArrayRef<StorageId>())
      if (!llvm::is_contained(storage.of(destinationOp.getTiedOpResult(&dest)), id) && storage.classes()[id].def)
        isCopiedDestination[id] = true;
}

bool BlockValues::isPlain(const RepeatableValue &value) const {
  if (!isRepeatable(blockNodes[value.base]) || value.members.front() != value.base)
    return false;
  for (StorageId id : value.classes) {
    const StorageClass &entry = storage.classes()[id];
    if (entry.liveOut || entry.donated || entry.inner || entry.unknownOrigin || isMixed[id] || isCopiedDestination[id])
      return false;
    // What fills the storage has its result in it, and is repeated with it.
    for (NodeId writer : writers[id])
      if (!llvm::binary_search(value.members, writer) || !isRepeatable(blockNodes[writer]))
        return false;
  }
  // The results of one operation are of one value, and a wait is part of its start.
  return llvm::all_of(value.members, [&](NodeId member) {
    return llvm::all_of(blockNodes[member]->getResults(), [&](Value result) {
      return llvm::all_of(madeIn(result), [&](StorageId id) { return llvm::is_contained(value.classes, id); });
    });
  });
}

int32_t BlockValues::indexOf(Value value) const {
  SmallVector<StorageId, 2> ids = madeIn(value);
  return ids.empty() ? kNone : ofClass[ids.front()];
}

int64_t BlockValues::versionOf(Value value, NodeId at) const {
  int64_t count = 0;
  for (StorageId id : storage.of(value))
    count += llvm::lower_bound(writers[id], at) - writers[id].begin();
  return count;
}

bool BlockValues::canReadAgain(Value value, NodeId from, NodeId to) const {
  if (isa<BaseMemRefType, FutureType>(value.getType()))
    return false;
  return versionOf(value, from) == versionOf(value, to) && llvm::none_of(storage.of(value), [&](StorageId id) {
           const StorageClass &entry = storage.classes()[id];
           return entry.unknownOrigin || isCopiedDestination[id] ||
                  (entry.def && !writers[id].empty() && indexOf(value) == kNone);
         });
}
