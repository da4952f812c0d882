//===- MemoryPlan.cpp - Choice of kept values together with the order -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Start points, plans by prices, then changes of all repetitions of one shape. All of these are judged by the first
// answer of the solver; the best few get its whole effort.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/MemoryPlan.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "PlanBound.h"
#include "PlanPrices.h"
#include "PlanRelief.h"
#include "llvm/ADT/STLExtras.h"
#include <map>

using namespace commsched;

/// The shares of a lane's price that belong to the compute lane, in thousandths; the others are the collectives'.
static constexpr int64_t kComputeShares[] = {500, 200, 980, 20, 800};
/// Prices of a mebibyte grow by a quarter of a power of two from step to step, up to 2^50: above the price of an hour
/// on a lane.
static constexpr int32_t kPriceSteps = 4 * 50;
/// What the time in which memory is not short counts for, beside that in which it is.
static constexpr int64_t kPlentyDivisor = 16;
/// Steps of the bisection between two plans of neighbouring prices.
static constexpr int32_t kBetweenSteps = 5;
/// Most plans that are scheduled with effort 0, and the number of nodes that all of them may have together.
static constexpr int32_t kMostTried = 160;
static constexpr int64_t kMostNodes = 1500000;
/// Values that are made again one after the other to relieve peaks, and candidates for each of them.
static constexpr int32_t kReliefSteps = 64;
static constexpr size_t kReliefsTried = 8;
/// Plans that are scheduled with the effort of the options.
static constexpr size_t kSearchedInFull = 2;
/// Shapes whose repetitions are changed together: those of most bytes.
static constexpr size_t kChangedShapes = 24;

ReducedProblem commsched::lateProblem(const Problem &problem, llvm::ArrayRef<Repetition> repetitions,
                                      const llvm::BitVector &kept) {
  ReducedProblem reduced = keepValues(problem, repetitions, kept);
  makeLate(reduced, repetitions);
  return reduced;
}

bool commsched::isWorthIt(const Schedule &planned, const Schedule &known) {
  return planned.isWithinLimit() && (planned.makespan < known.makespan || known.peak > planned.limit);
}

/// Whether `a` is better than `b`: within the limit, or closer to it, and then shorter.
static bool isBetterPlan(const Schedule &a, const Schedule &b) {
  if (a.isWithinLimit() != b.isWithinLimit())
    return a.isWithinLimit();
  if (!a.isWithinLimit())
    return a.peak < b.peak;
  return std::pair(a.makespan, a.peak) < std::pair(b.makespan, b.peak);
}

namespace {

class Planner {
public:
  Planner(const Problem &problem, llvm::ArrayRef<Repetition> repetitions, const llvm::BitVector &given,
          const Schedule &known, const ScheduleOptions &options)
      : problem(problem), repetitions(repetitions), given(given), known(known), options(options),
        asGiven(keepValues(problem, repetitions, given)),
        limit(options.memory.limitFor(peakOf(asGiven.problem, identityOrder(asGiven.problem)))),
        priced(problem, repetitions, findScarcity()), loads(problem.numLanes(), 0) {
    mostTried =
        static_cast<int32_t>(std::clamp<int64_t>(kMostNodes / std::max<NodeId>(problem.size(), 1), 12, kMostTried));
  }

  MemoryPlan run() {
    for (const Node &node : asGiven.problem.nodes)
      loads[node.lane] += node.cost;
    tryPlan(given);
    tryPlan(llvm::BitVector(priced.size(), true));
    for (int64_t share : kComputeShares)
      tryPrices(share);
    if (!best.front().schedule.isWithinLimit())
      relieve();
    changeShapes();
    searchBest();
    MemoryPlan plan = choose();
    plan.lowerBound = planLowerBound(problem, repetitions, limit, options.bucketing);
    return plan;
  }

private:
  struct Trial {
    llvm::BitVector kept;
    Schedule schedule;
  };

  static bool isBetterTrial(const Trial &a, const Trial &b) { return isBetterPlan(a.schedule, b.schedule); }

  static std::vector<bool> keyOf(const llvm::BitVector &kept) {
    std::vector<bool> key(kept.size());
    for (int index : kept.set_bits())
      key[index] = true;
    return key;
  }

  /// Indexed by node: its computation if memory would be short then if everything was kept; a small part of it
  /// otherwise, since other orders are short of memory elsewhere.
  std::vector<int64_t> findScarcity() const {
    std::vector<int64_t> scarcity(problem.size(), 0);
    ReducedProblem keepsAll = keepValues(problem, repetitions, llvm::BitVector(repetitions.size(), true));
    MemoryProfile profile = memoryProfile(keepsAll.problem, identityOrder(keepsAll.problem));
    for (auto [node, origin] : llvm::enumerate(keepsAll.origin))
      if (const Node &work = problem.nodes[origin]; work.lane == kComputeLane)
        scarcity[origin] = profile.live[node] > limit ? work.cost : work.cost / kPlentyDivisor;
    return scarcity;
  }

  bool isSpent() const { return tried >= mostTried; }

  Schedule solve(const llvm::BitVector &kept, int64_t effort) {
    ScheduleOptions solver = options;
    solver.effort = effort;
    solver.memory.limit = limit;
    if (effort == 0)
      solver.objective = Objective::Makespan;
    Schedule answer = schedule(reduce(kept).problem, solver);
    steps += answer.steps;
    answer.limit = limit;
    return answer;
  }

  ReducedProblem reduce(const llvm::BitVector &kept) const { return lateProblem(problem, repetitions, kept); }

  /// Schedules a plan with effort 0, once. Returns whether it is within the limit.
  bool tryPlan(const llvm::BitVector &kept) {
    auto [it, isNew] = outcomes.try_emplace(keyOf(kept), false);
    if (!isNew || isSpent())
      return it->second;
    ++tried;
    Trial trial{kept, solve(kept, 0)};
    it->second = trial.schedule.isWithinLimit();
    auto at = llvm::upper_bound(best, trial, isBetterTrial);
    best.insert(at, std::move(trial));
    if (best.size() > kSearchedInFull)
      best.pop_back();
    return it->second;
  }

  //===---------------------------------------------------------------------------------------===//
  // Prices
  //===---------------------------------------------------------------------------------------===//

  /// The compute lane has `share` of the price. A lane of collectives has less of the rest if it is less full.
  PlanPrices pricesAt(int64_t share, int32_t step) const {
    PlanPrices prices;
    Ns fullest = 1;
    for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
      fullest = std::max(fullest, loads[lane]);
    for (LaneId lane = 0; lane < problem.numLanes(); ++lane) {
      int64_t part =
          mulDiv(1000 - share, mulDiv(loads[lane], 1000, fullest) * mulDiv(loads[lane], 1000, fullest), 1000000);
      prices.lanes.push_back(lane == kComputeLane ? share : std::max<int64_t>(part, 1));
    }
    prices.mebibyte = ((4 + int64_t(step % 4)) << (step / 4)) / 4;
    return prices;
  }

  /// Finds the lowest price of memory at which the plan fits, and what else fits between that and the one below.
  void tryPrices(int64_t share) {
    int32_t low = 0, high = kPriceSteps;
    while (low < high && !isSpent()) {
      int32_t middle = (low + high) / 2;
      if (tryPlan(priced.keptAt(pricesAt(share, middle))))
        high = middle;
      else
        low = middle + 1;
    }
    if (low > 0)
      tryBetween(priced.keptAt(pricesAt(share, low - 1)), priced.keptAt(pricesAt(share, low)));
  }

  /// Bisects between a plan that does not fit and one that does. What would be kept for a short time changes first.
  void tryBetween(const llvm::BitVector &large, const llvm::BitVector &small) {
    llvm::BitVector differs = large;
    differs ^= small;
    std::vector<int32_t> changes;
    for (int index : differs.set_bits())
      changes.push_back(index);
    llvm::sort(changes,
               [&](int32_t a, int32_t b) { return std::pair(priced.gapOf(a), a) < std::pair(priced.gapOf(b), b); });
    size_t low = 0, high = changes.size();
    for (int32_t step = 0; step < kBetweenSteps && low + 1 < high && !isSpent(); ++step) {
      size_t middle = (low + high) / 2;
      llvm::BitVector plan = small;
      for (int32_t index : llvm::ArrayRef(changes).take_front(middle))
        plan[index] = large[index];
      (tryPlan(plan) ? low : high) = middle;
    }
  }

  //===---------------------------------------------------------------------------------------===//
  // Relief
  //===---------------------------------------------------------------------------------------===//

  /// The bytes above the limit in the order of a plan, added up over its nodes.
  Wide excessOf(const ReducedProblem &reduced) const {
    Wide excess = 0;
    for (Bytes live : memoryProfile(reduced.problem, identityOrder(reduced.problem)).live)
      excess += std::max<Bytes>(live - limit, 0);
    return excess;
  }

  /// Makes one value after the other again, from the program as given on, until the order given fits.
  void relieve() {
    llvm::BitVector plan = given;
    ReducedProblem reduced = reduce(plan);
    Wide excess = excessOf(reduced);
    for (int32_t step = 0; step < kReliefSteps && excess > 0; ++step) {
      llvm::BitVector next;
      for (llvm::ArrayRef<int32_t> closure : findReliefs(problem, repetitions, reduced, plan, kReliefsTried)) {
        llvm::BitVector candidate = plan;
        for (int32_t index : closure)
          candidate.reset(index);
        ReducedProblem result = reduce(candidate);
        if (Wide left = excessOf(result); left < excess) {
          excess = left;
          next = std::move(candidate);
          reduced = std::move(result);
        }
      }
      if (next.empty())
        break;
      plan = std::move(next);
    }
    tryPlan(plan);
  }

  //===---------------------------------------------------------------------------------------===//
  // Changes
  //===---------------------------------------------------------------------------------------===//

  /// Keeps all values of one shape, or makes all of them again, as long as that is better.
  void changeShapes() {
    std::map<int32_t, std::pair<Bytes, std::vector<int32_t>>> members;
    for (int32_t index = 0; index < priced.size(); ++index) {
      auto &[bytes, list] = members[priced.shapeOf(index)];
      bytes += priced.bytesOf(index);
      list.push_back(index);
    }
    std::vector<const std::pair<Bytes, std::vector<int32_t>> *> shapes;
    for (const auto &[shape, group] : members)
      shapes.push_back(&group);
    llvm::sort(shapes, [](const auto *a, const auto *b) {
      return std::pair(b->first, a->second.front()) < std::pair(a->first, b->second.front());
    });
    shapes.resize(std::min(shapes.size(), kChangedShapes));
    for (const auto *group : shapes)
      for (bool keep : {true, false}) {
        if (isSpent())
          return;
        llvm::BitVector plan = best.front().kept;
        for (int32_t index : group->second)
          plan[index] = keep;
        tryPlan(plan);
      }
  }

  //===---------------------------------------------------------------------------------------===//
  // The answer
  //===---------------------------------------------------------------------------------------===//

  void searchBest() {
    if (options.effort == 0)
      return;
    for (Trial &trial : best) {
      // The answer for the program as given is known.
      if (trial.kept == given)
        continue;
      ++searched;
      Schedule answer = solve(trial.kept, options.effort);
      if (isBetterPlan(answer, trial.schedule))
        trial.schedule = std::move(answer);
    }
    llvm::sort(best, isBetterTrial);
  }

  MemoryPlan choose() {
    MemoryPlan plan{given, {}, known, 0, tried, searched, steps};
    for (Trial &trial : best) {
      if (trial.kept == given || !isWorthIt(trial.schedule, known))
        continue;
      plan.kept = trial.kept;
      plan.reduced = reduce(trial.kept);
      plan.schedule = std::move(trial.schedule);
      return plan;
    }
    plan.reduced = std::move(asGiven);
    return plan;
  }

  const Problem &problem;
  llvm::ArrayRef<Repetition> repetitions;
  const llvm::BitVector &given;
  const Schedule &known;
  const ScheduleOptions &options;
  ReducedProblem asGiven;
  Bytes limit;
  PricedRepetitions priced;
  /// Indexed by lane: the work of the program as given, ns.
  std::vector<Ns> loads;
  int32_t mostTried = 0, tried = 0, searched = 0;
  int64_t steps = 0;
  /// Plans that were tried: whether they are within the limit.
  std::map<std::vector<bool>, bool> outcomes;
  /// The best plans so far, best first.
  std::vector<Trial> best;
};

} // namespace

MemoryPlan commsched::planMemory(const Problem &problem, llvm::ArrayRef<Repetition> repetitions,
                                 const llvm::BitVector &given, const Schedule &known, const ScheduleOptions &options) {
  return Planner(problem, repetitions, given, known, options).run();
}
