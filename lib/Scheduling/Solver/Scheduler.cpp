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
#include "Search.h"
#include "Solver/Exact/ExactSearch.h"
#include "Solver/Moves/PeakReducer.h"
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
/// The least steps for all orders of a small problem, if moves do not bring the given one below the limit: the limit is
/// a hard one.
constexpr int64_t kLowestPeakSteps = 1000000;
/// A search ends at an answer that exceeds a lower bound by at most this much, in millionths.
constexpr int64_t kCloseEnoughPpm = 190;

bool needsCopy(const Problem &problem, const ScheduleOptions &options) {
  return options.bucketCap >= 0 || llvm::any_of(problem.nodes, [](const Node &node) { return node.pinned; });
}

/// The problem with the cap of the options, and with edges that keep the order of pinned nodes.
Problem constrained(const Problem &problem, const ScheduleOptions &options) {
  Problem result = problem;
  for (MergeKey &key : result.mergeKeys)
    key.cap = tighterCap(key.cap, options.bucketCap);
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

/// One call of scheduleCore(), on a problem that has the options' cap and pins.
class Solver {
public:
  Solver(const Problem &problem, const ScheduleOptions &options) : problem(problem), options(options) {}

  Schedule run() {
    Order given = identityOrder(problem);
    result.inputMakespan = makespanOf(problem, given);
    result.inputPeak = peakOf(problem, given);
    result.limit = options.memory.limitFor(result.inputPeak);
    effort = options.effortFor(problem.size());
    given = belowLimit(std::move(given));
    limit = std::max(result.limit, peakOf(problem, given));
    roomy = findRoomy(given);

    if (!searchBucketsFirst(given))
      searchBoth(given);
    return std::move(result);
  }

private:
  /// Searches for the order alone, then for order and buckets, going on with `joint` if it has begun.
  /// Whatever the order alone reaches is an answer with buckets too, so that allowing them never costs time.
  void searchBoth(const Order &given) {
    auto orderOnly = std::make_unique<ScheduleFacts>(problem, /*bucketing=*/false);
    auto alone = beginSearch(*orderOnly, given);
    alone->run(effort, targetOf(*orderOnly));
    count(*alone);
    result.leastOrder = alone->leastOfAllOrders();
    for (NodeId node : alone->order())
      result.orderAlone.push_back(alone->expanded().origin[node]);
    if (!withBuckets)
      withBuckets = std::make_unique<ScheduleFacts>(problem, options.bucketing);
    if (!llvm::is_contained(withBuckets->mergeable, true))
      return take(*alone, result);
    if (!joint)
      joint = beginSearch(*withBuckets, given);
    const int64_t stepsAlone = alone->steps();
    joint->adopt(std::move(*alone));
    alone.reset();
    orderOnly.reset();
    // What the order alone has left of its effort is for the buckets.
    finish(effort + joint->steps() + std::max<int64_t>(effort - stepsAlone, 0), targetOf(*withBuckets));
  }

  /// Begins with the first answer with buckets. If it is shorter than every order without, the search for buckets gets
  /// all of the effort. Returns whether that is so.
  bool searchBucketsFirst(const Order &given) {
    if (!options.bucketing || effort == 0 || problem.size() <= ExactSearch::kMaxNodes)
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
    result.leastSchedule = joint->leastOfAllSchedules();
  }

  /// An order within the limit, or as close to it as the share of the effort for that allows. Of a small problem, the
  /// lowest peak of all orders.
  Order belowLimit(Order order) {
    if (result.inputPeak <= result.limit)
      return order;
    const int64_t allowed = std::max<int64_t>(mulDiv(effort, kReducePercent, 100), problem.size());
    int64_t steps = allowed;
    Bytes peak = result.inputPeak;
    auto accept = [&](llvm::ArrayRef<NodeId> candidate) { return peakOf(problem, candidate) < peak; };
    order = keepTogether(problem, reducePeak(problem, order, result.limit, steps), accept).value_or(order);
    peak = peakOf(problem, order);
    result.steps = allowed - steps;
    effort -= result.steps;
    if (peak <= result.limit || problem.size() > PrefixSets::kMaxNodes)
      return order;
    steps = std::max(steps, kLowestPeakSteps);
    if (std::optional<Order> lowest = findLowestPeak(problem, result.limit, steps)) {
      if (Bytes least = peakOf(problem, *lowest); least > result.limit)
        result.leastPeak = least;
      order = keepTogether(problem, *lowest, accept).value_or(order);
    }
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
    auto search = std::make_unique<Search>(facts, options, Reference(facts, given), limit, std::move(other));
    for (const Schedule *known : options.known)
      search->beginFrom(*known);
    return search;
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
  /// The search for order and buckets, once it has begun, and what it refers to.
  std::unique_ptr<ScheduleFacts> withBuckets;
  std::unique_ptr<Search> joint;
  Schedule result;
  int64_t effort = 0;
  Bytes limit = 0;
  /// An order that leaves more of the limit free than the given one, if there is one.
  std::optional<Order> roomy;
};

} // namespace

Schedule commsched::scheduleCore(const Problem &given, const ScheduleOptions &options) {
  if (!needsCopy(given, options))
    return Solver(given, options).run();
  const Problem problem = constrained(given, options);
  return Solver(problem, options).run();
}
