//===- ProblemLoader.cpp - From a block of IR to a Problem ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Analysis/Casts.h"
#include "CommSched/Analysis/MeasuredKeys.h"
#include "CommSched/Scheduling/Memory.h"
#include "CommSched/Scheduling/Timeline.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// Duration and memory of the regions of one node.
struct RegionCost {
  Ns time = 0;
  Bytes peak = 0;
  bool communicates = false;
};

/// Fills one LoadedBlock.
class Loader {
public:
  Loader(LoadedBlock &result, const OperationCosts &costs, const LoadOptions &options)
      : result(result), problem(result.problem), nodes(result.nodes), costs(costs), options(options),
        storage(nodes.getBlock()) {}

  void run() {
    problem.laneNames.push_back("compute");
    result.laneGroups.push_back(nullptr);
    result.slowDown.computePermille = costs.machine().computeSlowdownPermille;
    result.slowDown.linkPermille = costs.machine().linkSlowdownPermille;
    problem.nodes.resize(nodes.size());
    for (auto [id, unit] : llvm::enumerate(findUnits(nodes).of)) {
      problem.nodes[id].unit = unit;
      loadNode(static_cast<NodeId>(id));
    }
    loadBuffers();
    problem.preds = computeDependences(nodes, storage, options.order);
    if (options.bucketing)
      dropImpliedOfWaits();
    problem.finalize();
    problem.argumentBytes = storage.argumentBytes();
    result.unknownValues.assign(storage.unknownSizes().begin(), storage.unknownSizes().end());
    result.unknownSizes = static_cast<int64_t>(result.unknownValues.size());
    if (options.bucketing)
      loadMergeKeys();
  }

private:
  void loadNode(NodeId id);
  void loadStart(Node &node, CollectiveOpInterface start);
  void loadWait(Node &node, WaitOp wait);
  void loadCompute(Node &node, Operation *op);
  RegionCost costOfRegions(Operation *op);
  LaneId laneOf(FlatSymbolRefAttr group);

  void loadBuffers();
  void collectTouches(NodeId id, SmallVectorImpl<BufferId> &touches);

  void dropImpliedOfWaits();
  void loadMergeKeys();
  int32_t mergeKeyOf(CollectiveOpInterface start, LaneId lane);
  bool loadMember(CollectiveOpInterface start, MergeMember &member);
  BufferId bufferOf(Value value) const;

  LoadedBlock &result;
  Problem &problem;
  const BlockNodes &nodes;
  const OperationCosts &costs;
  const LoadOptions &options;
  StorageMap storage;
  llvm::DenseMap<Attribute, LaneId> lanes;
  /// Of each storage class: its buffer, or kNone.
  std::vector<BufferId> buffers;
  llvm::DenseMap<Attribute, int32_t> mergeKeys;
};

} // namespace

//===-----------------------------------------------------------------------------------------===//
// Nodes
//===-----------------------------------------------------------------------------------------===//

LaneId Loader::laneOf(FlatSymbolRefAttr group) {
  bool shared = costs.machine().oneLaneForAll;
  Attribute key = shared ? Attribute(FlatSymbolRefAttr::get(group.getContext(), "all")) : Attribute(group);
  auto [it, inserted] = lanes.try_emplace(key, problem.numLanes());
  if (inserted) {
    problem.laneNames.push_back(shared ? "communication" : ("@" + group.getValue()).str());
    result.laneGroups.push_back(shared ? FlatSymbolRefAttr() : group);
  }
  return it->second;
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
  node.collective = start.getCollectiveKind();
  node.bytes = getCollectiveBytes(start);
  node.cost = cost.time;
  node.workspace = cost.workspace;
  node.issue = costs.machine().issue;
  // Groups within nodes share one link, groups across nodes the other.
  result.slowDown.linkOfLane.resize(problem.laneNames.size(), kNone);
  result.slowDown.linkOfLane[node.lane] = costs.shapeOf(start).nodes > 1;
  result.unknownCosts += !cost.known();
}

void Loader::loadWait(Node &node, WaitOp wait) {
  node.kind = NodeKind::Wait;
  node.start = nodes.find(storage.startOf(wait.getFuture()));
  if (node.start != kNone && problem.nodes[node.start].kind == NodeKind::Start)
    return;
  node.start = kNone;
  auto argument = dyn_cast<BlockArgument>(wait.getFuture());
  auto function = dyn_cast<FunctionOpInterface>(nodes.getBlock().getParentOp());
  if (!argument || !function || argument.getOwner() != &nodes.getBlock() || !nodes.getBlock().isEntryBlock())
    return;
  if (auto ready = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(), CommDialect::kReadyAttrName))
    node.ready = ready.getInt();
}

void Loader::loadCompute(Node &node, Operation *op) {
  RegionCost regions = costOfRegions(op);
  Bytes resultBytes = 0;
  for (Value value : op->getResults())
    resultBytes += getStaticBytes(value.getType()).value_or(0);
  OpCost cost = costs.costOf(op);
  bool measured = cost.source == OpCostSource::Measured;
  node.cost = regions.communicates && !measured ? regions.time : cost.time;
  node.workspace = std::max(cost.workspace, regions.peak - resultBytes);
  result.unknownCosts += !cost.known();
  if (auto group = op->getAttrOfType<FlatSymbolRefAttr>(CommDialect::kHybridAttrName)) {
    node.kind = NodeKind::Hybrid;
    node.lane = laneOf(group);
    node.collective = CollectiveKind::AllReduce;
  }
}

/// What the regions of a control-flow operation take: the worst of its blocks, times the trip count where it is known.
RegionCost Loader::costOfRegions(Operation *op) {
  RegionCost worst;
  if (op->getNumRegions() == 0 || !isa<RegionBranchOpInterface>(op))
    return worst;
  for (Region &region : op->getRegions())
    for (Block &inner : region) {
      LoadedBlock body = loadBlock(inner, costs, options);
      Order order = identityOrder(body.problem);
      worst.time = std::max(worst.time, makespanOf(body.problem, order));
      worst.peak = std::max(worst.peak, peakOf(body.problem, order));
      worst.communicates |= body.problem.numLanes() > 1;
    }
  if (auto loop = dyn_cast<LoopLikeOpInterface>(op))
    if (std::optional<llvm::APInt> trips = loop.getStaticTripCount())
      worst.time = llvm::SaturatingMultiply<uint64_t>(worst.time, trips->getLimitedValue(INT64_MAX));
  worst.time = std::min<uint64_t>(worst.time, INT64_MAX / 4);
  return worst;
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
// Bucketing
//===-----------------------------------------------------------------------------------------===//

/// A wait touches what its start touches and so depends on whoever wrote that before: the start does, too. A bucket's
/// wait has no place for such an edge, and nothing is lost without it.
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

/// What has to be equal in a bucket, as one attribute.
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
  key.cap = key.kind == CollectiveKind::AllGather       ? options.allGatherCap
            : key.kind == CollectiveKind::ReduceScatter ? options.reduceScatterCap
                                                        : options.allReduceCap;
  key.ranks = static_cast<int32_t>(costs.shapeOf(start).ranks);
  key.cost = [curve = costs.curveOf(start)](Bytes bytes) { return (*curve)(bytes); };
  key.groupCost = [curve = costs.curveOf(start)](Bytes bytes, int32_t members) { return (*curve)(bytes, members); };
  problem.mergeKeys.push_back(std::move(key));
  return it->second;
}

StringRef commsched::findMergeObstacle(CollectiveOpInterface start) {
  CollectiveKind kind = start.getCollectiveKind();
  if (kind != CollectiveKind::AllGather && kind != CollectiveKind::ReduceScatter && kind != CollectiveKind::AllReduce)
    return "collectives of its kind are not merged";
  if (start.getCollectiveInputs().size() != 1)
    return "it has several inputs already";
  Type type = start.getCollectiveInputs().front().getType();
  if (isa<BaseMemRefType>(type))
    return "it works on memrefs: buckets are made on tensors, before bufferization";
  if (!start.getCollectiveDests().empty())
    return "it has a destination: a bucket has its own";
  if (auto dim = start->getAttrOfType<IntegerAttr>("dim"); dim && dim.getInt() != 0)
    return "it goes along another dimension than the first";
  if (start->hasAttr("one_shot"))
    return "it is a one-shot all-reduce";
  Value future = start.getCollectiveFuture();
  auto wait = future.hasOneUse() ? dyn_cast<WaitOp>(*future.user_begin()) : WaitOp();
  if (!wait)
    return future.use_empty() ? "nothing waits for it" : "its future is used by more than one wait";
  if (wait->getBlock() != start->getBlock())
    return "its wait stands in another block";
  if (!getStaticBytes(type) || !cast<ShapedType>(wait->getResult(0).getType()).hasStaticShape())
    return "its size is dynamic, or too large to count";
  if (Type element = cast<ShapedType>(type).getElementType();
      element.isIntOrFloat() && element.getIntOrFloatBitWidth() % 8 != 0)
    return "its elements are no whole bytes";
  return "";
}

bool Loader::loadMember(CollectiveOpInterface start, MergeMember &member) {
  if (!findMergeObstacle(start).empty())
    return false;
  auto wait = cast<WaitOp>(*start.getCollectiveFuture().user_begin());
  Value input = start.getCollectiveInputs().front(), output = wait->getResult(0);
  if (storage.of(input).size() != 1 || storage.of(output).size() != 1)
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
  Loader(result, costs, options).run();
  return result;
}

SmallVector<Block *> commsched::findSchedulableBlocks(Operation *root) {
  llvm::SetVector<Block *> blocks;
  root->walk([&](Operation *op) {
    if (op != root && (isa<CollectiveOpInterface, WaitOp>(op) || op->hasAttr(CommDialect::kHybridAttrName)))
      blocks.insert(op->getBlock());
  });
  return blocks.takeVector();
}
