//===- ProblemLoader.cpp - From a block of IR to a Problem ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Analysis/Casts.h"
#include "CommSched/Analysis/MeasuredKeys.h"
#include "CommSched/Analysis/Streams.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "Costs/NodeDemands.h"
#include "Dependence/Communication.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/Support/MathExtras.h"
#include <map>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

namespace {

/// Largest sums of times and of sizes that the loader makes: half of the limit of Problem::validate().
constexpr int64_t kLargestSum = INT64_MAX / 8;

int64_t addSaturating(int64_t a, int64_t b) {
  return llvm::SaturatingAdd<uint64_t>(a, b) > INT64_MAX ? INT64_MAX : a + b;
}

/// Fills one LoadedBlock.
class Loader {
public:
  Loader(LoadedBlock &result, const OperationCosts &costs, const LoadOptions &options)
      : result(result), problem(result.problem), nodes(result.nodes), costs(costs), options(options),
        storage(nodes.getBlock()), needs(costs) {}

  void run() {
    problem.laneNames.push_back("compute");
    result.laneGroups.push_back(nullptr);
    if (needs.any())
      problem.copyDemand = needs.ofCopy();
    problem.nodes.resize(nodes.size());
    for (auto [id, unit] : llvm::enumerate(findUnits(nodes).of)) {
      problem.nodes[id].unit = unit;
      loadNode(static_cast<NodeId>(id));
    }
    loadBuffers();
    if (usesStreams(nodes.getBlock())) {
      loadStreams();
    }
    if (!options.keepsIdleDemands && problem.startVariants.empty())
      problem.dropIdleDemands();
    loadArgumentsInFlight();
    limitSums();
    // Streams are chosen last, and times that are cut leave nothing to choose.
    if (problem.hasStreams() || result.cutValues > 0)
      dropVariants();
    problem.joinsAtEnd = isa<LoopLikeOpInterface>(nodes.getBlock().getParentOp());
    problem.preds = computeDependences(nodes, storage, options.order, options.besideMessages);
    if (options.bucketing)
      dropImpliedOfWaits();
    problem.finalize();
    problem.argumentBytes = storage.argumentBytes();
    // A donated argument that is returned unchanged is live throughout.
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id)
      if (problem.buffers[id].liveOut && problem.buffers[id].def == kNone && problem.users[id].empty())
        problem.argumentBytes = addSaturating(problem.argumentBytes, problem.buffers[id].bytes);
    result.unknownValues.assign(storage.unknownSizes().begin(), storage.unknownSizes().end());
    result.unknownSizes = static_cast<int64_t>(result.unknownValues.size());
    if (options.bucketing && result.cutValues == 0)
      loadMergeKeys();
  }

private:
  void loadNode(NodeId id);
  void loadStart(Node &node, CollectiveOpInterface start);
  void loadVariants(Node &node, CollectiveOpInterface start);
  int32_t nameOf(const CollectiveVariant &variant);
  void dropVariants();
  void loadWait(Node &node, WaitOp wait);
  void loadCompute(Node &node, Operation *op);
  void loadRegionWork(Node &node, const NestedWork &nested, const FutureOrigins &awaited);
  NestedWork workNestedIn(Operation *op);
  NestedWork workOfBlocks(Region &region);
  int32_t indexOf(const Demand &demand);
  LaneId laneOf(FlatSymbolRefAttr group);
  int32_t groupOf(Attribute group);

  void loadArgumentsInFlight();
  void limitSums();

  void loadStreams();
  void keepUntilKnown(const StreamAnalysis &streams);

  void loadBuffers();
  void collectTouches(NodeId id, SmallVectorImpl<BufferId> &touches);

  void dropImpliedOfWaits();
  void loadMergeKeys();
  int32_t mergeKeyOf(CollectiveOpInterface start, LaneId lane);
  void loadVariants(MergeKey &key, CollectiveOpInterface start, Ns largest);
  bool loadMember(CollectiveOpInterface start, MergeMember &member);
  BufferId bufferOf(Value value) const;

  LoadedBlock &result;
  Problem &problem;
  const BlockNodes &nodes;
  const OperationCosts &costs;
  const LoadOptions &options;
  StorageMap storage;
  NodeDemands needs;
  /// The demands of Problem::demands by value.
  std::map<std::pair<Shares, Shares>, int32_t> knownDemands;
  /// By OperationCosts::laneKeyOf(), and by group.
  llvm::DenseMap<Attribute, LaneId> lanes, lanesOfGroups;
  llvm::DenseMap<Attribute, int32_t> groupIds;
  /// Indexed by storage class: its buffer, or kNone.
  std::vector<BufferId> buffers;
  llvm::DenseMap<Attribute, int32_t> mergeKeys;
};

} // namespace

//===-----------------------------------------------------------------------------------------===//
// Nodes
//===-----------------------------------------------------------------------------------------===//

LaneId Loader::laneOf(FlatSymbolRefAttr group) {
  auto known = lanesOfGroups.find(group);
  if (known != lanesOfGroups.end())
    return known->second;
  std::string name = ("@" + group.getValue()).str();
  Attribute key = costs.laneKeyOf(group, nodes.getBlock().getParentOp());
  auto [it, inserted] = lanes.try_emplace(key, problem.numLanes());
  bool isForAll = costs.machine().lanes == LaneSharing::One;
  if (inserted) {
    problem.laneNames.push_back(isForAll ? "communication" : name);
    result.laneGroups.push_back(isForAll ? FlatSymbolRefAttr() : group);
  } else if (!isForAll) {
    problem.laneNames[it->second] += ", " + name;
    result.laneGroups[it->second] = nullptr;
  }
  return lanesOfGroups[group] = it->second;
}

int32_t Loader::groupOf(Attribute group) {
  auto [it, inserted] = groupIds.try_emplace(group, static_cast<int32_t>(result.groups.size()));
  if (inserted)
    result.groups.push_back(group);
  return it->second;
}

/// Equal demands are kept once.
int32_t Loader::indexOf(const Demand &demand) {
  if (!demand.any())
    return kNone;
  auto [known, isNew] = knownDemands.try_emplace({demand.share, demand.weight}, problem.demands.size());
  if (isNew)
    problem.demands.push_back(demand);
  return known->second;
}

void Loader::loadNode(NodeId id) {
  Operation *op = nodes[id];
  Node &node = problem.nodes[id];
  node.pinned = op->hasAttr(CommDialect::kPinnedAttrName);
  if (auto start = dyn_cast<CollectiveOpInterface>(op))
    loadStart(node, start);
  else if (auto wait = dyn_cast<WaitOp>(op))
    loadWait(node, wait);
  else
    loadCompute(node, op);
}

void Loader::loadStart(Node &node, CollectiveOpInterface start) {
  OpCost cost = costs.costOf(start);
  node.kind = NodeKind::Start;
  node.lane = laneOf(start.getGroupAttr());
  node.group = groupOf(start.getGroupAttr());
  node.collective = start.getCollectiveKind();
  node.bytes = getCollectiveBytes(start);
  node.cost = cost.time;
  node.workspace = cost.workspace;
  node.issue = costs.machine().issue;
  if (needs.any())
    node.demand = indexOf(needs.ofCollective(start, node.bytes, node.cost));
  result.unknownCosts += !cost.known();
  // A time that was given is that of one way, and a way that was chosen stays.
  bool isModelled = cost.source == OpCostSource::Collective && !start->hasAttr("one_shot");
  if (isModelled && cost.time > 0 && !start->hasAttr(CommDialect::kVariantAttrName))
    loadVariants(node, start);
}

int32_t Loader::nameOf(const CollectiveVariant &variant) {
  auto known = llvm::find(problem.variantNames, variant.name);
  if (known == problem.variantNames.end())
    known = problem.variantNames.insert(known, variant.name);
  return static_cast<int32_t>(known - problem.variantNames.begin());
}

/// Loads the other ways to carry out a start.
void Loader::loadVariants(Node &node, CollectiveOpInterface start) {
  std::vector<StartVariant> list;
  for (const CollectiveVariant &variant : costs.machine().variants) {
    if (variant.kind != node.collective)
      continue;
    Ns time = costs.curveOf(start, variant)(node.bytes, static_cast<int64_t>(start.getCollectiveInputs().size()));
    int32_t demand = needs.any() ? indexOf(needs.ofVariant(variant, start, node.bytes, time)) : kNone;
    list.push_back({nameOf(variant), time, demand});
  }
  if (list.empty())
    return;
  node.variants = static_cast<int32_t>(problem.startVariants.size());
  problem.startVariants.push_back(std::move(list));
}

void Loader::dropVariants() {
  problem.variantNames.clear();
  problem.startVariants.clear();
  for (Node &node : problem.nodes)
    node.variants = kNone;
}

void Loader::loadWait(Node &node, WaitOp wait) {
  node.kind = NodeKind::Wait;
  node.start = nodes.find(storage.startOf(wait.getFuture()));
  if (node.start != kNone && problem.nodes[node.start].kind == NodeKind::Start)
    return;
  node.start = kNone;
  FutureOrigins origins = findOrigins(wait.getFuture(), nodes);
  node.ready = origins.ready;
  if (origins.starts.empty())
    return;
  // A region returned the future. It may be one of several, or one that the region only passes through.
  node.kind = NodeKind::Compute;
  loadRegionWork(node, {}, origins);
}

void Loader::loadCompute(Node &node, Operation *op) {
  NestedWork nested = workNestedIn(op);
  Bytes resultBytes = 0;
  for (Value value : op->getResults())
    resultBytes = addSaturating(resultBytes, getStaticBytes(value.getType()).value_or(0));
  OpCost cost = costs.costOf(op);
  bool measured = cost.source == OpCostSource::Measured;
  node.cost = !nested.groups.empty() && !measured ? nested.time : cost.time;
  node.workspace = std::max(cost.workspace, nested.peak - resultBytes);
  if (needs.any())
    node.demand = indexOf(nested.groups.empty() ? needs.ofKernel(op, node.cost) : nested.demand);
  result.unknownCosts += !cost.known();
  if (auto group = op->getAttrOfType<FlatSymbolRefAttr>(CommDialect::kHybridAttrName)) {
    node.kind = NodeKind::Hybrid;
    node.lane = laneOf(group);
    node.group = groupOf(group);
    node.collective = CollectiveKind::AllReduce;
    if (!llvm::is_contained(nested.groups, group) && !nested.groups.empty())
      nested.groups.push_back(group);
  }
  if (op->getNumRegions() == 0 && !isa<CallOpInterface>(op))
    return;
  SmallVector<Value> futures(Communication(op).awaited);
  if (isa<CallOpInterface>(op))
    llvm::append_range(futures, op->getOperands());
  FutureOrigins awaited = findOrigins(futures, nodes);
  if (!nested.groups.empty() || !awaited.starts.empty() || awaited.ready > 0)
    loadRegionWork(node, nested, awaited);
}

/// Makes a node wait for `awaited` and occupy the lanes of its nested collectives.
void Loader::loadRegionWork(Node &node, const NestedWork &nested, const FutureOrigins &awaited) {
  RegionWork work;
  for (Attribute group : nested.groups) {
    work.lanes.push_back(laneOf(cast<FlatSymbolRefAttr>(group)));
    work.groups.push_back(groupOf(group));
  }
  llvm::sort(work.lanes);
  work.lanes.erase(llvm::unique(work.lanes), work.lanes.end());
  llvm::sort(work.groups);
  work.starts.assign(awaited.starts.begin(), awaited.starts.end());
  work.pointToPoint = nested.pointToPoint;
  node.ready = awaited.ready;
  node.region = static_cast<int32_t>(problem.regions.size());
  if (!work.lanes.empty()) {
    node.kind = NodeKind::Hybrid;
    node.lane = work.lanes.front();
    node.collective = CollectiveKind::AllReduce;
  } else if (node.kind == NodeKind::Hybrid) {
    work.lanes.push_back(node.lane);
    work.groups.push_back(node.group);
  }
  problem.regions.push_back(std::move(work));
}

/// What the work of a block needs in `time` ns, on average.
static Demand averageDemand(const Problem &problem, Ns time) {
  Demand average;
  for (unsigned resource = 0; resource < kNumResources; ++resource) {
    Wide used = 0;
    for (const Node &node : problem.nodes)
      used += static_cast<Wide>(problem.demandOf(node).share[resource]) * node.cost;
    average.set(static_cast<Resource>(resource), static_cast<int64_t>(std::min<Wide>(used / time, kWhole)));
  }
  return average;
}

/// The maximum over a region's blocks.
NestedWork Loader::workOfBlocks(Region &region) {
  NestedWork worst;
  LoadOptions inner;
  inner.order = options.order;
  inner.keepsIdleDemands = true;
  for (Block &block : region) {
    LoadedBlock body = loadBlock(block, costs, inner);
    Order order = identityOrder(body.problem);
    if (Ns time = makespanOf(body.problem, order); time > worst.time) {
      worst.time = time;
      worst.demand = averageDemand(body.problem, time);
    }
    worst.peak = std::max(worst.peak, peakOf(body.problem, order));
    for (Attribute group : body.groups)
      if (!llvm::is_contained(worst.groups, group))
        worst.groups.push_back(group);
    for (const Node &node : body.problem.nodes)
      worst.pointToPoint |= node.region != kNone ? body.problem.regions[node.region].pointToPoint
                                                 : node.kind == NodeKind::Start && isPointToPoint(node.collective);
  }
  return worst;
}

/// The time of control flow: its longest block, times the trip count if it is known. The time of a call: the body of
/// its callee. A recursive call has no time beyond its cost.
NestedWork Loader::workNestedIn(Operation *op) {
  NestedWork worst;
  if (auto call = dyn_cast<CallOpInterface>(op)) {
    Region *body = costs.bodyOf(call);
    if (!body)
      return worst;
    auto [known, isNew] = costs.nestedWork().try_emplace(body);
    if (!isNew)
      return known->second.value_or(worst);
    worst = workOfBlocks(*body);
    costs.nestedWork()[body] = worst; // The map may have grown meanwhile.
    return worst;
  }
  if (op->getNumRegions() == 0 || (!isa<RegionBranchOpInterface>(op) && !Communication(op).any()))
    return worst;
  for (Region &region : op->getRegions()) {
    NestedWork work = workOfBlocks(region);
    if (work.time > worst.time) {
      worst.time = work.time;
      worst.demand = work.demand;
    }
    worst.peak = std::max(worst.peak, work.peak);
    worst.pointToPoint |= work.pointToPoint;
    for (Attribute group : work.groups)
      if (!llvm::is_contained(worst.groups, group))
        worst.groups.push_back(group);
  }
  if (auto loop = dyn_cast<LoopLikeOpInterface>(op))
    if (std::optional<llvm::APInt> trips = loop.getStaticTripCount())
      worst.time = llvm::SaturatingMultiply<uint64_t>(worst.time, trips->getLimitedValue(INT64_MAX));
  worst.time = std::min<uint64_t>(worst.time, kLargestSum);
  return worst;
}

/// Futures from outside occupy their lanes until their data arrives.
void Loader::loadArgumentsInFlight() {
  Block &block = nodes.getBlock();
  auto function = dyn_cast<FunctionOpInterface>(block.getParentOp());
  if (!function || !block.isEntryBlock() || problem.numLanes() == 1)
    return;
  for (BlockArgument argument : block.getArguments()) {
    auto ready = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(), CommDialect::kReadyAttrName);
    if (!ready || ready.getInt() == 0)
      continue;
    if (costs.machine().lanes != LaneSharing::One) {
      ++result.unknownLanes;
      continue;
    }
    problem.busyUntil.resize(2, 0);
    problem.busyUntil[1] = std::max<Ns>(problem.busyUntil[1], ready.getInt());
  }
}

/// Cuts times and sizes whose sums solvers could not represent. A value that is cut is so large that nothing else
/// matters.
void Loader::limitSums() {
  auto cut = [&](int64_t &value, int64_t largest) {
    result.cutValues += value > largest;
    value = std::min(value, largest);
  };
  Wide time = 0, bytes = 0, traffic = 0;
  for (const Node &node : problem.nodes) {
    Ns cost = node.cost;
    if (node.variants != kNone)
      for (const StartVariant &variant : problem.startVariants[node.variants])
        cost = std::max(cost, variant.cost);
    time += static_cast<Wide>(cost) + node.issue;
    bytes += node.workspace;
    traffic += node.bytes;
  }
  for (const Buffer &buffer : problem.buffers)
    bytes += buffer.bytes;
  int64_t count = std::max<int64_t>(nodes.size(), 1), places = count + static_cast<int64_t>(problem.buffers.size());
  for (Node &node : problem.nodes) {
    cut(node.ready, kLargestSum);
    cut(node.cost, time > kLargestSum ? kLargestSum / count / 2 : kLargestSum);
    cut(node.issue, time > kLargestSum ? kLargestSum / count / 2 : kLargestSum);
    cut(node.workspace, bytes > kLargestSum ? kLargestSum / places : kLargestSum);
    cut(node.bytes, traffic > kLargestSum ? kLargestSum / count : kLargestSum);
  }
  for (Buffer &buffer : problem.buffers)
    cut(buffer.bytes, bytes > kLargestSum ? kLargestSum / places : kLargestSum);
  for (Ns &busy : problem.busyUntil)
    cut(busy, kLargestSum);
}

//===-----------------------------------------------------------------------------------------===//
// Buffers
//===-----------------------------------------------------------------------------------------===//

void Loader::collectTouches(NodeId id, SmallVectorImpl<BufferId> &touches) {
  auto touch = [&](Value value) {
    for (StorageId storageId : storage.of(value))
      if (buffers[storageId] != kNone)
        touches.push_back(buffers[storageId]);
  };
  nodes[id]->walk([&](Operation *op) {
    llvm::for_each(op->getOperands(), touch);
    llvm::for_each(op->getResults(), touch);
  });
  llvm::sort(touches);
  touches.erase(llvm::unique(touches), touches.end());
}

void Loader::loadBuffers() {
  buffers.reserve(storage.classes().size());
  for (const StorageClass &entry : storage.classes()) {
    bool counts = entry.def || entry.donated;
    buffers.push_back(counts ? static_cast<BufferId>(problem.buffers.size()) : kNone);
    if (counts)
      problem.buffers.push_back({entry.bytes, entry.def ? nodes.find(entry.def) : kNone, entry.liveOut});
  }
  problem.touches.reserve(nodes.size(), 4 * nodes.size());
  SmallVector<BufferId> touches;
  for (NodeId id = 0; id < nodes.size(); ++id) {
    touches.clear();
    collectTouches(id, touches);
    problem.touches.append(touches);
  }
}

//===-----------------------------------------------------------------------------------------===//
// Streams
//===-----------------------------------------------------------------------------------------===//

void Loader::loadStreams() {
  StreamAnalysis streams(nodes, storage);
  problem.streams.assign(streams.numbers().begin(), streams.numbers().end());
  for (NodeId id = 0; id < nodes.size(); ++id) {
    Node &node = problem.nodes[id];
    node.stream = std::max(streams.streamOf(id), 0);
    node.records = isa<RecordOp>(nodes[id]) && streams.streamOf(id) != kNone;
    auto await = dyn_cast<AwaitEventOp>(nodes[id]);
    NodeId event = await ? nodes.find(await.getEvent().getDefiningOp()) : kNone;
    if (event != kNone && problem.nodes[event].records)
      node.event = event;
    // An event of the same stream has happened when the stream comes to it.
    if (node.event != kNone && problem.nodes[event].stream != node.stream)
      node.issue = costs.machine().launch;
  }
  keepUntilKnown(streams);
}

/// Another stream may still use a buffer after its last use in the program. Its memory is free when every stream that
/// goes on knows that all uses have ended: that place counts as a use.
void Loader::keepUntilKnown(const StreamAnalysis &streams) {
  IndexLists users = problem.touches.transposed(static_cast<int32_t>(problem.buffers.size()));
  // Indexed by node: the buffers that are kept until then.
  std::vector<SmallVector<BufferId, 1>> kept(nodes.size());
  for (BufferId buffer = 0; buffer < users.size(); ++buffer) {
    NodeId known = kNone;
    for (NodeId user : users[buffer])
      known = std::max(known, streams.knownByAll(user));
    if (known != kNone && known > users[buffer].back())
      kept[known].push_back(buffer);
  }
  IndexLists touches;
  SmallVector<BufferId> row;
  for (NodeId id = 0; id < nodes.size(); ++id) {
    row.assign(problem.touches[id].begin(), problem.touches[id].end());
    llvm::append_range(row, kept[id]);
    llvm::sort(row);
    touches.append(row);
  }
  problem.touches = std::move(touches);
}

//===-----------------------------------------------------------------------------------------===//
// Bucketing
//===-----------------------------------------------------------------------------------------===//

/// Drops the edges to a wait that its start implies. A wait accesses the storage of its start, so it depends on the
/// previous writers of that storage, and so does the start. The wait of a bucket cannot represent such an edge.
void Loader::dropImpliedOfWaits() {
  IndexLists kept;
  kept.reserve(problem.size(), problem.preds.numValues());
  SmallVector<NodeId> row;
  for (NodeId id = 0; id < problem.size(); ++id) {
    NodeId start = problem.nodes[id].start;
    row.clear();
    for (NodeId pred : problem.preds[id])
      if (start == kNone || !llvm::binary_search(problem.preds[start], pred))
        row.push_back(pred);
    kept.append(row);
  }
  problem.preds = std::move(kept);
}

BufferId Loader::bufferOf(Value value) const {
  ArrayRef<StorageId> ids = storage.of(value);
  return ids.size() == 1 ? buffers[ids.front()] : kNone;
}

/// The properties that the members of a bucket share, as one attribute.
static Attribute getMergeIdentity(CollectiveOpInterface start, MixedTypes mixed) {
  Builder builder(start.getContext());
  SmallVector<Attribute> parts = {builder.getI64IntegerAttr(static_cast<int64_t>(start.getCollectiveKind())),
                                  start.getGroupAttr()};
  Type element = cast<ShapedType>(start.getCollectiveInputs().front().getType()).getElementType();
  bool gathers = start.getCollectiveKind() == CollectiveKind::AllGather;
  if (mixed == MixedTypes::None || (mixed == MixedTypes::Gathers && !(gathers && element.isIntOrFloat())))
    parts.push_back(TypeAttr::get(element));
  for (StringRef name : {"reduction", "scale"})
    if (Attribute attr = start->getAttr(name))
      parts.push_back(attr);
  return builder.getArrayAttr(parts);
}

int32_t Loader::mergeKeyOf(CollectiveOpInterface start, LaneId lane) {
  auto [it, inserted] = mergeKeys.try_emplace(getMergeIdentity(start, options.mixedTypes),
                                              static_cast<int32_t>(problem.mergeKeys.size()));
  if (!inserted)
    return it->second;
  MergeKey key;
  key.kind = start.getCollectiveKind();
  key.lane = lane;
  key.cap = options.bucketCap;
  key.ranks = static_cast<int32_t>(costs.shapeOf(start).ranks);
  // These sums cannot overflow either.
  Ns largest = kLargestSum / nodes.size();
  key.cost = [curve = costs.curveOf(start), largest](Bytes bytes) { return std::min((*curve)(bytes), largest); };
  key.groupCost = [curve = costs.curveOf(start), largest](Bytes bytes, int32_t members) {
    return std::min((*curve)(bytes, members), largest);
  };
  if (needs.any()) {
    const ContentionModel *model = &costs.contention();
    key.demand = [model, kind = key.kind, shape = costs.shapeOf(start)](Bytes bytes, Ns time) {
      return model->ofCollective(kind, bytes, shape, time);
    };
    key.leastDemand = model->leastOfCollective(key.kind, costs.shapeOf(start));
    key.leastUse = model->usesOfCollective(key.kind, costs.shapeOf(start));
  }
  if (problem.hasVariants())
    loadVariants(key, start, largest);
  problem.mergeKeys.push_back(std::move(key));
  return it->second;
}

/// Loads the other ways to carry out a bucket. Its members have the same.
void Loader::loadVariants(MergeKey &key, CollectiveOpInterface start, Ns largest) {
  const ContentionModel *model = &costs.contention();
  for (const CollectiveVariant &variant : costs.machine().variants) {
    if (variant.kind != key.kind)
      continue;
    KeyVariant way;
    way.name = nameOf(variant);
    way.cost = [curve = costs.curveOf(start, variant), largest](Bytes bytes, int32_t members) {
      return std::min(curve(bytes, members), largest);
    };
    if (needs.any())
      way.demand = [model, &variant, shape = costs.shapeOf(start)](Bytes bytes, Ns time) {
        return model->ofVariant(variant, bytes, shape, time);
      };
    key.variants.push_back(std::move(way));
  }
}

StringRef commsched::findMergeObstacle(CollectiveOpInterface start) {
  CollectiveKind kind = start.getCollectiveKind();
  if (kind != CollectiveKind::AllGather && kind != CollectiveKind::ReduceScatter && kind != CollectiveKind::AllReduce)
    return "collectives of this kind are not merged";
  if (start.getCollectiveInputs().size() != 1)
    return "it has several inputs";
  Type type = start.getCollectiveInputs().front().getType();
  if (isa<BaseMemRefType>(type))
    return "it is on memrefs; buckets exist on tensors only, before bufferization";
  if (!start.getCollectiveDests().empty())
    return "it has a destination, and a bucket has its own";
  if (auto dim = start->getAttrOfType<IntegerAttr>("dim"); dim && dim.getInt() != 0)
    return "it runs along a dimension other than the first";
  if (start->hasAttr("one_shot"))
    return "it is a one-shot all-reduce";
  if (start->hasAttr(CommDialect::kVariantAttrName))
    return "the way to carry it out is fixed (comm.variant)";
  Value future = start.getCollectiveFuture();
  auto wait = future.hasOneUse() ? dyn_cast<WaitOp>(*future.user_begin()) : WaitOp();
  if (!wait)
    return future.use_empty() ? "it has no wait" : "its future has more than one use";
  if (wait->getBlock() != start->getBlock())
    return "its wait is in another block";
  if (start->hasAttr(CommDialect::kStreamAttrName) || wait->hasAttr(CommDialect::kStreamAttrName))
    return "the start or its wait has a stream (comm.stream)";
  if (!getStaticBytes(type) || !cast<ShapedType>(wait->getResult(0).getType()).hasStaticShape())
    return "its size is dynamic or exceeds 64 bits";
  if (Type element = cast<ShapedType>(type).getElementType();
      element.isIntOrFloat() && element.getIntOrFloatBitWidth() % 8 != 0)
    return "its elements are not whole bytes";
  return "";
}

bool Loader::loadMember(CollectiveOpInterface start, MergeMember &member) {
  if (!findMergeObstacle(start).empty())
    return false;
  auto wait = cast<WaitOp>(*start.getCollectiveFuture().user_begin());
  Value input = start.getCollectiveInputs().front(), output = wait->getResult(0);
  if (storage.of(input).size() != 1 || storage.of(output).size() != 1)
    return false;
  // The result of a bucket is a buffer of its own. This one may be written into its place in a larger one.
  if (storage.classes()[storage.of(output).front()].bytes != *getStaticBytes(output.getType()))
    return false;
  member.wait = nodes.find(wait);
  member.input = bufferOf(input);
  member.output = bufferOf(output);
  member.inputBytes = *getStaticBytes(input.getType());
  member.outputBytes = *getStaticBytes(output.getType());
  Operation *cast = input.getDefiningOp();
  if (cast && cast->getBlock() == &nodes.getBlock() && input.hasOneUse() && isElementTypeCast(cast)) {
    member.cast = nodes.find(cast);
    member.castInputBytes = getStaticBytes(cast->getOperand(0).getType()).value_or(0);
  }
  return true;
}

void Loader::loadMergeKeys() {
  problem.members.resize(nodes.size());
  for (NodeId id = 0; id < nodes.size(); ++id)
    if (auto start = dyn_cast<CollectiveOpInterface>(nodes[id]); start && loadMember(start, problem.members[id]))
      problem.nodes[id].mergeKey = mergeKeyOf(start, problem.nodes[id].lane);
  if (options.separatesMeasured)
    separateMeasuredStarts(result);
  problem.copyCost = [model = &costs.model()](Bytes read, Bytes written) { return model->costOfCopy(read, written); };
}

//===-----------------------------------------------------------------------------------------===//
// Entry points
//===-----------------------------------------------------------------------------------------===//

LoadedBlock commsched::loadBlock(Block &block, const OperationCosts &costs, const LoadOptions &options) {
  LoadedBlock result(block);
  result.besideMessages = options.besideMessages;
  Loader(result, costs, options).run();
  result.defect = result.problem.validate();
  if (!result.defect.empty())
    emitError(block.getParentOp()->getLoc())
        << "the loaded problem is invalid (" << result.defect << "); please report this";
  return result;
}

SmallVector<Block *> commsched::findSchedulableBlocks(Operation *root) {
  SmallVector<Block *> blocks;
  root->walk([&](Block *block) {
    if (llvm::any_of(*block, [](Operation &op) {
          return isa<CollectiveOpInterface, WaitOp>(op) || op.hasAttr(CommDialect::kHybridAttrName);
        }))
      blocks.push_back(block);
  });
  return blocks;
}
