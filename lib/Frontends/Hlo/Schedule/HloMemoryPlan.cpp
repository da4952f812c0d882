//===- HloMemoryPlan.cpp - Rematerialization in programs of XLA -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The module is written once with everything made again that may be, and read again, so that costs, storages and
// dependences of clones are those of any instruction. The planner says what to leave out, and the module is written
// once more with what is left.
//
//===------------------------------------------------------------------------------------------===//

#include "HloMemoryPlan.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Lenses/MemoryPlan.h"
#include "EntryProblem.h"
#include "Hlo/Write/HloWriter.h"
#include "HloRepetitions.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

/// The options of a first answer within `limit`.
static ScheduleOptions firstAnswer(Bytes limit) {
  ScheduleOptions options;
  options.memory.limit = limit;
  options.effort = 0;
  options.objective = Objective::Makespan;
  return options;
}

namespace {

/// Plans the entry of one module.
class EntryPlanner {
public:
  EntryPlanner(const HloModule &module, const CostModel &model, Bytes limit)
      : module(module), model(model), limit(limit), entry(module.entryComputation()) {}

  Expected<std::optional<PlannedModule>> run();

private:
  Error repeatAll();
  std::vector<Repetition> repetitions() const;
  std::optional<PlannedModule> plan(const HloModule &whole, const HloGraph &graph, const Problem &problem);

  const HloModule &module;
  const CostModel &model;
  Bytes limit;
  const HloComputation &entry;
  RepeatedValues repeated;
  /// The module with all clones.
  std::string wholeBytes;
  /// By id of an instruction of the entry with all clones: its node.
  DenseMap<int64_t, NodeId> nodeOfId;
};

} // namespace

Error EntryPlanner::repeatAll() {
  return visitEntry(module, model, [&](const HloGraph &graph, const Problem &problem) {
    repeated = findRepeatedValues(module, module.entry, graph, problem);
    CloneEdit edit = repeated.edit(module, module.entry, BitVector(repeated.values.size(), false));
    wholeBytes = cloneInstructions(module, edit, repeated.order(graph));
  });
}

/// What makes each value, and what makes it again, as nodes.
std::vector<Repetition> EntryPlanner::repetitions() const {
  const int64_t firstClone = firstCloneId(entry);
  std::vector<Repetition> result;
  for (auto [index, value] : enumerate(repeated.values)) {
    const auto number = static_cast<int32_t>(index);
    Repetition &repetition = result.emplace_back();
    repetition.first = {nodeOfId.lookup(entry.instructions[value.base].id)};
    repetition.again = {nodeOfId.lookup(firstClone + RepeatedValues::baseClone(number))};
    if (value.done == kNone)
      continue;
    repetition.first.push_back(nodeOfId.lookup(entry.instructions[value.done].id));
    repetition.again.push_back(nodeOfId.lookup(firstClone + RepeatedValues::doneClone(number)));
  }
  return result;
}

std::optional<PlannedModule> EntryPlanner::plan(const HloModule &whole, const HloGraph &graph, const Problem &problem) {
  const std::vector<HloInstruction> &instructions = whole.entryComputation().instructions;
  for (auto [node, given] : enumerate(graph.nodes))
    nodeOfId[instructions[given.instruction].id] = static_cast<NodeId>(node);
  std::vector<Repetition> pairs = repetitions();
  if (!validate(problem, pairs).empty())
    return std::nullopt;
  const BitVector given(pairs.size(), true);
  const Problem asGiven = keepValues(problem, pairs, given).problem;
  Schedule known = keepOrder(asGiven);
  measure(asGiven, known);
  MemoryPlan best = planMemory(problem, pairs, given, known, firstAnswer(limit));
  if (best.kept == given || !best.schedule.isWithinLimit())
    return std::nullopt;
  PlannedModule planned;
  BitVector leftOut(pairs.size());
  for (auto [index, value] : enumerate(repeated.values)) {
    leftOut[index] = best.reduced.image[pairs[index].again.front()] == kNone;
    if (leftOut[index])
      continue;
    ++planned.again;
    planned.gathers += value.isGather;
    planned.againBytes += value.bytes;
  }
  // By id: an instruction of the entry.
  DenseMap<int64_t, int32_t> indexOfId;
  for (auto [at, instruction] : enumerate(entry.instructions))
    indexOfId[instruction.id] = static_cast<int32_t>(at);
  const int64_t firstClone = firstCloneId(entry);
  std::vector<OrderedInstruction> order;
  for (NodeId node : best.schedule.order) {
    const int64_t id = instructions[graph.nodes[best.reduced.origin[node]].instruction].id;
    if (id >= firstClone)
      order.push_back({static_cast<int32_t>(id - firstClone), true});
    else
      order.push_back({indexOfId.lookup(id), false});
  }
  planned.bytes = cloneInstructions(module, repeated.edit(module, module.entry, leftOut), order);
  return planned;
}

Expected<std::optional<PlannedModule>> EntryPlanner::run() {
  if (Error error = repeatAll())
    return std::move(error);
  if (repeated.values.empty())
    return std::nullopt;
  Expected<HloModule> whole = readModule(wholeBytes);
  if (!whole)
    return whole.takeError();
  std::optional<PlannedModule> planned;
  if (Error error = visitEntry(*whole, model, [&](const HloGraph &graph, const Problem &problem) {
        planned = plan(*whole, graph, problem);
      }))
    return std::move(error);
  return std::move(planned);
}

/// The module with the order of its entry that has the lowest peak that the solver's first answer reaches. Then the
/// plan makes nothing again for what an order can do. `fits` says whether that is within the limit.
static Expected<std::string> withLeanOrder(const HloModule &module, const CostModel &model, Bytes limit, bool &fits) {
  std::vector<std::vector<int32_t>> sequences(module.computations.size());
  Error error = visitEntry(module, model, [&](const HloGraph &graph, const Problem &problem) {
    Schedule lean = schedule(problem, firstAnswer(limit));
    measure(problem, lean);
    fits = lean.defect.empty() && lean.peak <= limit;
    if (lean.defect.empty())
      sequences[module.entry] = graph.instructionsInOrder(lean.order);
  });
  if (error)
    return std::move(error);
  return writeModule(module, sequences);
}

Expected<std::optional<PlannedModule>> commsched::hlo::planEntry(const HloModule &module, const CostModel &model,
                                                                 Bytes limit) {
  bool fits = false;
  Expected<std::string> bytes = withLeanOrder(module, model, limit, fits);
  if (!bytes)
    return bytes.takeError();
  if (fits)
    return PlannedModule{std::move(*bytes)};
  Expected<HloModule> lean = readModule(*bytes);
  if (!lean)
    return lean.takeError();
  return EntryPlanner(*lean, model, limit).run();
}
