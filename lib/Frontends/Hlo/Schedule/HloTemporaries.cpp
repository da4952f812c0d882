//===- HloTemporaries.cpp - Estimate of XLA's temporary memory for an order -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lives are counted in one sequence of all computations: what a loop runs comes right before the loop, as in XLA's
// HloLiveRange.
//
//===------------------------------------------------------------------------------------------===//

#include "HloTemporaries.h"
#include "CommSched/Support/Arithmetic.h"
#include "Hlo/Graph/HloGraph.h"
#include "OperandReuse.h"
#include "llvm/ADT/STLExtras.h"
#include <limits>
#include <numeric>
#include <tuple>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

/// Index of a life.
using LifeIndex = int32_t;

/// A buffer's life: the first and the last time that needs it, both included. A result ends after everything else.
struct Life {
  Bytes bytes = 0;
  int32_t begin = kNone, end = kNone;
  /// Place of the instruction that makes it in XLA's post-order; breaks ties.
  int32_t position = 0;
  bool isResult = false;
  /// Lives that end when this one begins, and whose place its kernel may write.
  SmallVector<LifeIndex, 2> heirOf;

  bool overlaps(const Life &other) const { return begin <= other.end && other.begin <= end; }
  int64_t length() const { return static_cast<int64_t>(end) - begin; }
};

/// Indexed by instruction: its place in a depth-first walk from each instruction without users, which takes operands in
/// order after control predecessors (HloComputation::MakeInstructionPostOrder). Counts on from `next`. What is in a
/// cycle, as bodies of fusions may have in a damaged module, gets a place as well, or kNone.
std::vector<int32_t> postOrder(const HloComputation &computation, int32_t &next) {
  std::vector<int32_t> position(computation.instructions.size(), kNone);
  std::vector<bool> isUsed(computation.instructions.size(), false), isOpen(computation.instructions.size(), false);
  for (const HloInstruction &instruction : computation.instructions)
    for (ArrayRef<int32_t> list : {ArrayRef(instruction.operands), ArrayRef(instruction.controlPredecessors)})
      for (int32_t operand : list)
        isUsed[operand] = true;
  // An instruction, and the next of its predecessors to look at.
  SmallVector<std::pair<int32_t, size_t>, 32> stack;
  for (int32_t at = 0; at < static_cast<int32_t>(computation.instructions.size()); ++at) {
    if (!isUsed[at])
      stack.emplace_back(at, 0);
    while (!stack.empty()) {
      auto [current, turn] = stack.back();
      const HloInstruction &instruction = computation.instructions[current];
      size_t controls = instruction.controlPredecessors.size();
      if (position[current] != kNone || turn == controls + instruction.operands.size()) {
        if (position[current] == kNone)
          position[current] = next++;
        stack.pop_back();
        continue;
      }
      ++stack.back().second;
      int32_t before = turn < controls ? instruction.controlPredecessors[turn] : instruction.operands[turn - controls];
      if (!isOpen[before])
        stack.emplace_back(before, 0);
      isOpen[before] = true;
    }
  }
  return position;
}

/// Finds the lives of all buffers that are not there before the program runs.
class LifeFinder {
public:
  LifeFinder(const HloModule &module, ArrayRef<std::vector<int32_t>> sequences)
      : module(module), sequences(sequences), carried(module.computations.size()),
        positions(module.computations.size()), visited(module.computations.size(), false) {}

  std::vector<Life> run() {
    int32_t next = 0;
    for (int32_t computation : module.calleesFirst)
      positions[computation] = postOrder(module.computations[computation], next);
    visit(module.entry);
    return std::move(lives);
  }

private:
  /// A result that its kernel may write in the place of an operand.
  struct Heir {
    int32_t instruction;
    int64_t leaf;
    size_t operand;
    int32_t time;
  };

  void visit(int32_t computation);
  std::vector<char> outsideOf(const HloGraph &graph) const;
  void appendHeirs(const HloGraph &graph, int32_t at, std::vector<Heir> &heirs) const;

  const HloModule &module;
  /// Indexed by computation: its order, if it is not its own.
  ArrayRef<std::vector<int32_t>> sequences;
  /// Dependences are not asked for, so nothing is carried.
  std::vector<Carried> carried;
  /// Indexed by computation, then by instruction.
  std::vector<std::vector<int32_t>> positions;
  std::vector<bool> visited;
  int32_t now = 0;
  std::vector<Life> lives;
};

/// The time after everything else.
constexpr int32_t kEnd = std::numeric_limits<int32_t>::max();

/// Indexed by storage: whether it belongs to the caller, as parameters and constants do.
std::vector<char> LifeFinder::outsideOf(const HloGraph &graph) const {
  std::vector<char> outside(graph.storages.size(), false);
  for (auto [at, instruction] : enumerate(graph.computation().instructions))
    if (instruction.is("parameter") || instruction.is("constant"))
      for (int64_t leaf = 0; leaf < graph.numLeaves(static_cast<int32_t>(at)); ++leaf)
        outside[graph.storageAt(static_cast<int32_t>(at), leaf)] = true;
  return outside;
}

/// Appends the results of an instruction with each operand that could end here.
void LifeFinder::appendHeirs(const HloGraph &graph, int32_t at, std::vector<Heir> &heirs) const {
  const HloInstruction &instruction = graph.computation().instructions[at];
  if (!mayReuseOperands(instruction))
    return;
  for (int64_t leaf = 0; leaf < graph.numLeaves(at); ++leaf)
    for (size_t operand = 0; operand < instruction.operands.size(); ++operand) {
      int32_t from = instruction.operands[operand];
      if (graph.numLeaves(from) == 1 &&
          graph.storages[graph.storageAt(from, 0)].bytes == graph.storages[graph.storageAt(at, leaf)].bytes)
        heirs.push_back({at, leaf, operand, now});
    }
}

void LifeFinder::visit(int32_t computation) {
  if (visited[computation] || module.computations[computation].sequence.empty())
    return;
  visited[computation] = true;
  HloGraph graph(module, computation, carried);
  const HloComputation &inside = graph.computation();
  bool isEntry = computation == module.entry;
  std::vector<char> outside = outsideOf(graph);
  // Indexed by storage.
  std::vector<Life> own(graph.storages.size());
  std::vector<Heir> heirs;
  auto touch = [&](int32_t at) {
    for (int64_t leaf = 0; leaf < graph.numLeaves(at); ++leaf) {
      Life &life = own[graph.storageAt(at, leaf)];
      if (life.begin == kNone) {
        life.begin = now;
        life.position = positions[computation][at];
      }
      life.end = now;
    }
  };
  bool isOrdered = !sequences.empty() && !sequences[computation].empty();
  for (int32_t at : isOrdered ? sequences[computation] : inside.sequence) {
    const HloInstruction &instruction = inside.instructions[at];
    if (runsComputations(instruction))
      for (int32_t called : reverse(instruction.called))
        visit(called);
    ++now;
    // Who takes an element of a tuple needs no other element (HloDataflowAnalysis, MayUseOperandValue).
    if (!instruction.is("get-tuple-element"))
      for_each(instruction.operands, touch);
    touch(at);
    appendHeirs(graph, at, heirs);
  }
  for (int64_t leaf = 0; leaf < graph.numLeaves(inside.root); ++leaf) {
    StorageIndex storage = graph.storageAt(inside.root, leaf);
    own[storage].isResult = !outside[storage];
    own[storage].end = kEnd;
  }
  // Indexed by storage. The results of a computation that is called are in the caller's memory.
  std::vector<LifeIndex> index(own.size(), kNone);
  for (auto [storage, life] : enumerate(own)) {
    life.bytes = graph.storages[storage].bytes;
    if (life.begin == kNone || life.bytes == 0 || outside[storage] || (!isEntry && life.isResult))
      continue;
    index[storage] = static_cast<LifeIndex>(lives.size());
    lives.push_back(life);
  }
  for (const Heir &heir : heirs) {
    const HloInstruction &instruction = inside.instructions[heir.instruction];
    LifeIndex to = index[graph.storageAt(heir.instruction, heir.leaf)];
    LifeIndex from = index[graph.storageAt(instruction.operands[heir.operand], 0)];
    if (to != kNone && from != kNone && from != to && lives[from].end == heir.time && lives[to].begin == heir.time &&
        mayReuseOperand(module, instruction, heir.operand, heir.leaf))
      lives[to].heirOf.push_back(from);
  }
}

/// Two lives that may be in one place.
bool areApart(ArrayRef<Life> lives, LifeIndex a, LifeIndex b) {
  return !lives[a].overlaps(lives[b]) || is_contained(lives[a].heirOf, b) || is_contained(lives[b].heirOf, a);
}

/// Puts temporaries, from the largest one on, where a result is going to be: first where an operand is, then into the
/// smallest result that is large enough. Returns the temporaries that are left.
std::vector<LifeIndex> withoutThoseInResults(ArrayRef<Life> lives) {
  std::vector<LifeIndex> order(lives.size()), left;
  std::iota(order.begin(), order.end(), 0);
  stable_sort(order, [&](LifeIndex a, LifeIndex b) {
    return std::tuple(-lives[a].bytes, !lives[a].isResult, lives[a].position) <
           std::tuple(-lives[b].bytes, !lives[b].isResult, lives[b].position);
  });
  // What is in the memory of each result, from the largest one on.
  std::vector<std::vector<LifeIndex>> results;
  // Indexed by life: the result in whose memory it is, or kNone.
  std::vector<int32_t> resultOf(lives.size(), kNone);
  for (LifeIndex at : order) {
    if (lives[at].isResult) {
      resultOf[at] = static_cast<int32_t>(results.size());
      results.push_back({at});
      continue;
    }
    auto fits = [&](int32_t result) {
      return all_of(results[result], [&](LifeIndex other) { return areApart(lives, at, other); });
    };
    for (LifeIndex from : lives[at].heirOf)
      if (resultOf[at] == kNone && resultOf[from] != kNone && fits(resultOf[from]))
        resultOf[at] = resultOf[from];
    for (auto result = static_cast<int32_t>(results.size()) - 1; resultOf[at] == kNone && result >= 0; --result)
      if (fits(result))
        resultOf[at] = result;
    if (resultOf[at] == kNone)
      left.push_back(at);
    else
      results[resultOf[at]].push_back(at);
  }
  return left;
}

/// The lives that need a place of their own: an heir is where the first of its operands is that are among them.
std::vector<Life> withHeirs(ArrayRef<Life> lives, std::vector<LifeIndex> left) {
  std::vector<Life> result;
  // Indexed by life: the place that it is in, or kNone.
  std::vector<int32_t> placeOf(lives.size(), kNone);
  stable_sort(left, [&](LifeIndex a, LifeIndex b) { return lives[a].begin < lives[b].begin; });
  for (LifeIndex at : left) {
    for (LifeIndex from : lives[at].heirOf)
      // Another heir may have been there first.
      if (placeOf[from] != kNone && result[placeOf[from]].end == lives[at].begin) {
        placeOf[at] = placeOf[from];
        result[placeOf[at]].end = lives[at].end;
        break;
      }
    if (placeOf[at] != kNone)
      continue;
    placeOf[at] = static_cast<int32_t>(result.size());
    result.push_back(lives[at]);
  }
  return result;
}

/// The arena of a best fit of the lives in the given order.
Bytes arenaOf(ArrayRef<Life> lives) {
  // Offset, end, and life of those that are placed, by offset.
  struct Chunk {
    Bytes offset, end;
    const Life *life;
  };
  std::vector<Chunk> placed;
  Bytes total = 0;
  for (const Life &life : lives) {
    Bytes best = -1, smallest = 0, top = 0;
    for (const Chunk &chunk : placed) {
      if (!life.overlaps(*chunk.life))
        continue;
      Bytes room = chunk.offset - top;
      if (room >= life.bytes && (best < 0 || room < smallest)) {
        best = top;
        smallest = room;
      }
      top = std::max(top, chunk.end);
    }
    Chunk chunk = {best < 0 ? top : best, 0, &life};
    chunk.end = chunk.offset + life.bytes;
    total = std::max(total, chunk.end);
    placed.insert(upper_bound(placed, chunk, [](const Chunk &a, const Chunk &b) { return a.offset < b.offset; }),
                  chunk);
  }
  return total;
}

} // namespace

std::optional<Bytes> commsched::hlo::temporariesOf(const HloModule &module, ArrayRef<std::vector<int32_t>> sequences) {
  std::vector<Life> lives = LifeFinder(module, sequences).run();
  Wide sum = 0;
  for (const Life &life : lives)
    sum += life.bytes;
  if (lives.size() > kMaxPlacedBuffers || sum > kMaxTotalBytes)
    return std::nullopt;
  lives = withHeirs(lives, withoutThoseInResults(lives));
  stable_sort(lives, [](const Life &a, const Life &b) {
    return std::tuple(-a.bytes, -a.length(), a.position) < std::tuple(-b.bytes, -b.length(), b.position);
  });
  Bytes largestFirst = arenaOf(lives);
  stable_sort(lives, [](const Life &a, const Life &b) {
    return std::tuple(-a.length(), -a.bytes, a.position) < std::tuple(-b.length(), -b.bytes, b.position);
  });
  return std::min(largestFirst, arenaOf(lives));
}

/// Tolerance above the given temporaries, in millionths: 1 %, less a tenth for the estimate's own error. In
/// programs with loops it errs by more, and 2 % tell the answers that XLA has no room for from the others.
static constexpr int64_t kTolerancePpm = 9'000, kToleranceWithLoopsPpm = 20'000;

TemporariesLimit::TemporariesLimit(const HloModule &module, const HloOptions &options) {
  auto isLoop = [](const HloInstruction &instruction) { return instruction.is("while"); };
  int64_t tolerance = any_of(module.entryComputation().instructions, isLoop) ? kToleranceWithLoopsPpm : kTolerancePpm;
  if (std::optional<Bytes> given = temporariesOf(module))
    limit = options.memory.limitFor(*given + std::max(mulDiv(*given, tolerance, kMillion), options.temporariesSlack));
}

int64_t TemporariesLimit::excessPpm(const HloModule &answer, ArrayRef<std::vector<int32_t>> sequences) const {
  std::optional<Bytes> needed = limit ? temporariesOf(answer, sequences) : std::nullopt;
  return needed && *needed > *limit ? mulDivUp(*needed - *limit, kMillion, std::max<Bytes>(*limit, 1)) : 0;
}

Expected<bool>
commsched::hlo::searchWithinTemporaries(const HloOptions &options,
                                        function_ref<Expected<TemporariesOutcome>(const HloOptions &)> search) {
  for (bool isShort : {false, true}) {
    HloOptions own = options;
    if (isShort && own.effort >= 0 && own.effort <= kShortEffort)
      return false;
    own.effort = isShort ? kShortEffort : options.effort;
    for (bool isLast : {false, true}) {
      Expected<TemporariesOutcome> outcome = search(own);
      if (!outcome)
        return outcome.takeError();
      if (outcome->isFaster && outcome->excessPpm == 0)
        return true;
      // What cannot be faster with all of the memory is not with less.
      if (!outcome->isFaster && !isLast)
        return false;
      own.squeezePpm = std::min<int64_t>(own.squeezePpm + outcome->excessPpm + kSqueezeStepPpm, kMillion);
    }
  }
  return false;
}
