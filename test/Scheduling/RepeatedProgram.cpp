//===- RepeatedProgram.cpp - Small programs that make values twice ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "RepeatedProgram.h"
#include "llvm/ADT/STLExtras.h"
#include <map>

using namespace commsched;
using namespace commsched::test;

Problem test::toProblem(const RepeatedProgram &program, std::vector<std::vector<NodeId>> &nodesOf) {
  Problem problem;
  problem.laneNames = {"compute", "@dp"};
  nodesOf.assign(program.steps.size(), {});
  // Indexed by step: its buffer, and the node that its readers come after.
  std::vector<BufferId> bufferOf(program.steps.size());
  std::vector<NodeId> madeBy(program.steps.size());
  NodeId lastStart = kNone;
  auto add = [&](Node node, std::vector<NodeId> preds, std::vector<BufferId> touches, int32_t step) {
    for (std::vector<int32_t> *list : {&preds, &touches}) {
      llvm::sort(*list);
      list->erase(llvm::unique(*list), list->end());
    }
    problem.nodes.push_back(node);
    problem.preds.append(preds);
    problem.touches.append(touches);
    nodesOf[step].push_back(problem.size() - 1);
    return problem.size() - 1;
  };
  for (int32_t index = 0; index < static_cast<int32_t>(program.steps.size()); ++index) {
    const Step &step = program.steps[index];
    if (step.kind == Step::View) {
      bufferOf[index] = bufferOf[step.reads.front()];
    } else {
      bufferOf[index] = static_cast<BufferId>(problem.buffers.size());
      problem.buffers.push_back({step.bytes, problem.size(), false});
    }
    problem.buffers[bufferOf[index]].liveOut |= step.liveOut;
    std::vector<NodeId> preds;
    std::vector<BufferId> touches = {bufferOf[index]};
    for (int32_t read : step.reads) {
      preds.push_back(madeBy[read]);
      touches.push_back(bufferOf[read]);
    }
    Node node;
    node.cost = step.kind == Step::View ? 0 : step.cost;
    if (step.kind == Step::Gather) {
      node.kind = NodeKind::Start;
      node.lane = 1;
      node.bytes = step.bytes;
      node.collective = CollectiveKind::AllGather;
      if (program.ordered && lastStart != kNone)
        preds.push_back(lastStart);
      lastStart = add(node, preds, touches, index);
      node = Node();
      node.kind = NodeKind::Wait;
      node.start = lastStart;
      preds = {lastStart};
    }
    madeBy[index] = add(node, preds, touches, index);
  }
  problem.finalize();
  return problem;
}

std::vector<Repetition> test::repetitionsOf(const RepeatedProgram &program,
                                            const std::vector<std::vector<NodeId>> &nodesOf) {
  std::vector<Repetition> repetitions(program.units);
  for (auto [index, step] : llvm::enumerate(program.steps))
    if (step.unit != kNone) {
      llvm::append_range(repetitions[step.unit].first, nodesOf[step.repeats]);
      llvm::append_range(repetitions[step.unit].again, nodesOf[index]);
    }
  return repetitions;
}

RepeatedProgram test::keepInProgram(const RepeatedProgram &program, const llvm::BitVector &kept) {
  std::vector<Step> steps = program.steps;
  const auto count = static_cast<int32_t>(steps.size());
  std::vector<bool> isOut(count, false);
  auto resolve = [&](int32_t step) {
    while (steps[step].unit != kNone && kept.test(steps[step].unit))
      step = steps[step].repeats;
    return step;
  };
  for (int32_t index = 0; index < count; ++index) {
    isOut[index] = resolve(index) != index;
    steps[resolve(index)].liveOut |= steps[index].liveOut;
    for (int32_t &read : steps[index].reads)
      read = resolve(read);
  }
  // One unit after the other, until all are read.
  for (bool changed = true; changed;) {
    changed = false;
    for (int32_t unit = 0; unit < program.units; ++unit) {
      bool isRead = false, isThere = false;
      for (int32_t index = 0; index < count; ++index) {
        isThere |= !isOut[index] && steps[index].unit == unit;
        isRead |= steps[index].unit == unit && steps[index].liveOut;
        if (!isOut[index] && steps[index].unit != unit)
          isRead |= llvm::any_of(steps[index].reads, [&](int32_t read) { return steps[read].unit == unit; });
      }
      if (!isThere || isRead)
        continue;
      changed = true;
      for (int32_t index = 0; index < count; ++index)
        if (steps[index].unit == unit)
          isOut[index] = true;
    }
  }
  RepeatedProgram result;
  result.ordered = program.ordered;
  std::vector<int32_t> newIndex(count, kNone);
  for (int32_t index = 0; index < count; ++index) {
    if (isOut[index])
      continue;
    newIndex[index] = static_cast<int32_t>(result.steps.size());
    Step step = steps[index];
    for (int32_t &read : step.reads)
      read = newIndex[read];
    step.unit = step.repeats = kNone;
    result.steps.push_back(step);
  }
  return result;
}

namespace {

/// Draws one program.
class Drawing {
public:
  Drawing(uint64_t seed, int32_t numSteps, int32_t numUnits) : random(seed), numSteps(numSteps), numUnits(numUnits) {}

  RepeatedProgram run() {
    program.ordered = random.percent(30);
    while (static_cast<int32_t>(program.steps.size()) < numSteps)
      if (program.units < numUnits && program.steps.size() > 3 && random.percent(35))
        repeat(anyStep());
      else
        addStep();
    return std::move(program);
  }

private:
  int32_t anyStep() { return static_cast<int32_t>(random.below(static_cast<int64_t>(program.steps.size()))); }

  void addStep() {
    Step step;
    if (!program.steps.empty())
      for (int64_t reads = random.between(1, 3); reads > 0; --reads)
        step.reads.push_back(anyStep());
    step.cost = random.between(0, 20);
    step.bytes = 64 * random.between(0, 10);
    if (!step.reads.empty() && random.percent(15)) {
      step.kind = Step::View;
      step.reads.resize(1);
    } else if (random.percent(30)) {
      step.kind = Step::Gather;
      step.reads.resize(std::min<size_t>(step.reads.size(), 1));
    }
    step.liveOut = random.percent(5);
    program.steps.push_back(step);
  }

  /// Repeats the step that makes the storage of `step`, and some of its views. Repetitions are read instead of
  /// originals if there are some.
  void repeat(int32_t step) {
    while (program.steps[step].kind == Step::View)
      step = program.steps[step].reads.front();
    std::map<int32_t, int32_t> copyOf;
    const auto count = static_cast<int32_t>(program.steps.size());
    for (int32_t index = step; index < count; ++index) {
      const bool isView = program.steps[index].kind == Step::View && copyOf.count(program.steps[index].reads.front());
      if (index != step && !(isView && random.percent(70)))
        continue;
      Step copy = program.steps[index];
      for (int32_t &read : copy.reads)
        if (auto own = copyOf.find(read); own != copyOf.end())
          read = own->second;
        else if (auto last = latest.find(read); last != latest.end())
          read = last->second;
      copy.repeats = index;
      copy.unit = program.units;
      copy.liveOut = random.percent(3);
      // What does the same may take another time.
      if (copy.kind != Step::View && random.percent(20))
        copy.cost = random.between(0, 20);
      copyOf[index] = static_cast<int32_t>(program.steps.size());
      program.steps.push_back(copy);
    }
    for (auto [original, copy] : copyOf)
      latest[original] = copy;
    ++program.units;
  }

  Random random;
  int32_t numSteps, numUnits;
  RepeatedProgram program;
  /// Indexed by step: its last repetition.
  std::map<int32_t, int32_t> latest;
};

} // namespace

RepeatedProgram test::randomProgram(uint64_t seed, int32_t steps, int32_t units) {
  return Drawing(seed, steps, units).run();
}

RepeatedProgram test::randomStep(uint64_t seed, int32_t layers) {
  Random random(seed);
  RepeatedProgram program;
  program.ordered = random.percent(30);
  const bool hasSmallGathers = random.percent(50);
  auto add = [&](Step::Kind kind, std::vector<int32_t> reads) {
    Step step;
    step.kind = kind;
    step.reads = std::move(reads);
    const bool isSmall = kind == Step::Gather && hasSmallGathers;
    step.cost = isSmall ? 1 : random.between(5, 20);
    step.bytes = isSmall ? 64 : 64 * random.between(1, 10);
    program.steps.push_back(step);
    return static_cast<int32_t>(program.steps.size()) - 1;
  };
  auto repeat = [&](int32_t step, std::vector<int32_t> reads) {
    Step copy = program.steps[step];
    copy.reads = std::move(reads);
    copy.repeats = step;
    copy.unit = program.units++;
    if (random.percent(20))
      copy.cost = std::max<Ns>(copy.cost + random.between(-4, 4), 1);
    program.steps.push_back(copy);
    return static_cast<int32_t>(program.steps.size()) - 1;
  };
  // Indexed by layer.
  std::vector<int32_t> gathered, made = {add(Step::Compute, {})};
  for (int32_t layer = 0; layer < layers; ++layer) {
    gathered.push_back(add(Step::Gather, {}));
    made.push_back(add(Step::Compute, {made.back(), gathered.back()}));
  }
  int32_t last = add(Step::Compute, {made.back()});
  int32_t weight = repeat(gathered.back(), {});
  for (int32_t layer = layers - 1; layer > 0; --layer) {
    int32_t below = repeat(gathered[layer - 1], {});
    int32_t input = repeat(made[layer], {made[layer - 1], below});
    last = add(Step::Compute, {last, input, weight});
    weight = below;
  }
  last = add(Step::Compute, {last, made.front(), weight});
  program.steps[last].liveOut = true;
  return program;
}
