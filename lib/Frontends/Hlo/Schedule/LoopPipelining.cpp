//===- LoopPipelining.cpp - Collectives that could run an iteration apart ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The rules are those of XLA's collective pipeliner (xla/service/collective_pipeliner.cc), told of a scheduled body:
// backward for all-gathers, whose operands may need parameters that no iteration changes, and scalars; forward for
// all-reduces and reduce-scatters, whose results may reach what the next iteration gets only through kernels that
// nobody else in the loop reads.
//
//===------------------------------------------------------------------------------------------===//

#include "LoopPipelining.h"
#include "CommSched/Support/Arithmetic.h"
#include "Hlo/Graph/HloCosts.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include <optional>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

class Finder {
public:
  Finder(const HloGraph &graph, const Problem &problem)
      : graph(graph), problem(problem), body(graph.computation()), users(body.instructions.size()) {
    for (auto [at, instruction] : enumerate(body.instructions))
      for (int32_t operand : instruction.operands)
        users[operand].push_back(static_cast<int32_t>(at));
  }

  Pipelining run() const;

private:
  bool isElementOfParameter(int32_t at) const;
  bool isSameInAllIterations(int32_t element) const;
  /// How opt-barriers count: their results need all of their operands, or the one that they name.
  enum class Barriers : uint8_t { Hold, Name };
  bool dependsOnIterationOnly(int32_t start, Barriers barriers) const;
  bool isReadByNobody(int32_t start) const;
  bool areReadInside(ArrayRef<int64_t> leaves, const DenseSet<int32_t> &inside) const;
  bool isCopyBetweenIterations(int32_t at) const;
  std::optional<int32_t> operandNamedBy(int32_t at) const;

  const HloGraph &graph;
  const Problem &problem;
  const HloComputation &body;
  /// Indexed by instruction.
  std::vector<SmallVector<int32_t, 4>> users;
};

/// Returns true for what a pipeliner may not move: collectives, loops and calls.
bool isFixed(const HloInstruction &instruction) {
  return isStart(instruction) || isDone(instruction) || runsComputations(instruction) || instruction.hasSideEffect;
}

} // namespace

bool Finder::isElementOfParameter(int32_t at) const {
  const HloInstruction &instruction = body.instructions[at];
  return instruction.is("get-tuple-element") && !instruction.operands.empty() &&
         body.instructions[instruction.operands.front()].is("parameter");
}

/// Returns true for an element of the loop's parameter that is a scalar, such as the number of the iteration, or that
/// comes back unchanged.
bool Finder::isSameInAllIterations(int32_t element) const {
  const HloInstruction &instruction = body.instructions[element];
  if (instruction.shape.isTuple())
    return false;
  int64_t leaf = body.instructions[instruction.operands.front()].shape.leafAt({instruction.tupleIndex});
  const std::vector<bool> &isUnchanged = graph.carriedOver.isUnchanged;
  bool comesBack = leaf >= 0 && leaf < static_cast<int64_t>(isUnchanged.size()) && isUnchanged[leaf];
  return comesBack || instruction.shape.numElements() == 1;
}

/// For an element of a barrier's result: the operand that it names.
std::optional<int32_t> Finder::operandNamedBy(int32_t at) const {
  const HloInstruction &element = body.instructions[at];
  if (!element.is("get-tuple-element") || element.operands.empty())
    return std::nullopt;
  const HloInstruction &barrier = body.instructions[element.operands.front()];
  if (!barrier.is("opt-barrier") || barrier.operands.empty())
    return std::nullopt;
  const HloInstruction &tuple = body.instructions[barrier.operands.front()];
  bool isThere = element.tupleIndex >= 0 && element.tupleIndex < static_cast<int64_t>(tuple.operands.size());
  return tuple.is("tuple") && isThere ? std::optional(tuple.operands[element.tupleIndex]) : std::nullopt;
}

bool Finder::dependsOnIterationOnly(int32_t start, Barriers barriers) const {
  DenseSet<int32_t> seen;
  SmallVector<int32_t> stack(body.instructions[start].operands.begin(), body.instructions[start].operands.end());
  while (!stack.empty()) {
    int32_t at = stack.pop_back_val();
    if (!seen.insert(at).second)
      continue;
    const HloInstruction &instruction = body.instructions[at];
    if (isFixed(instruction) || instruction.is("parameter"))
      return false;
    if (isElementOfParameter(at)) {
      if (!isSameInAllIterations(at))
        return false;
      continue;
    }
    std::optional<int32_t> named = barriers == Barriers::Name ? operandNamedBy(at) : std::nullopt;
    if (named)
      stack.push_back(*named);
    else
      append_range(stack, instruction.operands);
  }
  return true;
}

/// Returns true for a copy of what came from the iteration before, or for the next one.
bool Finder::isCopyBetweenIterations(int32_t at) const {
  const HloInstruction &instruction = body.instructions[at];
  if (!instruction.is("copy") || instruction.operands.empty())
    return false;
  return isElementOfParameter(instruction.operands.front()) ||
         all_of(users[at], [&](int32_t user) { return user == body.root; });
}

/// Returns true if nothing but `inside` and the result of the body reads these leaves of the parameter.
bool Finder::areReadInside(ArrayRef<int64_t> leaves, const DenseSet<int32_t> &inside) const {
  for (auto [index, instruction] : enumerate(body.instructions)) {
    int32_t at = static_cast<int32_t>(index);
    if (!isElementOfParameter(at))
      continue;
    int64_t leaf = body.instructions[instruction.operands.front()].shape.leafAt({instruction.tupleIndex});
    if (!is_contained(leaves, leaf))
      continue;
    if (!all_of(users[at], [&](int32_t user) { return user == body.root || inside.contains(user); }))
      return false;
  }
  return true;
}

bool Finder::isReadByNobody(int32_t start) const {
  const HloInstruction &root = body.instructions[body.root];
  if (!root.is("tuple"))
    return false;
  DenseSet<int32_t> inside;
  // Leaves of the result, which the next iteration gets.
  SmallVector<int64_t> leaves;
  SmallVector<int32_t> stack(users[start].begin(), users[start].end());
  while (!stack.empty()) {
    int32_t at = stack.pop_back_val();
    if (at == body.root || !inside.insert(at).second)
      continue;
    const HloInstruction &instruction = body.instructions[at];
    bool isOwnDone = isDone(instruction) && is_contained(users[start], at);
    if (isFixed(instruction) && !isOwnDone)
      return false;
    for (auto [position, operand] : enumerate(root.operands))
      if (operand == at)
        leaves.push_back(root.shape.leafAt({static_cast<int64_t>(position)}));
    append_range(stack, users[at]);
  }
  return areReadInside(leaves, inside);
}

Pipelining Finder::run() const {
  Pipelining result;
  for (NodeId id = 0; id < problem.size(); ++id) {
    const Node &node = problem.nodes[id];
    int32_t at = graph.nodes[id].instruction;
    if (isCopyBetweenIterations(at))
      result.copies.push_back(id);
    if (node.kind != NodeKind::Start)
      continue;
    bool gathers = node.collective == CollectiveKind::AllGather;
    bool reduces = node.collective == CollectiveKind::AllReduce || node.collective == CollectiveKind::ReduceScatter;
    if (gathers && dependsOnIterationOnly(at, Barriers::Hold))
      result.ahead.push_back(id);
    else if (gathers && dependsOnIterationOnly(at, Barriers::Name))
      result.barred.push_back(id);
    else if (reduces && isReadByNobody(at))
      result.behind.push_back(id);
  }
  return result;
}

Pipelining commsched::hlo::findPipelining(const HloGraph &graph, const Problem &problem) {
  return Finder(graph, problem).run();
}

namespace {

/// Makes the problem of one iteration of the steady state.
class Rotation {
public:
  Rotation(const Problem &problem, const Pipelining &pipelining)
      : problem(problem), pipelining(pipelining), isAhead(problem.size(), false), isBehind(problem.size(), false),
        crosses(problem.buffers.size(), kNone) {
    for (NodeId start : pipelining.ahead)
      isAhead[start] = true;
    for (NodeId start : pipelining.behind)
      isBehind[start] = true;
  }

  Problem run(Bytes &carried);

private:
  NodeId startOf(NodeId id) const { return problem.nodes[id].start == kNone ? id : problem.nodes[id].start; }
  void findCrossing();
  void cutEdges(Problem &result) const;

  const Problem &problem;
  const Pipelining &pipelining;
  /// Indexed by node, for starts.
  std::vector<bool> isAhead, isBehind;
  /// Indexed by buffer: the start whose result or operand it is, if it crosses iterations; kNone otherwise.
  std::vector<NodeId> crosses;
};

} // namespace

/// The result of a gather that runs ahead, and the operands of a reduction that runs behind.
void Rotation::findCrossing() {
  for (NodeId id = 0; id < problem.size(); ++id) {
    NodeId start = startOf(id);
    if (!isAhead[start] && !isBehind[start])
      continue;
    for (BufferId buffer : problem.touches[id]) {
      NodeId def = problem.buffers[buffer].def;
      bool isOwn = def == start || def == id;
      if (isAhead[start] ? isOwn : !isOwn && def != kNone)
        crosses[buffer] = start;
    }
  }
}

void Rotation::cutEdges(Problem &result) const {
  result.preds = IndexLists();
  for (NodeId id = 0; id < problem.size(); ++id) {
    SmallVector<NodeId, 8> kept;
    for (NodeId before : problem.preds[id]) {
      bool fromAhead = isAhead[startOf(before)] && startOf(id) != startOf(before);
      bool toBehind = isBehind[id];
      if (!fromAhead && !toBehind)
        kept.push_back(before);
    }
    result.preds.append(kept);
  }
}

Problem Rotation::run(Bytes &carried) {
  findCrossing();
  Problem result = problem;
  cutEdges(result);
  for (NodeId copy : pipelining.copies) {
    result.nodes[copy].cost = 0;
    result.nodes[copy].demand = kNone;
  }
  // A buffer that crosses iterations is two: that of the collective, and that of the kernels.
  std::vector<BufferId> second(problem.buffers.size(), kNone);
  for (auto [buffer, start] : enumerate(crosses)) {
    if (start == kNone)
      continue;
    second[buffer] = static_cast<BufferId>(result.buffers.size());
    // What came from the iteration before: read by kernels if the collective runs ahead, by itself if it runs behind.
    result.buffers.push_back({problem.buffers[buffer].bytes, kNone, false});
    result.buffers[buffer].liveOut = true;
    carried = saturateAmount(static_cast<Wide>(carried) + problem.buffers[buffer].bytes);
  }
  result.touches = IndexLists();
  for (NodeId id = 0; id < problem.size(); ++id) {
    SmallVector<BufferId, 8> touched;
    const NodeId own = startOf(id);
    for (BufferId buffer : problem.touches[id]) {
      NodeId start = crosses[buffer];
      bool readsOld = start != kNone && (own == start) == isBehind[start];
      // Two reductions of one operand: it crosses iterations once, and is counted once.
      NodeId def = problem.buffers[buffer].def;
      bool isShared = isBehind[own] && start != own && def != kNone && startOf(def) != own;
      if (readsOld || !isShared)
        touched.push_back(readsOld ? second[buffer] : buffer);
    }
    sort(touched);
    result.touches.append(touched);
  }
  // Merging would have to know which members run apart.
  result.mergeKeys.clear();
  result.members.clear();
  for (Node &node : result.nodes)
    node.mergeKey = kNone;
  result.finalize();
  return result;
}

Problem commsched::hlo::pipelinedBody(const Problem &problem, const Pipelining &pipelining, Bytes &carried) {
  return Rotation(problem, pipelining).run(carried);
}

std::vector<RunCount> commsched::hlo::countRuns(const HloModule &module) {
  std::vector<RunCount> counts(module.computations.size());
  counts[module.entry] = {1, 1};
  for (int32_t index : reverse(module.calleesFirst))
    for (const HloInstruction &instruction : module.computations[index].instructions) {
      if (!runsComputations(instruction) || counts[index].runs == 0)
        continue;
      int64_t trips = instruction.is("while") ? tripCountOf(instruction).value_or(1) : 1;
      for (int32_t callee : instruction.called) {
        int64_t runs = saturateAmount(static_cast<Wide>(counts[index].runs) * trips);
        counts[callee].runs = saturateAmount(static_cast<Wide>(counts[callee].runs) + runs);
        counts[callee].entries = saturateAmount(static_cast<Wide>(counts[callee].entries) + counts[index].runs);
      }
    }
  return counts;
}
