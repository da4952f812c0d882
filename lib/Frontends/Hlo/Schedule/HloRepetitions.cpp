//===- HloRepetitions.cpp - Values of a computation of XLA that can be made again -------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Clones are chosen from the last value of the order to the first, so that all readers of a value are known, clones
// included, when its turn comes.
//
//===------------------------------------------------------------------------------------------===//

#include "HloRepetitions.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Support/Arithmetic.h"
#include "Hlo/Write/RewriteCollectives.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include <tuple>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

/// As in comm-plan-memory: two readers of a value have at least this part of the computation between them, and the
/// value has at least this part of the peak.
static constexpr int64_t kLeastGapPermille = 15, kLeastBytesPpm = 20;

/// Returns true if equal operands give equal results, for an instruction inside or outside of a fusion. A scatter may
/// add in any order.
static bool isDeterministic(const HloInstruction &instruction) {
  static const StringSet<> barred = {"scatter",
                                     "select-and-scatter",
                                     "infeed",
                                     "outfeed",
                                     "send",
                                     "recv",
                                     "send-done",
                                     "recv-done",
                                     "while",
                                     "conditional",
                                     "call",
                                     "domain",
                                     "opt-barrier",
                                     "add-dependency",
                                     "after-all",
                                     "get-dimension-size",
                                     "set-dimension-size",
                                     "partition-id",
                                     "replica-id"};
  StringRef opcode = instruction.opcode;
  for (StringRef prefix : {"rng", "all-", "collective-", "ragged-", "async-", "reduce-scatter", "copy-"})
    if (opcode.starts_with(prefix))
      return false;
  if (instruction.hasSideEffect || barred.contains(opcode))
    return false;
  // cuBLAS computes the same from the same in one stream (cuBLAS documentation, "Results Reproducibility").
  return opcode != "custom-call" || instruction.customCallTarget == "__cublas$gemm" ||
         instruction.customCallTarget == "__cublas$lt$matmul";
}

bool commsched::hlo::isRepeatable(const HloModule &module, const HloInstruction &instruction) {
  if (!(isDeterministic(instruction) || instruction.is("all-gather")) || instruction.isAnnotated ||
      !instruction.aliases.empty() || !instruction.controlPredecessors.empty() || instruction.is("parameter") ||
      instruction.is("constant"))
    return false;
  SmallVector<int32_t, 4> bodies(instruction.called.begin(), instruction.called.end());
  while (!bodies.empty())
    for (const HloInstruction &inner : module.computations[bodies.pop_back_val()].instructions) {
      if (!isDeterministic(inner) || !inner.controlPredecessors.empty())
        return false;
      bodies.append(inner.called.begin(), inner.called.end());
    }
  return true;
}

namespace {

/// Returns true if an instruction only names a part of its operand.
bool isName(const HloInstruction &instruction) {
  return instruction.is("bitcast") || instruction.is("get-tuple-element");
}

/// Chooses the values of one computation.
class ValueFinder {
public:
  ValueFinder(const HloModule &module, int32_t computation, const HloGraph &graph, const Problem &problem)
      : module(module), graph(graph), inside(graph.computation()), nodeAt(inside.instructions.size(), kNone),
        writersOf(graph.storages.size()), ofStorage(graph.storages.size(), kNone) {
    result.valueOf.assign(inside.instructions.size(), kNone);
    for (NodeId id = 0; id < problem.size(); ++id) {
      nodeAt[graph.nodes[id].instruction] = id;
      for (StorageIndex storage : graph.nodes[id].writes)
        writersOf[storage].push_back(id);
      const Node &node = problem.nodes[id];
      before.push_back(before.back() +
                       (node.kind == NodeKind::Compute || node.kind == NodeKind::Hybrid ? node.cost : 0));
    }
    leastGap = std::max<Ns>(1, mulDiv(before.back(), kLeastGapPermille, 1000));
    leastBytes = std::max<Bytes>(1, mulDiv(peakOf(problem, identityOrder(problem)), kLeastBytesPpm, kMillion));
    findControlled();
    findGathers(computation);
  }

  RepeatedValues run() {
    for (const GraphNode &node : graph.nodes)
      addCandidate(node.instruction);
    findReaders();
    for (auto value = static_cast<int32_t>(candidates.size()) - 1; value >= 0; --value)
      choose(value);
    return keepChosen();
  }

private:
  struct Reader {
    NodeId at;
    int32_t instruction, operand;
  };
  struct Candidate {
    RepeatedValue value;
    bool isPlain = true;
    std::vector<Reader> readers;
    /// Nodes in front of which clones read it.
    SmallVector<NodeId, 4> lateReads;
  };

  void findControlled();
  void findGathers(int32_t computation);
  void addCandidate(int32_t at);
  void findReaders();
  void checkSharing(int32_t at);
  bool canReadAgain(int32_t operand, NodeId from, NodeId to) const;
  NodeId findLateReader(const Candidate &candidate) const;
  void choose(int32_t value);
  RepeatedValues keepChosen();

  Ns between(NodeId a, NodeId b) const { return b > a ? before[b] - before[a + 1] : 0; }

  const HloModule &module;
  const HloGraph &graph;
  const HloComputation &inside;
  /// Indexed by instruction: its node, or kNone; and whether a control dependence names it.
  std::vector<NodeId> nodeAt;
  std::vector<bool> isControlled;
  /// Indexed by storage: the nodes that write it, ascending; and the candidate that it belongs to.
  std::vector<SmallVector<NodeId, 2>> writersOf;
  std::vector<int32_t> ofStorage;
  /// By the start of an all-gather that may be carried out again: its done.
  DenseMap<int32_t, int32_t> gathers;
  /// Indexed by node: the computation before it, ns; one more at the end.
  std::vector<Ns> before = {0};
  Ns leastGap = 1;
  Bytes leastBytes = 1;
  std::vector<Candidate> candidates;
  RepeatedValues result;
};

} // namespace

void ValueFinder::findControlled() {
  isControlled.assign(inside.instructions.size(), false);
  for (auto [at, instruction] : enumerate(inside.instructions))
    for (int32_t other : instruction.controlPredecessors)
      isControlled[at] = isControlled[other] = true;
}

void ValueFinder::findGathers(int32_t computation) {
  const std::vector<std::vector<CollectivePair>> pairs = findPairs(module);
  for (const CollectivePair &pair : pairs[computation])
    if (inside.instructions[pair.start].is("all-gather-start") && pair.elements.empty())
      gathers[pair.start] = pair.done;
}

/// Adds what an instruction makes, if all of it is in memory of its own that nothing else writes.
void ValueFinder::addCandidate(int32_t at) {
  const HloInstruction &base = inside.instructions[at];
  auto gather = gathers.find(at);
  const bool isAsynchronous = gather != gathers.end();
  if (isControlled[at] || (!isAsynchronous && !isRepeatable(module, base)))
    return;
  Candidate candidate;
  candidate.value.base = at;
  candidate.value.done = isAsynchronous ? gather->second : kNone;
  candidate.value.isGather = isAsynchronous || base.is("all-gather");
  const auto index = static_cast<int32_t>(candidates.size());
  // The first leaf of a start is what it reads.
  SmallVector<StorageIndex, 4> storages;
  for (int64_t leaf = isAsynchronous ? 1 : 0; leaf < graph.numLeaves(at); ++leaf)
    storages.push_back(graph.storageAt(at, leaf));
  for (StorageIndex storage : storages) {
    const bool isOwn = all_of(writersOf[storage], [&](NodeId writer) {
      int32_t other = graph.nodes[writer].instruction;
      return other == at || other == candidate.value.done;
    });
    if (graph.storages[storage].isOutside || !isOwn || ofStorage[storage] != kNone)
      return;
    candidate.value.bytes += graph.storages[storage].bytes;
  }
  if (candidate.value.bytes < leastBytes)
    return;
  for (StorageIndex storage : storages)
    ofStorage[storage] = index;
  result.valueOf[at] = index;
  if (isAsynchronous)
    result.valueOf[candidate.value.done] = index;
  candidates.push_back(std::move(candidate));
}

/// An instruction that has a candidate's memory in its result, and does not just name it, reads more than it is known
/// to. A start has its operands in its result.
void ValueFinder::checkSharing(int32_t at) {
  if (isStart(inside.instructions[at]))
    return;
  for (int64_t leaf = 0; leaf < graph.numLeaves(at); ++leaf)
    if (int32_t index = ofStorage[graph.storageAt(at, leaf)]; index != kNone && result.valueOf[at] != index)
      candidates[index].isPlain = false;
}

void ValueFinder::findReaders() {
  for (int32_t at : inside.sequence) {
    const HloInstruction &instruction = inside.instructions[at];
    if (isName(instruction) && !instruction.operands.empty() && result.valueOf[at] == kNone)
      result.valueOf[at] = result.valueOf[instruction.operands.front()];
    checkSharing(at);
    for (auto [number, operand] : enumerate(instruction.operands)) {
      const int32_t index = result.valueOf[operand];
      if (index == kNone)
        continue;
      Candidate &candidate = candidates[index];
      const bool isNamed = isName(instruction), isNode = nodeAt[at] != kNone;
      if (at == candidate.value.done)
        continue;
      // A name is no node, and a reader is one.
      if (isNamed == isNode)
        candidate.isPlain = false;
      else if (isNode)
        candidate.readers.push_back({nodeAt[at], at, static_cast<int32_t>(number)});
    }
  }
}

/// Whether an operand of an instruction at node `from` has the same contents at node `to`.
bool ValueFinder::canReadAgain(int32_t operand, NodeId from, NodeId to) const {
  for (int64_t leaf = 0; leaf < graph.numLeaves(operand); ++leaf)
    if (any_of(writersOf[graph.storageAt(operand, leaf)], [&](NodeId writer) { return from < writer && writer < to; }))
      return false;
  return true;
}

/// The first reader behind the widest gap between two readers; kNone if no gap is wide enough.
NodeId ValueFinder::findLateReader(const Candidate &candidate) const {
  SmallVector<NodeId> readers(candidate.lateReads.begin(), candidate.lateReads.end());
  for (const Reader &reader : candidate.readers)
    readers.push_back(reader.at);
  llvm::sort(readers);
  NodeId best = kNone;
  Ns widest = 0;
  for (size_t i = 1; i < readers.size(); ++i)
    if (Ns gap = between(readers[i - 1], readers[i]); gap > widest)
      std::tie(best, widest) = std::pair(readers[i], gap);
  return widest >= leastGap ? best : kNone;
}

void ValueFinder::choose(int32_t index) {
  Candidate &candidate = candidates[index];
  RepeatedValue &value = candidate.value;
  if (!candidate.isPlain)
    return;
  const NodeId at = findLateReader(candidate);
  const NodeId last = value.done == kNone ? nodeAt[value.base] : nodeAt[value.done];
  if (at == kNone || at <= last)
    return;
  ArrayRef<int32_t> operands = inside.instructions[value.base].operands;
  if (!all_of(operands, [&](int32_t operand) { return canReadAgain(operand, nodeAt[value.base], at); }))
    return;
  value.at = at;
  for (int32_t operand : operands)
    if (int32_t other = result.valueOf[operand]; other != kNone)
      candidates[other].lateReads.push_back(at);
  for (const Reader &reader : candidate.readers)
    if (reader.at >= at)
      value.readers.emplace_back(reader.instruction, reader.operand);
}

RepeatedValues ValueFinder::keepChosen() {
  // Indexed by candidate: its index among the values.
  std::vector<int32_t> numbers(candidates.size(), kNone);
  for (auto [index, candidate] : enumerate(candidates))
    if (candidate.value.at != kNone) {
      numbers[index] = static_cast<int32_t>(result.values.size());
      result.values.push_back(std::move(candidate.value));
    }
  for (int32_t &value : result.valueOf)
    if (value != kNone)
      value = numbers[value];
  return std::move(result);
}

RepeatedValues commsched::hlo::findRepeatedValues(const HloModule &module, int32_t computation, const HloGraph &graph,
                                                  const Problem &problem) {
  return ValueFinder(module, computation, graph, problem).run();
}

//===-----------------------------------------------------------------------------------------===//
// Clones
//===-----------------------------------------------------------------------------------------===//

namespace {

/// Makes one CloneEdit.
class EditMaker {
public:
  EditMaker(const HloComputation &inside, const RepeatedValues &repeated, const BitVector &leftOut)
      : inside(inside), repeated(repeated), leftOut(leftOut) {}

  CloneEdit run() {
    for (auto [index, value] : enumerate(repeated.values)) {
      const bool isWritten = !leftOut.test(index);
      const size_t operands = inside.instructions[value.base].operands.size();
      edit.clones.push_back({value.base, SmallVector<int32_t, 4>(operands, -1), isWritten});
      const auto base = RepeatedValues::baseClone(static_cast<int32_t>(index));
      edit.clones.push_back({value.done == kNone ? value.base : value.done, {base}, isWritten && value.done != kNone});
    }
    for (auto [index, value] : enumerate(repeated.values))
      if (!leftOut.test(index)) {
        readClones(static_cast<int32_t>(index), value);
        for (auto [reader, operand] : value.readers)
          edit.readers.push_back({reader, operand, cloneOf(inside.instructions[reader].operands[operand])});
      }
    removeUnread();
    return std::move(edit);
  }

private:
  /// Lets the clone of a value's base read clones that are there by then.
  void readClones(int32_t index, const RepeatedValue &value) {
    for (auto [number, operand] : enumerate(inside.instructions[value.base].operands)) {
      const int32_t other = repeated.valueOf[operand];
      if (other == kNone || leftOut.test(other) || repeated.values[other].at > value.at)
        continue;
      const int32_t clone = cloneOf(operand);
      edit.clones[RepeatedValues::baseClone(index)].operands[number] = clone;
    }
  }

  /// The clone of a value's base or done, or of a name of its parts.
  int32_t cloneOf(int32_t at) {
    const int32_t index = repeated.valueOf[at];
    const RepeatedValue &value = repeated.values[index];
    if (at == value.base)
      return RepeatedValues::baseClone(index);
    if (at == value.done)
      return RepeatedValues::doneClone(index);
    if (auto known = names.find(at); known != names.end())
      return known->second;
    const int32_t operand = cloneOf(inside.instructions[at].operands.front());
    edit.clones.push_back({at, {operand}, true});
    return names[at] = static_cast<int32_t>(edit.clones.size()) - 1;
  }

  /// A name that nobody reads would keep what it names alive.
  void removeUnread() {
    // Indexed by instruction.
    std::vector<int32_t> reads(inside.instructions.size(), 0);
    for (const HloInstruction &instruction : inside.instructions)
      for (int32_t operand : instruction.operands)
        ++reads[operand];
    for (const ClonedOperand &reader : edit.readers)
      --reads[inside.instructions[reader.instruction].operands[reader.operand]];
    // A clone that reads an original reads it once more.
    for (const Clone &clone : edit.clones)
      if (clone.isWritten)
        for (auto [operand, other] : zip_equal(inside.instructions[clone.instruction].operands, clone.operands))
          reads[operand] += other < 0;
    for (int32_t at : reverse(inside.sequence))
      if (reads[at] == 0 && repeated.valueOf[at] != kNone && isName(inside.instructions[at])) {
        edit.removed.push_back(at);
        --reads[inside.instructions[at].operands.front()];
      }
  }

  const HloComputation &inside;
  const RepeatedValues &repeated;
  const BitVector &leftOut;
  /// By a name of a part of a value: its clone.
  DenseMap<int32_t, int32_t> names;
  CloneEdit edit;
};

} // namespace

CloneEdit RepeatedValues::edit(const HloModule &module, int32_t computation, const BitVector &leftOut) const {
  CloneEdit result = EditMaker(module.computations[computation], *this, leftOut).run();
  result.computation = computation;
  return result;
}

std::vector<OrderedInstruction> RepeatedValues::order(const HloGraph &graph) const {
  // By instruction: the values that are made again in front of it, in the order of their bases.
  DenseMap<int32_t, SmallVector<int32_t, 4>> placed;
  for (auto [index, value] : enumerate(values))
    placed[graph.nodes[value.at].instruction].push_back(static_cast<int32_t>(index));
  std::vector<OrderedInstruction> result;
  for (int32_t at : graph.computation().sequence) {
    if (auto clones = placed.find(at); clones != placed.end())
      for (int32_t value : clones->second)
        for (int32_t clone : {baseClone(value), doneClone(value)})
          result.push_back({clone, true});
    result.push_back({at, false});
  }
  return result;
}
