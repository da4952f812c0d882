//===- Scheduler.cpp - Order and buckets under a hard peak limit ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The stages of one call: bring the given order below the limit, search for the best order, then search for order and
// buckets together from that answer. Each search ends early if it comes close enough to a lower bound.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Solver/Scheduler.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Problem/KeepTogether.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "ExactSearch.h"
#include "Search.h"
#include "Solver/Moves/PeakReducer.h"
#include "VariantSearch.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <memory>
#include <optional>

using namespace commsched;

namespace {

/// Share of the effort, in percent, that may be spent to bring the given order below the limit.
constexpr int64_t kReducePercent = 50;
/// If it is not, share of the effort, in percent, that may be spent in addition to bring it below kRoomyPermille of the
/// limit; less than kLeastRoomPermille of its peak is worth the decodes.
constexpr int64_t kRoomPercent = 2, kRoomyPermille = 950, kLeastRoomPermille = 990;
/// Share of the effort, in percent, that the choice between variants may take in addition.
constexpr int64_t kVariantPercent = 50;
/// A search ends at an answer that exceeds a lower bound by at most this much, in millionths.
constexpr int64_t kCloseEnoughPpm = 190;

bool needsCopy(const Problem &problem, const ScheduleOptions &options) {
  return options.caps.limits() || llvm::any_of(problem.nodes, [](const Node &node) { return node.pinned; });
}

/// The problem with the caps of the options, and with edges that keep the order of pinned nodes.
Problem constrained(const Problem &problem, const ScheduleOptions &options) {
  Problem result = problem;
  for (MergeKey &key : result.mergeKeys)
    key.cap = tighterCap(key.cap, options.caps.of(key.kind));
  result.preds = IndexLists();
  NodeId lastPinned = kNone;
  for (NodeId node = 0; node < problem.size(); ++node) {
    llvm::SmallVector<NodeId, 8> preds(problem.preds[node]);
    if (problem.nodes[node].pinned) {
      if (lastPinned != kNone && !llvm::is_contained(preds, lastPinned))
        preds.insert(llvm::lower_bound(preds, lastPinned), lastPinned);
      lastPinned = node;
    }
    result.preds.append(preds);
  }
  result.finalize();
  return result;
}

int64_t effortOf(const Problem &problem, const ScheduleOptions &options) {
  return options.effort < 0 ? defaultEffort(problem.size()) : options.effort;
}

/// The makespan at which a search under `limit` has nothing left to do, ns.
Ns makespanToReach(const ScheduleFacts &facts, Bytes limit, int64_t effort) {
  const Problem &problem = facts.problem;
  BoundOptions bounds;
  bounds.limit = limit;
  if (isBoundCheap(problem.size(), effort)) {
    Ns bound = facts.bucketing ? jointLowerBound(problem, bounds).withLimit : lowerBound(problem, bounds).withLimit;
    return bound + mulDiv(bound, kCloseEnoughPpm, kMillion);
  }
  // No order is shorter than the load of a lane (Bounds.md, Lemma 1). Merging may lower loads.
  return facts.bucketing ? 0 : *llvm::max_element(facts.load);
}

/// One call of schedule(), on a problem that has the options' caps and pins.
class Solver {
public:
  Solver(const Problem &problem, const ScheduleOptions &options) : problem(problem), options(options) {}

  Schedule run() {
    Order given = identityOrder(problem);
    result.inputMakespan = makespanOf(problem, given);
    result.inputPeak = peakOf(problem, given);
    result.limit = options.memory.limitFor(result.inputPeak);
    effort = effortOf(problem, options);
    given = belowLimit(std::move(given));
    limit = std::max(result.limit, peakOf(problem, given));
    roomy = findRoomy(given);

    if (!searchBucketsFirst(given))
      searchBoth(given);
    else if (problem.hasVariants())
      searchAlone(given);
    chooseVariants();
    return std::move(result);
  }

private:
  /// Searches for the order alone, then for order and buckets, going on with `joint` if it has begun.
  /// Whatever the order alone reaches is an answer with buckets too, so that allowing them never costs time.
  void searchBoth(const Order &given) {
    auto orderOnly = std::make_unique<ScheduleFacts>(problem, /*bucketing=*/false);
    auto alone = beginSearch(*orderOnly, given);
    adoptUndisturbed(*alone, given, /*bucketing=*/false);
    alone->run(effort, targetOf(*orderOnly));
    count(*alone);
    // A variant may be shorter than every order without one.
    if (!problem.hasVariants())
      result.leastOrder = alone->leastOfAllOrders();
    if (!withBuckets)
      withBuckets = std::make_unique<ScheduleFacts>(problem, options.bucketing);
    if (!llvm::is_contained(withBuckets->mergeable, true))
      return take(*alone, result);
    keepAlone(*alone);
    if (!joint)
      joint = beginSearch(*withBuckets, given);
    const int64_t stepsAlone = alone->steps();
    joint->adopt(std::move(*alone));
    alone.reset();
    orderOnly.reset();
    adoptUndisturbed(*joint, given, /*bucketing=*/true);
    // What the order alone has left of its effort is for the buckets.
    finish(effort + joint->steps() + std::max<int64_t>(effort - stepsAlone, 0), targetOf(*withBuckets));
  }

  /// Begins with the first answer with buckets. If it is shorter than every order without, the search for buckets gets
  /// all of the effort. Returns whether that is so.
  bool searchBucketsFirst(const Order &given) {
    if (!options.bucketing || effort == 0 || problem.size() <= ExactSearch::kMaxNodes || problem.hasContention())
      return false;
    withBuckets = std::make_unique<ScheduleFacts>(problem, /*bucketing=*/true);
    // No order is shorter than the load of a lane (Bounds.md, Lemma 1), and merging lowers those of collectives.
    const Ns least = withBuckets->busiestLoad;
    if (!llvm::is_contained(withBuckets->mergeable, true) || least <= withBuckets->load[kComputeLane])
      return false;
    joint = beginSearch(*withBuckets, given);
    const Ns target = targetOf(*withBuckets);
    joint->run(/*effort=*/0, target);
    if (joint->makespan() > least)
      return false;
    finish(2 * effort, target);
    return true;
  }

  /// Searches for order and buckets until all searches for them have taken `steps`, or until the makespan is `target`.
  void finish(int64_t steps, Ns target) {
    joint->run(steps, target);
    count(*joint);
    take(*joint, result);
  }

  /// Searches for the order alone after order and buckets, so that choices between variants can begin from both.
  void searchAlone(const Order &given) {
    ScheduleFacts orderOnly(problem, /*bucketing=*/false);
    std::unique_ptr<Search> alone = beginSearch(orderOnly, given);
    alone->run(effort, targetOf(orderOnly));
    count(*alone);
    keepAlone(*alone);
  }

  /// Keeps what the order alone reaches if choices between variants may make it the shorter answer.
  void keepAlone(const Search &alone) {
    if (!problem.hasVariants())
      return;
    apart = result;
    take(alone, *apart);
  }

  /// A search that knows nothing of contention.
  struct Undisturbed {
    Undisturbed(const Problem &problem, const ScheduleOptions &options, bool bucketing, const Order &given, Bytes limit)
        : facts(problem, bucketing), search(facts, options, Reference(facts, given), limit) {}
    ScheduleFacts facts;
    Search search;
  };

  /// With contention, begins `search` from the answer of a search without it, of the same effort: no answer should be
  /// worse than a plan that knows nothing of contention.
  void adoptUndisturbed(Search &search, const Order &given, bool bucketing) {
    if (!problem.hasContention() || effort == 0)
      return;
    if (!undisturbed) {
      undisturbed = std::make_unique<Problem>(problem);
      undisturbed->demands.clear();
      for (Node &node : undisturbed->nodes)
        node.demand = kNone;
    }
    silent = options;
    silent.observers = {};
    auto plan = std::make_unique<Undisturbed>(*undisturbed, silent, bucketing, given, limit);
    if (lastPlan)
      plan->search.adopt(std::move(lastPlan->search));
    plan->search.run(effort, /*bound=*/0);
    count(plan->search);
    search.adoptUndisturbed(plan->search.best());
    lastPlan = std::move(plan);
  }

  /// Lets the answer carry out collectives in other ways. A choice may help the order alone more than an answer with
  /// buckets, so both are tried, and allowing buckets never costs time.
  void chooseVariants() {
    if (!problem.hasVariants())
      return;
    std::optional<Schedule> alone = std::move(apart);
    Schedule answer = withVariants(std::move(result));
    if (alone) {
      alone->steps = answer.steps;
      alone->incumbents = answer.incumbents;
      alone->defect = answer.defect;
      Schedule other = withVariants(std::move(*alone));
      answer.steps = other.steps;
      answer.defect = other.defect;
      if (other.makespan < answer.makespan)
        answer = std::move(other);
    }
    result = std::move(answer);
  }

  Schedule withVariants(Schedule given) const {
    const int64_t steps = given.steps;
    const std::string defect = given.defect;
    VariantSearch search(problem, options, limit, std::move(given));
    search.run(mulDiv(effort, kVariantPercent, 100));
    Schedule answer = search.best();
    answer.steps = steps + search.steps();
    answer.defect = defect.empty() ? search.defect() : defect;
    return answer;
  }

  /// An order within the limit, or as close to it as the share of the effort for that allows.
  Order belowLimit(Order order) {
    if (result.inputPeak <= result.limit)
      return order;
    int64_t steps = std::max<int64_t>(mulDiv(effort, kReducePercent, 100), problem.size()), before = steps;
    Order reduced = reducePeak(problem, order, result.limit, steps);
    auto accept = [&](llvm::ArrayRef<NodeId> candidate) { return peakOf(problem, candidate) < result.inputPeak; };
    order = keepTogether(problem, std::move(reduced), accept).value_or(order);
    result.steps = before - steps;
    effort -= result.steps;
    return order;
  }

  /// An order that is not slower than a given one and leaves more of the limit free, if a few moves give one. Decodes
  /// place a node ahead of its turn only if the rest of their reference still fits, so a reference that fills the limit
  /// needlessly ties them.
  std::optional<Order> findRoomy(const Order &order) const {
    const Bytes peak = peakOf(problem, order), aim = mulDiv(result.limit, kRoomyPermille, kPermille);
    int64_t steps = mulDiv(effort, kRoomPercent, 100);
    if (steps == 0 || peak <= aim || result.limit >= kUnlimited)
      return std::nullopt;
    const Ns makespan = makespanOf(problem, order);
    auto isBetter = [&](llvm::ArrayRef<NodeId> candidate) {
      return peakOf(problem, candidate) <= mulDiv(peak, kLeastRoomPermille, kPermille) &&
             makespanOf(problem, candidate) <= makespan;
    };
    std::optional<Order> lower = keepTogether(problem, reducePeak(problem, order, aim, steps), isBetter);
    return lower && isBetter(*lower) ? lower : std::nullopt;
  }

  /// A search from a given order, and from a roomier one.
  std::unique_ptr<Search> beginSearch(const ScheduleFacts &facts, const Order &given) const {
    std::optional<Reference> other;
    if (roomy)
      other.emplace(facts, *roomy);
    return std::make_unique<Search>(facts, options, Reference(facts, given), limit, std::move(other));
  }

  Ns targetOf(const ScheduleFacts &facts) const { return makespanToReach(facts, limit, effort); }

  void count(const Search &search) {
    result.steps += search.steps();
    result.incumbents += search.incumbents();
    if (result.defect.empty())
      result.defect = search.defect();
  }

  static void take(const Search &search, Schedule &answer) {
    answer.buckets = search.best().buckets;
    answer.expanded = search.expanded();
    answer.order = search.order();
    answer.makespan = search.makespan();
    answer.peak = search.peak();
    answer.claims = {search.best().makespan, search.peak()};
  }

  const Problem &problem;
  const ScheduleOptions &options;
  /// With contention: the problem and the options of searches that know nothing of it, and the last such search.
  std::unique_ptr<Problem> undisturbed;
  ScheduleOptions silent;
  std::unique_ptr<Undisturbed> lastPlan;
  /// The search for order and buckets, once it has begun, and what it refers to.
  std::unique_ptr<ScheduleFacts> withBuckets;
  std::unique_ptr<Search> joint;
  Schedule result;
  /// With variants and buckets: the answer of the order alone.
  std::optional<Schedule> apart;
  int64_t effort = 0;
  Bytes limit = 0;
  /// An order that leaves more of the limit free than the given one, if there is one.
  std::optional<Order> roomy;
};

} // namespace

/// Schedules a problem that has the options' caps and pins.
static Schedule solve(const Problem &problem, const ScheduleOptions &options) { return Solver(problem, options).run(); }

/// solve(), and the answer within the input's peak if that is shorter.
static Schedule solveWithPeakOfInput(const Problem &problem, const ScheduleOptions &options) {
  const Bytes peak = peakOf(problem, identityOrder(problem)), limit = options.memory.limitFor(peak);
  if (limit <= peak)
    return solve(problem, options);
  ScheduleOptions atPeak = options;
  atPeak.memory = MemoryBudget();
  Schedule least = solve(problem, atPeak);
  least.limit = limit;
  if (least.makespan <= makespanToReach(ScheduleFacts(problem, options.bucketing), limit, effortOf(problem, options)))
    return least;
  Schedule answer = solve(problem, options);
  answer.steps += least.steps;
  if (answer.defect.empty())
    answer.defect = least.defect;
  if (answer.makespan <= least.makespan)
    return answer;
  least.steps = answer.steps;
  least.defect = answer.defect;
  return least;
}

Schedule commsched::schedule(const Problem &given, const ScheduleOptions &options) {
  return needsCopy(given, options) ? solve(constrained(given, options), options) : solve(given, options);
}

Schedule commsched::scheduleWithPeakOfInput(const Problem &given, const ScheduleOptions &options) {
  return needsCopy(given, options) ? solveWithPeakOfInput(constrained(given, options), options)
                                   : solveWithPeakOfInput(given, options);
}
