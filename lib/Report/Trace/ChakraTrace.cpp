//===- ChakraTrace.cpp - A block as execution traces of Chakra --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// From a loaded block to steps. A step depends on what it uses, and on the step before it on each of its lanes, so
// whoever plays the steps gets the timeline of the block. That is checked here.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/ChakraTrace.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Dialect/Comm/CommSizes.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// An error about an operation. It does not print the operation, which may be a whole function.
static InFlightDiagnostic refuse(Operation *op) {
  InFlightDiagnostic diagnostic = emitError(op->getLoc());
  diagnostic << "'" << op->getName() << "' op ";
  return diagnostic;
}

namespace commsched {

class ChakraTraceBuilder {
public:
  ChakraTraceBuilder(ChakraTrace &trace, FunctionOpInterface function, const OperationCosts &costs)
      : trace(trace), function(function), chosen(trace.options.rank),
        block(loadBlock(function.getFunctionBody().front(), costs)), problem(block.problem) {}

  LogicalResult build();

private:
  LogicalResult checkBlock();
  LogicalResult checkRanks();
  LogicalResult checkPeer(const ChakraStep &step, Operation *op);
  LogicalResult checkMakespan();
  LogicalResult addNode(NodeId id);
  LogicalResult addCommunication(NodeId id, ChakraStep step);
  FailureOr<int32_t> groupOf(FlatSymbolRefAttr symbol, Operation *user);
  void collectDataDependences();
  int32_t add(ChakraStep step);
  void continueCompute(ChakraStep step) { lastOnLane[kComputeLane] = add(std::move(step)); }

  ChakraTrace &trace;
  FunctionOpInterface function;
  std::optional<int64_t> chosen;
  LoadedBlock block;
  const Problem &problem;
  Timeline timeline;
  /// Indexed by node: the nodes whose results or memory it uses, starts only if it waits for them.
  std::vector<SmallVector<NodeId, 4>> uses;
  /// Indexed by node: its step; and by lane: the last step, or kNone.
  std::vector<int32_t> stepOf, lastOnLane;
  llvm::DenseMap<Attribute, int32_t> groupIds;
  /// The group operations, indexed like ChakraTrace::groups.
  SmallVector<GroupOp> groupOps;
  uint64_t nextId = 0;
};

} // namespace commsched

//===-----------------------------------------------------------------------------------------===//
// Checks
//===-----------------------------------------------------------------------------------------===//

LogicalResult ChakraTraceBuilder::checkBlock() {
  // The loader has said what is wrong.
  if (!block.defect.empty())
    return failure();
  if (problem.hasStreams())
    return refuse(function) << "expected operations on one stream for a Chakra trace, got " << problem.streams.size()
                            << " streams; export before comm-multi-stream";
  if (llvm::any_of(problem.busyUntil, [](Ns busy) { return busy > 0; }))
    return refuse(function) << "expected futures that start in the function for a Chakra trace, got an argument with "
                               "'"
                            << CommDialect::kReadyAttrName << "'";
  return success();
}

/// All groups have the same ranks, and the chosen rank is one of them.
LogicalResult ChakraTraceBuilder::checkRanks() {
  for (GroupOp group : groupOps) {
    int64_t size = group.getGroups().getWorldSize(), first = groupOps.front().getGroups().getWorldSize();
    if (size == first)
      continue;
    InFlightDiagnostic diagnostic = refuse(group) << "expected as many ranks as in the other groups of '"
                                                  << function.getName() << "' (" << first << "), got " << size;
    diagnostic.attachNote(groupOps.front().getLoc()) << "this group has " << first << " ranks";
    return diagnostic;
  }
  if (!groupOps.empty())
    trace.numRanks = groupOps.front().getGroups().getWorldSize();
  if (chosen && *chosen >= trace.numRanks)
    return refuse(function) << "expected a rank below " << trace.numRanks << ", got rank=" << *chosen;
  return success();
}

/// No rank that has a trace sends to itself, or receives from itself.
LogicalResult ChakraTraceBuilder::checkPeer(const ChakraStep &step, Operation *op) {
  const ChakraGroup &group = trace.groups[step.group];
  for (auto [rank, where] : llvm::enumerate(group.places))
    if (where.second == step.peer && (!chosen || *chosen == static_cast<int64_t>(rank)))
      return refuse(op) << "expected a peer other than the rank itself, got rank " << rank << " as the peer of rank "
                        << rank << "; give the option 'rank' if this is the program of one rank";
  return success();
}

/// Who plays the steps has to get the timeline.
LogicalResult ChakraTraceBuilder::checkMakespan() {
  std::vector<Ns> ends;
  Ns last = 0;
  for (const ChakraStep &step : trace.steps) {
    Ns begin = 0;
    for (const std::vector<int32_t> *list : {&step.data, &step.control})
      for (int32_t before : *list)
        begin = std::max(begin, ends[before]);
    ends.push_back(begin + step.duration);
    last = std::max(last, ends.back());
  }
  if (last == timeline.makespan)
    return success();
  return refuse(function) << "has a Chakra trace of " << last << " ns, but its timeline has " << timeline.makespan
                          << " ns; please report this";
}

//===-----------------------------------------------------------------------------------------===//
// Steps
//===-----------------------------------------------------------------------------------------===//

/// Leaves out what only the order of issue needs: sends, pinned operations, and whatever comes after a start without
/// waiting for it. The lanes keep the order of the plan.
void ChakraTraceBuilder::collectDataDependences() {
  StorageMap storage(block.nodes.getBlock());
  std::vector<DependenceReason> reasons =
      explainDependences(block.nodes, storage, CollectiveOrder::Free, problem.preds);
  uses.resize(problem.size());
  size_t edge = 0;
  for (NodeId id = 0; id < problem.size(); ++id) {
    const Node &node = problem.nodes[id];
    for (NodeId pred : problem.preds[id]) {
      DependenceReason reason = reasons[edge++];
      bool isData =
          reason == DependenceReason::Data || reason == DependenceReason::Memory || reason == DependenceReason::Effects;
      if (isData && problem.nodes[pred].kind != NodeKind::Start)
        uses[id].push_back(pred);
    }
    if (node.start != kNone)
      uses[id].push_back(node.start);
    if (node.region != kNone)
      llvm::append_range(uses[id], problem.regions[node.region].starts);
  }
}

int32_t ChakraTraceBuilder::add(ChakraStep step) {
  llvm::sort(step.data);
  step.data.erase(llvm::unique(step.data), step.data.end());
  llvm::sort(step.control);
  step.control.erase(llvm::unique(step.control), step.control.end());
  llvm::erase_if(step.control,
                 [&](int32_t before) { return before == kNone || llvm::binary_search(step.data, before); });
  step.id = nextId;
  // A permute is a send and a receive.
  nextId += step.group != kNone && step.kind == CollectiveKind::Permute ? 2 : 1;
  trace.steps.push_back(std::move(step));
  return static_cast<int32_t>(trace.steps.size()) - 1;
}

FailureOr<int32_t> ChakraTraceBuilder::groupOf(FlatSymbolRefAttr symbol, Operation *user) {
  auto [known, isNew] = groupIds.try_emplace(symbol, static_cast<int32_t>(trace.groups.size()));
  if (!isNew)
    return known->second;
  auto op = SymbolTable::lookupNearestSymbolFrom<GroupOp>(user, symbol);
  if (!op)
    return refuse(user) << "expected a comm.group, got '" << symbol << "'";
  ChakraGroup group = {op.getSymName().str(), op.getGroups(), 1, {}};
  if (!trace.groups.empty())
    group.number = trace.groups.back().number + trace.groups.back().partition.getNumGroups();
  group.places.resize(group.partition.getWorldSize());
  for (int64_t index = 0; index < group.partition.getNumGroups(); ++index)
    for (int64_t place = 0; place < group.partition.getGroupSize(); ++place)
      group.places[group.partition.getRank(index, place)] = {index, place};
  trace.groups.push_back(std::move(group));
  groupOps.push_back(op);
  return known->second;
}

/// Adds a start, or an operation that communicates and computes at once.
LogicalResult ChakraTraceBuilder::addCommunication(NodeId id, ChakraStep step) {
  const Node &node = problem.nodes[id];
  Operation *op = block.nodes[id];
  auto start = dyn_cast<CollectiveOpInterface>(op);
  FlatSymbolRefAttr symbol =
      start ? start.getGroupAttr() : op->getAttrOfType<FlatSymbolRefAttr>(CommDialect::kHybridAttrName);
  FailureOr<int32_t> group = groupOf(symbol, op);
  if (failed(group))
    return failure();
  step.group = *group;
  step.kind = node.collective;
  if (start) {
    if (!hasKnownBytes(start))
      return refuse(op) << "expected known sizes for a Chakra trace, got a dynamic size without '"
                        << CommDialect::kBytesHintAttrName << "'";
    bool gathers = node.collective == CollectiveKind::AllGather || node.collective == CollectiveKind::Gather;
    step.bytes = getCollectiveBytes(start) / (gathers ? trace.groups[*group].partition.getGroupSize() : 1);
  } else {
    for (Value result : op->getResults())
      step.bytes += getKnownBytes(result).value_or(0);
  }
  if (auto send = dyn_cast<SendOp>(op))
    std::tie(step.peer, step.tag) = std::pair(send.getPeer(), send.getTag());
  if (auto recv = dyn_cast<RecvOp>(op))
    std::tie(step.peer, step.tag) = std::pair(recv.getPeer(), recv.getTag());
  if (isPointToPoint(node.collective) && failed(checkPeer(step, op)))
    return failure();
  if (auto permute = dyn_cast<PermuteOp>(op))
    step.pairs = permute.getPairs().vec();
  step.control.push_back(lastOnLane[node.lane]);
  stepOf[id] = lastOnLane[node.lane] = add(step);
  if (node.kind == NodeKind::Hybrid)
    lastOnLane[kComputeLane] = stepOf[id];
  else if (node.issue > 0)
    continueCompute(
        {step.name + " issue", step.operation, node.issue, {}, {lastOnLane[kComputeLane]}, 0, {}, kNone, 0, 0, 0, {}});
  return success();
}

LogicalResult ChakraTraceBuilder::addNode(NodeId id) {
  const Node &node = problem.nodes[id];
  Operation *op = block.nodes[id];
  if (node.region != kNone && !problem.regions[node.region].lanes.empty())
    return refuse(op) << "expected no collectives in regions and callees for a Chakra trace, which has no control "
                         "flow; unroll the loop, or inline the call";
  if (node.ready > 0)
    return refuse(op) << "expected a future that starts in the function for a Chakra trace, got one that arrives "
                         "after "
                      << node.ready << " ns";
  std::vector<std::string> names = describeLocation(op->getLoc());
  ChakraStep step;
  step.name = names.empty() ? nameOperation(op) : llvm::join(names, " + ");
  step.operation = getTableName(op).str();
  for (NodeId used : uses[id])
    step.data.push_back(stepOf[used]);
  step.control.push_back(lastOnLane[kComputeLane]);
  // What a wait takes is up to its collective.
  if (node.kind != NodeKind::Wait)
    step.duration = timeline.end[id] - timeline.start[id];
  if (node.kind == NodeKind::Start || node.kind == NodeKind::Hybrid)
    return addCommunication(id, std::move(step));
  continueCompute(std::move(step));
  stepOf[id] = lastOnLane[kComputeLane];
  return success();
}

LogicalResult ChakraTraceBuilder::build() {
  if (failed(checkBlock()))
    return failure();
  timeline = simulate(problem, identityOrder(problem));
  trace.makespan = timeline.makespan;
  collectDataDependences();
  stepOf.assign(problem.size(), kNone);
  lastOnLane.assign(problem.numLanes(), kNone);
  for (NodeId id = 0; id < problem.size(); ++id)
    if (failed(addNode(id)))
      return failure();
  return failure(failed(checkRanks()) || failed(checkMakespan()));
}

FailureOr<ChakraTrace> ChakraTrace::of(FunctionOpInterface function, const OperationCosts &costs,
                                       const ChakraOptions &options) {
  if (!function.getFunctionBody().hasOneBlock())
    return refuse(function) << "expected one block for a Chakra trace, got "
                            << function.getFunctionBody().getBlocks().size();
  ChakraTrace trace;
  trace.function = function.getName().str();
  trace.options = options;
  if (failed(ChakraTraceBuilder(trace, function, costs).build()))
    return failure();
  return trace;
}
