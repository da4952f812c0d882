//===- HloProblem.cpp - A computation of XLA as a problem for the solver ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Temporaries are the problem's buffers. Parameters, constants and results are memory that is there whatever the order,
// as in XLA's own count of temporaries.
//
//===------------------------------------------------------------------------------------------===//

#include "HloProblem.h"
#include "CommSched/Support/Arithmetic.h"
#include "llvm/ADT/STLExtras.h"
#include <tuple>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

class Loader {
public:
  Loader(const HloGraph &graph, HloCosts &costs, ArrayRef<CalleeWork> callees, CalleeCost variant, bool isEntry,
         const MergeKeys &mergeKeys)
      : graph(graph), costs(costs), callees(callees), variant(variant), isEntry(isEntry), mergeKeys(mergeKeys),
        problem(result.problem) {}

  Expected<LoadedComputation> run();

private:
  Error loadNode(NodeId id);
  Error loadStart(Node &node, const HloInstruction &instruction);
  void loadOtherStart(Node &node, const HloInstruction &instruction);
  void loadCall(Node &node, const HloInstruction &instruction);
  void loadKernel(Node &node, const HloInstruction &instruction);
  void loadBuffers();
  void loadPredecessors(NodeId id);
  void loadMerging();
  MergeKey mergeKeyOf(NodeId start) const;
  Error checkSums() const;

  const HloGraph &graph;
  HloCosts &costs;
  ArrayRef<CalleeWork> callees;
  CalleeCost variant;
  bool isEntry;
  const MergeKeys &mergeKeys;
  /// Indexed by storage: its buffer, or kNone.
  std::vector<BufferId> buffers;
  /// Indexed by node: what is known of a start that is a collective.
  std::vector<CollectiveCost> collectives;
  LoadedComputation result;
  Problem &problem;
};

/// Returns true if the instruction has to keep its place among other instructions of this kind.
bool keepsItsPlace(const HloInstruction &instruction) {
  for (StringRef name :
       {"infeed", "outfeed", "send", "recv", "send-done", "recv-done", "rng", "rng-get-and-update-state"})
    if (instruction.is(name))
      return true;
  return instruction.hasSideEffect;
}

} // namespace

Error Loader::loadStart(Node &node, const HloInstruction &instruction) {
  Expected<std::optional<CollectiveCost>> cost = costs.ofCollective(instruction, graph.computation());
  if (!cost)
    return cost.takeError();
  if (!*cost) {
    if (isStart(instruction))
      loadOtherStart(node, instruction);
    else
      loadKernel(node, instruction);
    return Error::success();
  }
  const CollectiveCost &collective = **cost;
  // A collective without a done, or one that was told so, holds the compute stream until it has ended.
  node.kind = isStart(instruction) && !isSynchronous(instruction) ? NodeKind::Start : NodeKind::Hybrid;
  collectives[&node - problem.nodes.data()] = collective;
  node.lane = isPointToPoint(collective.kind) ? kMessageLane : kCollectiveLane;
  node.collective = collective.kind;
  node.bytes = node.kind == NodeKind::Start ? collective.bytes : 0;
  node.cost = collective.time;
  node.group = collective.group;
  node.issue = node.kind == NodeKind::Start ? costs.machine().issue : 0;
  problem.setDemand(node, collective.demand);
  result.work.lanes.insert(node.lane);
  result.work.groups.insert(node.group);
  result.work.hasMessages |= isPointToPoint(collective.kind);
  ++result.collectives;
  return Error::success();
}

/// A copy or a kernel on a stream of its own.
void Loader::loadOtherStart(Node &node, const HloInstruction &instruction) {
  bool isCopy = instruction.is("copy-start");
  KernelCost cost = isCopy ? costs.ofCopy(instruction.shape.bytes() / 2) : costs.ofAsyncKernel(instruction);
  node.kind = NodeKind::Start;
  node.lane = isCopy ? kCopyLane : kKernelLane;
  node.collective = CollectiveKind::Permute;
  node.cost = cost.time;
  node.issue = costs.machine().issue;
  problem.setDemand(node, cost.demand);
  result.work.lanes.insert(node.lane);
}

void Loader::loadKernel(Node &node, const HloInstruction &instruction) {
  KernelCost cost = costs.ofKernel(instruction, graph.computation());
  node.cost = cost.time;
  problem.setDemand(node, cost.demand);
  result.unknownKernels += cost.isUnknown;
}

/// A loop, a branch or a call: as long as what it runs, and on all its lanes.
void Loader::loadCall(Node &node, const HloInstruction &instruction) {
  RegionWork work;
  std::set<LaneId> lanes;
  std::set<int32_t> groups;
  Ns time = 0, exposed = 0;
  for (int32_t called : instruction.called) {
    const CalleeWork &callee = callees[called];
    Ns once = variant == CalleeCost::Before  ? callee.before
              : variant == CalleeCost::After ? callee.after
                                             : callee.bound;
    Ns exposedOnce = variant == CalleeCost::Before ? callee.exposedBefore : callee.exposedAfter;
    // A loop runs its condition and its body in turn; of branches, one runs: the longest one counts.
    if (instruction.is("conditional"))
      std::tie(time, exposed) = std::max(std::pair(time, exposed), std::pair(once, exposedOnce));
    else
      std::tie(time, exposed) = std::pair(time + once, exposed + exposedOnce);
    Bytes peak = variant == CalleeCost::Before  ? callee.peakBefore
                 : variant == CalleeCost::After ? callee.peakAfter
                                                : callee.leastPeak;
    node.workspace = std::max(node.workspace, peak);
    lanes.insert(callee.lanes.begin(), callee.lanes.end());
    groups.insert(callee.groups.begin(), callee.groups.end());
    node.pinned |= callee.isPinned;
    work.pointToPoint |= callee.hasMessages;
  }
  if (instruction.is("while")) {
    std::optional<int64_t> trips = tripCountOf(instruction);
    result.unknownLoops += !trips;
    time = saturateAmount(static_cast<Wide>(time) * trips.value_or(1));
    exposed = saturateAmount(static_cast<Wide>(exposed) * trips.value_or(1));
  }
  result.exposedInCallees = saturateAmount(static_cast<Wide>(result.exposedInCallees) + exposed);
  node.cost = time;
  if (lanes.empty())
    return;
  node.kind = NodeKind::Hybrid;
  node.lane = *lanes.begin();
  node.collective = CollectiveKind::AllReduce;
  node.region = static_cast<int32_t>(problem.regions.size());
  work.lanes.assign(lanes.begin(), lanes.end());
  work.groups.assign(groups.begin(), groups.end());
  problem.regions.push_back(std::move(work));
  result.work.lanes.insert(lanes.begin(), lanes.end());
  result.work.groups.insert(groups.begin(), groups.end());
}

Error Loader::loadNode(NodeId id) {
  Node &node = problem.nodes[id];
  const GraphNode &given = graph.nodes[id];
  const HloInstruction &instruction = graph.instructionOf(id);
  node.pinned = keepsItsPlace(instruction);
  if (isDone(instruction)) {
    // What another computation started is not waited for here, and what is synchronous has ended.
    if (given.start == kNone) {
      node.pinned = true;
    } else if (problem.nodes[given.start].kind == NodeKind::Start) {
      node.kind = NodeKind::Wait;
      node.start = given.start;
    }
  } else if (runsComputations(instruction)) {
    loadCall(node, instruction);
  } else if (Error error = loadStart(node, instruction)) {
    return error;
  } else if (std::optional<Ns> time = costs.givenTime(instruction.name)) {
    node.cost = *time;
  } else if (costs.hasGivenTimes() && node.cost > 0) {
    result.untimed.push_back(instruction.name.str());
  }
  result.work.isPinned |= node.pinned;
  return Error::success();
}

void Loader::loadBuffers() {
  buffers.assign(graph.storages.size(), kNone);
  SmallVector<BufferId> touches;
  for (NodeId id = 0; id < problem.size(); ++id) {
    touches.clear();
    for (StorageIndex storage : graph.nodes[id].touches) {
      if (graph.storages[storage].isOutside || graph.storages[storage].bytes == 0)
        continue;
      if (buffers[storage] == kNone) {
        buffers[storage] = static_cast<BufferId>(problem.buffers.size());
        problem.buffers.push_back({graph.storages[storage].bytes, id, false});
      }
      touches.push_back(buffers[storage]);
    }
    sort(touches);
    problem.touches.append(touches);
  }
}

/// Appends the predecessors of a node. Those of a start are left out of its wait's: they are implied, and a wait that
/// may be merged has no predecessor but its start.
void Loader::loadPredecessors(NodeId id) {
  ArrayRef<NodeId> before = graph.nodes[id].predecessors;
  NodeId start = problem.nodes[id].start;
  if (start == kNone)
    return problem.preds.append(before);
  SmallVector<NodeId, 4> kept;
  copy_if(before, std::back_inserter(kept),
          [&](NodeId node) { return !is_contained(graph.nodes[start].predecessors, node); });
  problem.preds.append(kept);
}

MergeKey Loader::mergeKeyOf(NodeId start) const {
  const CollectiveCost &collective = collectives[start];
  MergeKey key;
  key.kind = collective.kind;
  key.lane = problem.nodes[start].lane;
  key.ranks = static_cast<int32_t>(collective.shape.ranks);
  // Buckets may not overflow sums either.
  Ns largest = kMaxTotalNs / 8 / std::max<NodeId>(problem.size(), 1);
  auto timeOf = [costs = &costs, collective, largest](Bytes bytes, int32_t members) {
    return std::min(costs->timeOf(collective, "", bytes, members), largest);
  };
  key.cost = [timeOf](Bytes bytes) { return timeOf(bytes, 1); };
  key.groupCost = timeOf;
  if (problem.hasContention()) {
    const ContentionModel *model = &costs.contention();
    key.demand = [model, kind = key.kind, shape = collective.shape](Bytes bytes, Ns time) {
      return model->ofCollective(kind, bytes, shape, time);
    };
    key.leastDemand = model->leastOfCollective(key.kind, collective.shape);
    key.leastUse = model->usesOfCollective(key.kind, collective.shape);
  }
  return key;
}

/// Tells the solver what may be merged. There is no kernel that packs: NCCL takes the members' own buffers.
void Loader::loadMerging() {
  if (mergeKeys.empty())
    return;
  problem.members.resize(problem.size());
  // By MergeKeys' value: index into the problem's keys.
  DenseMap<int32_t, int32_t> indexOf;
  for (NodeId wait = 0; wait < problem.size(); ++wait) {
    NodeId start = problem.nodes[wait].start;
    if (start == kNone)
      continue;
    int32_t at = graph.nodes[start].instruction, end = graph.nodes[wait].instruction;
    auto key = mergeKeys.find(at);
    if (key == mergeKeys.end())
      continue;
    const std::vector<HloInstruction> &instructions = graph.computation().instructions;
    int32_t operand = graph.computation().instructions[at].operands.front();
    BufferId output = buffers[graph.storageAt(end, 0)];
    // A result of the computation is not a buffer of the problem.
    if (output == kNone)
      continue;
    problem.members[start] = {wait, buffers[graph.storageAt(operand, 0)], output, instructions[operand].shape.bytes(),
                              instructions[end].shape.bytes()};
    auto [index, isNew] = indexOf.try_emplace(key->second, static_cast<int32_t>(problem.mergeKeys.size()));
    if (isNew)
      problem.mergeKeys.push_back(mergeKeyOf(start));
    problem.nodes[start].mergeKey = index->second;
  }
}

/// No sum of a solver may overflow.
Error Loader::checkSums() const {
  Wide time = 0, bytes = 0;
  for (const Node &node : problem.nodes) {
    time += static_cast<Wide>(node.cost) + node.issue;
    bytes += static_cast<Wide>(node.workspace) + node.bytes;
  }
  for (const Buffer &buffer : problem.buffers)
    bytes += buffer.bytes;
  if (time > kMaxTotalNs / 8 || bytes > kMaxTotalBytes / 8)
    return createStringError("the computation '" + graph.computation().name + "' is too large to be scheduled");
  return Error::success();
}

Expected<LoadedComputation> Loader::run() {
  problem.laneNames = {"compute", "collectives", "messages", "copies", "kernels"};
  problem.nodes.resize(graph.nodes.size());
  collectives.resize(graph.nodes.size());
  for (NodeId id = 0; id < problem.size(); ++id) {
    if (Error error = loadNode(id))
      return std::move(error);
    loadPredecessors(id);
  }
  problem.dropIdleDemands();
  loadBuffers();
  loadMerging();
  problem.joinsAtEnd = !isEntry;
  if (Error error = checkSums())
    return std::move(error);
  problem.finalize();
  if (std::string defect = problem.validate(); !defect.empty())
    return createStringError("the computation '" + graph.computation().name + "' has no valid problem: " + defect);
  return std::move(result);
}

Expected<LoadedComputation> commsched::hlo::loadComputation(const HloGraph &graph, HloCosts &costs,
                                                            ArrayRef<CalleeWork> callees, CalleeCost variant,
                                                            bool isEntry, const MergeKeys &mergeKeys) {
  return Loader(graph, costs, callees, variant, isEntry, mergeKeys).run();
}
