//===- Dependence.cpp - Dependences between the operations of a block -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Two walks. The first walk collects, per operation, the storage that it reads and writes, and whether it is a barrier.
// The second walk visits the block in order. For each storage class that is written it keeps the last writer and the
// readers since then. Every hazard is an edge to one of these.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Dependence.h"
#include "CommSched/Analysis/CertainWait.h"
#include "CommSched/Analysis/Streams.h"
#include "CommSched/Dialect/Comm/Effects.h"
#include "CommSched/Scheduling/Problem/KeepTogether.h"
#include "Communication.h"
#include "Storage/StorageSources.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

BlockNodes::BlockNodes(Block &block) : block(&block) {
  for (Operation &op : block) {
    if (&op == &block.back() && op.hasTrait<OpTrait::IsTerminator>())
      break;
    ids.try_emplace(&op, size());
    ops.push_back(&op);
  }
}

NodeId BlockNodes::find(Operation *op) const {
  if (op && op->getBlock() != block)
    op = block->findAncestorOpInBlock(*op);
  auto it = ids.find(op);
  return it == ids.end() ? kNone : it->second;
}

namespace {

/// Accesses of an operation to shared memory.
struct Access {
  /// A storage class, or (with numbers after these) a resource, or memory of unknown origin.
  int32_t place;
  bool write;
};

/// The part of an arena that holds a value, if comm-plan-buffers has put it there; null otherwise. O(views).
Operation *findPlannedView(Value value) {
  while (auto result = dyn_cast<OpResult>(value)) {
    Operation *op = result.getOwner();
    if (op->hasAttr(kPlannedAttrName))
      return op;
    auto wait = dyn_cast<WaitOp>(op);
    auto start = wait ? wait.getFuture().getDefiningOp<CollectiveOpInterface>() : CollectiveOpInterface();
    if (start && result.getResultNumber() < start.getCollectiveDests().size())
      value = start.getCollectiveDests()[result.getResultNumber()];
    else if (Value source = getAliasedValue(result))
      value = source;
    else
      return nullptr;
  }
  return nullptr;
}

/// The accesses of all nodes.
class AccessCollector {
public:
  /// `splitsArenas`: the buffers of a plan are different places, although they share an arena.
  AccessCollector(const BlockNodes &nodes, const StorageMap &storage, bool splitsArenas = false)
      : nodes(nodes), storage(storage), hasStreams(usesStreams(nodes.getBlock())), splitsArenas(splitsArenas) {
    accesses.resize(nodes.size());
    barrier.assign(nodes.size(), false);
    for (NodeId id = 0; id < nodes.size(); ++id)
      nodes[id]->walk([&](Operation *op) { visit(id, op); });
    if (!reached.empty())
      for (auto [tensor, storageId] : storage.tensorsFromElsewhere())
        if (commsched::detail::isGivenAway(tensor))
          reached.push_back(placeOf(storageId));
    keepWrittenPlaces();
  }

  /// Indexed by node, without duplicates: the accessed places that some operation of the block writes.
  std::vector<llvm::SmallVector<Access, 2>> accesses;
  /// Indexed by node: unknown effects. No operation with effects and no collective may cross it.
  std::vector<bool> barrier;
  /// The operations that come before `op` because they allocate storage of which it writes a part.
  ArrayRef<Operation *> allocatorsOfPlaces(Operation *op) const { return storage.allocatorsOfPlaces(op); }
  int32_t numPlaces() const { return static_cast<int32_t>(storage.classes().size() + 1 + resources.size()); }
  /// The places that an operation with unknown effects may write.
  ArrayRef<int32_t> placesOfUnknownEffects() const { return reached; }

private:
  int32_t placeOf(StorageId id) const {
    return storage.classes()[id].unknownOrigin ? static_cast<int32_t>(storage.classes().size()) : id;
  }

  /// Memory of unknown origin.
  int32_t placeOfUnknown() const { return static_cast<int32_t>(storage.classes().size()); }

  /// The place of a resource or of a part of an arena.
  int32_t placeOf(const void *key) {
    auto [it, inserted] = resources.try_emplace(key, resources.size());
    return static_cast<int32_t>(storage.classes().size() + 1 + it->second);
  }

  void add(NodeId id, Value value, bool write) {
    if (Operation *view = splitsArenas ? findPlannedView(value) : nullptr)
      return accesses[id].push_back({placeOf(view), write});
    for (StorageId storageId : storage.of(value))
      addClass(id, storageId, write);
  }

  /// An access to what may be other storage is an access to that, too.
  void addClass(NodeId id, StorageId storageId, bool write) {
    accesses[id].push_back({placeOf(storageId), write});
    for (StorageId other : storage.classes()[storageId].mayBe)
      accesses[id].push_back({placeOf(other), write});
  }

  void visit(NodeId id, Operation *op) {
    if (auto wait = dyn_cast<WaitOp>(op))
      return visitWait(id, wait);
    for (OpOperand &operand : op->getOpOperands())
      if (!isa<BaseMemRefType>(operand.get().getType()))
        add(id, operand.get(), mutatesOperand(operand));
    if (auto start = dyn_cast<CollectiveOpInterface>(op))
      return visitStart(id, start);
    // Without streams, an anchor keeps its place among all that has effects. With streams, it has edges of its own.
    if (isa<RecordOp, AwaitEventOp>(op))
      barrier[id] = !hasStreams;
    visitEffects(id, op);
  }

  /// A start reads its inputs and writes its destinations. A comm.barrier orders all accesses to memory.
  void visitStart(NodeId id, CollectiveOpInterface start) {
    for (Value input : start.getCollectiveInputs())
      add(id, input, false);
    for (Value dest : start.getCollectiveDests())
      add(id, dest, true);
    if (start.getCollectiveKind() == CollectiveKind::Barrier)
      barrier[id] = true;
  }

  /// Until the first certain wait, the inputs are read and the destinations written. A later wait only reads. If the
  /// start is not known, any buffer that the wait keeps may be a destination.
  void visitWait(NodeId id, WaitOp wait) {
    Value future = wait.getFuture();
    auto start = dyn_cast_if_present<CollectiveOpInterface>(storage.startOf(future));
    auto completed = completedAt.find(future);
    bool isFirst = completed == completedAt.end() || completed->second == id;
    if (isFirst && llvm::is_contained(findCertainWaits(future, nodes.getBlock()), nodes[id]))
      completedAt[future] = id;
    bool writes = isFirst && (!start || !start.getCollectiveDests().empty());
    ArrayRef<StorageId> written = storage.writtenBy(future);
    for (StorageId inFlight : storage.of(future))
      addClass(id, inFlight, writes && llvm::is_contained(written, inFlight));
    if (splitsArenas)
      splitAccesses(id, wait, writes);
    for (Value buffer : wait.getInflight())
      add(id, buffer, isFirst && !start);
  }

  /// Replaces the accesses of a wait to arenas by accesses to the parts that its values are in.
  void splitAccesses(NodeId id, WaitOp wait, bool writes) {
    llvm::SmallVector<std::pair<Value, bool>, 4> values;
    for (Value result : wait->getResults())
      values.push_back({result, writes});
    for (Value buffer : wait.getInflight())
      values.push_back({buffer, false});
    for (auto [value, write] : values) {
      Operation *view = findPlannedView(value);
      if (!view)
        continue;
      for (StorageId arena : storage.of(value))
        llvm::erase_if(accesses[id], [&, place = placeOf(arena)](Access access) { return access.place == place; });
      accesses[id].push_back({placeOf(view), write});
    }
  }

  /// An operation with unknown effects may write its operands, and keep them for another such operation that writes
  /// them later. It may write memory of unknown origin, too. As a barrier it has its order with every access of these
  /// places.
  void visitUnknown(NodeId id, Operation *op) {
    barrier[id] = true;
    reached.push_back(placeOfUnknown());
    for (Value operand : op->getOperands()) {
      if (Operation *view = splitsArenas ? findPlannedView(operand) : nullptr)
        reached.push_back(placeOf(view));
      for (StorageId storageId : storage.of(operand)) {
        reached.push_back(placeOf(storageId));
        for (StorageId other : storage.classes()[storageId].mayBe)
          reached.push_back(placeOf(other));
      }
    }
  }

  void visitEffects(NodeId id, Operation *op) {
    auto effectOp = dyn_cast<MemoryEffectOpInterface>(op);
    if (!effectOp) {
      if (hasUndeclaredEffects(op))
        visitUnknown(id, op);
      return;
    }
    llvm::SmallVector<MemoryEffects::EffectInstance, 4> effects;
    effectOp.getEffects(effects);
    for (const MemoryEffects::EffectInstance &effect : effects) {
      if (isa<MemoryEffects::Allocate>(effect.getEffect()))
        continue;
      bool write = !isa<MemoryEffects::Read>(effect.getEffect());
      SideEffects::Resource *resource = effect.getResource();
      if (Value value = effect.getValue(); value && !storage.of(value).empty())
        add(id, value, write);
      else if (isa<SideEffects::DefaultResource>(resource))
        barrier[id] = true;
      else if (!isa<InFlightResource, ParameterStorageResource, SideEffects::AutomaticAllocationScopeResource>(
                   resource))
        accesses[id].push_back({placeOf(resource->getResourceID().getAsOpaquePointer()), write});
    }
  }

  /// Drops accesses to places that no operation writes, because they imply no order.
  void keepWrittenPlaces() {
    std::vector<bool> written(numPlaces(), false);
    for (const auto &list : accesses)
      for (Access access : list)
        if (access.write)
          written[access.place] = true;
    for (int32_t place : reached)
      written[place] = true;
    for (auto &list : accesses) {
      llvm::erase_if(list, [&](Access access) { return !written[access.place]; });
      // A write implies every edge of a read of the same place.
      llvm::sort(list, [](Access a, Access b) { return std::tie(a.place, b.write) < std::tie(b.place, a.write); });
      list.erase(llvm::unique(list, [](Access a, Access b) { return a.place == b.place; }), list.end());
    }
  }

  const BlockNodes &nodes;
  const StorageMap &storage;
  bool hasStreams, splitsArenas;
  llvm::DenseMap<const void *, size_t> resources;
  /// Indexed by future: the node after which it is certainly complete.
  llvm::DenseMap<Value, NodeId> completedAt;
  /// The places that an operation with unknown effects may write.
  std::vector<int32_t> reached;
};

/// Visits the block in order and emits the predecessors of each node.
class EdgeBuilder {
public:
  EdgeBuilder(const BlockNodes &nodes, const AccessCollector &collected, CollectiveOrder order,
              bool besideMessages = false)
      : nodes(nodes), collected(collected), order(order), places(collected.numPlaces()), hasMessages(besideMessages) {
    if (usesStreams(nodes.getBlock()))
      streams.emplace();
  }

  /// Only what concerns data: uses, accesses and unknown effects.
  IndexLists runHazards() {
    IndexLists result;
    for (NodeId id = 0; id < nodes.size(); ++id) {
      preds.clear();
      addData(id, Communication(nodes[id]));
      finishRow(result);
    }
    return result;
  }

  IndexLists run() {
    IndexLists result;
    std::vector<Communication> communications;
    for (NodeId id = 0; id < nodes.size(); ++id)
      communications.emplace_back(nodes[id]);
    hasMessages |= llvm::any_of(communications, [](const Communication &inside) { return inside.pointToPoint; });
    for (NodeId id = 0; id < nodes.size(); ++id) {
      preds.clear();
      const Communication &communication = communications[id];
      addData(id, communication);
      addStreamOrder(id);
      addCollectiveOrder(id, communication);
      if (nodes[id]->hasAttr(CommDialect::kPinnedAttrName))
        chain(lastPinned, id, DependenceReason::Pinned);
      finishRow(result);
    }
    return result;
  }

  /// For each edge that was returned, row by row.
  std::vector<DependenceReason> reasons;

private:
  /// The nodes of one stream since its last anchor or wait.
  struct StreamTail {
    NodeId lastAnchor = kNone;
    std::vector<NodeId> since;
  };

  void addData(NodeId id, const Communication &communication) {
    addUses(id);
    addHazards(id);
    addBarriers(id, communication);
  }

  void finishRow(IndexLists &result) {
    llvm::sort(preds);
    preds.erase(llvm::unique(preds, [](const Edge &a, const Edge &b) { return a.first == b.first; }), preds.end());
    row.clear();
    for (auto [pred, reason] : preds) {
      row.push_back(pred);
      reasons.push_back(reason);
    }
    result.append(row);
  }

  /// What an event covers, and what comes after an event or a collective, is a matter of the places of anchors and
  /// waits on their stream. So no operation of a stream passes them; between them, only data decides.
  void addStreamOrder(NodeId id) {
    StreamUse use = streams ? getStreamUse(nodes[id]) : StreamUse::None;
    if (use == StreamUse::None)
      return;
    StreamTail &tail = (*streams)[getStreamNumber(nodes[id])];
    addPred(tail.lastAnchor, DependenceReason::Stream);
    if (use == StreamUse::Work || use == StreamUse::Start) {
      tail.since.push_back(id);
      return;
    }
    for (NodeId other : tail.since)
      addPred(other, DependenceReason::Stream);
    tail.since.clear();
    tail.lastAnchor = id;
  }

  struct Place {
    NodeId lastWriter = kNone;
    llvm::SmallVector<NodeId, 2> readers;
  };

  void addPred(NodeId pred, DependenceReason reason) {
    if (pred != kNone)
      preds.push_back({pred, reason});
  }

  void chain(NodeId &last, NodeId id, DependenceReason reason) {
    addPred(last, reason);
    last = id;
  }

  void addUses(NodeId id) {
    nodes[id]->walk([&](Operation *op) {
      for (Value operand : op->getOperands())
        if (NodeId def = nodes.find(operand.getDefiningOp()); def != id)
          addPred(def, DependenceReason::Data);
      for (Operation *allocator : collected.allocatorsOfPlaces(op))
        addPred(nodes.find(allocator), DependenceReason::Data);
    });
  }

  void addHazards(NodeId id) {
    for (Access access : collected.accesses[id]) {
      Place &place = places[access.place];
      if (!access.write || place.readers.empty())
        addPred(place.lastWriter, DependenceReason::Memory);
      if (!access.write) {
        place.readers.push_back(id);
        continue;
      }
      for (NodeId reader : place.readers)
        addPred(reader, DependenceReason::Memory);
      place.readers.clear();
      place.lastWriter = id;
    }
  }

  void addBarriers(NodeId id, const Communication &communication) {
    bool barrier = collected.barrier[id];
    if (!barrier && collected.accesses[id].empty() && !communication.any())
      return;
    addPred(lastBarrier, DependenceReason::Effects);
    if (!barrier) {
      sinceBarrier.push_back(id);
      return;
    }
    for (NodeId other : sinceBarrier)
      addPred(other, DependenceReason::Effects);
    sinceBarrier.clear();
    lastBarrier = id;
  }

  void addCollectiveOrder(NodeId id, const Communication &communication) {
    // A send may complete only when its message is received. A rank that waits for its own send before it posts a
    // receive would deadlock with ranks that do the same.
    if (communication.waitsForMessage)
      addPred(lastPointToPoint, DependenceReason::Messages);
    if (hasMessages && !communication.awaited.empty())
      addStarts();
    if (communication.groups.empty())
      return;
    if (communication.pointToPoint)
      chain(lastPointToPoint, id, DependenceReason::Messages);
    if (order == CollectiveOrder::Program)
      chain(lastCollective, id, DependenceReason::Collectives);
    if (order == CollectiveOrder::Group || hasMessages)
      for (Attribute group : communication.groups)
        chain(lastOfGroup.try_emplace(group, kNone).first->second, id,
              order == CollectiveOrder::Group ? DependenceReason::Collectives : DependenceReason::Messages);
  }

  /// Beside messages, a wait stays behind all starts that are in front of it. Without messages all ranks come to a
  /// start at the same place, so that the first wait in the new order that blocks has all its starts behind it. But the
  /// other side of a message is at another place, or at none, and ranks that came to it may be kept from it by a start
  /// that now comes after a wait: one rank waits for its message, the other one for that start. If no start gets behind
  /// a wait, whoever waits for whom in the new order did so in the given one, which ends. Starts of one group are in a
  /// chain.
  void addStarts() {
    addPred(lastPointToPoint, DependenceReason::Messages);
    for (auto [group, last] : lastOfGroup)
      addPred(last, DependenceReason::Messages);
  }

  const BlockNodes &nodes;
  const AccessCollector &collected;
  CollectiveOrder order;
  std::vector<Place> places;
  using Edge = std::pair<NodeId, DependenceReason>;
  std::vector<Edge> preds;
  std::vector<NodeId> row, sinceBarrier;
  NodeId lastBarrier = kNone, lastPointToPoint = kNone, lastCollective = kNone, lastPinned = kNone;
  llvm::DenseMap<Attribute, NodeId> lastOfGroup;
  /// Whether the block, a region in it, or what is around it sends or receives.
  bool hasMessages;
  /// By number; none if everything is on stream 0.
  std::optional<llvm::DenseMap<int64_t, StreamTail>> streams;
};

} // namespace

bool commsched::sendsOrReceives(Operation *root) {
  auto isMessage = [](CollectiveOpInterface start) {
    return start.isPointToPoint() ? WalkResult::interrupt() : WalkResult::advance();
  };
  return root->walk(isMessage).wasInterrupted();
}

IndexLists commsched::computeDependences(const BlockNodes &nodes, const StorageMap &storage, CollectiveOrder order,
                                         bool besideMessages) {
  IndexLists edges = EdgeBuilder(nodes, AccessCollector(nodes, storage), order, besideMessages).run();
  BlockUnits units = findUnits(nodes);
  return closeUnits(edges, units.of, units.turns);
}

llvm::StringRef commsched::stringify(DependenceReason reason) {
  constexpr llvm::StringRef names[] = {"data",     "memory",      "effects", "stream",
                                       "messages", "collectives", "pinned",  "unit"};
  return names[static_cast<size_t>(reason)];
}

std::vector<DependenceReason> commsched::explainDependences(const BlockNodes &nodes, const StorageMap &storage,
                                                            CollectiveOrder order, const IndexLists &edges,
                                                            bool besideMessages) {
  AccessCollector collected(nodes, storage);
  EdgeBuilder builder(nodes, collected, order, besideMessages);
  IndexLists all = builder.run();
  std::vector<DependenceReason> result;
  auto reason = builder.reasons.begin();
  for (NodeId id = 0; id < nodes.size(); ++id) {
    llvm::ArrayRef<NodeId> known = all[id];
    for (NodeId pred : edges[id]) {
      auto at = llvm::lower_bound(known, pred);
      // What is not known here was added by closeUnits().
      bool isKnown = at != known.end() && *at == pred;
      result.push_back(isKnown ? reason[at - known.begin()] : DependenceReason::Unit);
    }
    reason += known.size();
  }
  return result;
}

IndexLists commsched::computeWriters(const BlockNodes &nodes, const StorageMap &storage) {
  AccessCollector collected(nodes, storage);
  llvm::SmallVector<int32_t> reached(collected.placesOfUnknownEffects());
  llvm::sort(reached);
  reached.erase(llvm::unique(reached), reached.end());
  IndexLists written;
  for (NodeId id = 0; id < nodes.size(); ++id) {
    llvm::SmallVector<int32_t> places;
    for (Access access : collected.accesses[id])
      if (access.write)
        places.push_back(access.place);
    if (collected.barrier[id])
      llvm::append_range(places, reached);
    llvm::sort(places);
    places.erase(llvm::unique(places), places.end());
    written.append(places);
  }
  IndexLists ofPlaces = written.transposed(collected.numPlaces()), result;
  const auto numClasses = static_cast<int32_t>(storage.classes().size());
  for (int32_t id = 0; id < numClasses; ++id)
    result.append(ofPlaces[storage.classes()[id].unknownOrigin ? numClasses : id]);
  return result;
}

IndexLists commsched::computeHazards(const BlockNodes &nodes, const StorageMap &storage) {
  return EdgeBuilder(nodes, AccessCollector(nodes, storage, /*splitsArenas=*/true), CollectiveOrder::Free).runHazards();
}
