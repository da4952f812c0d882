//===- SearchPolicies.cpp - Which policies a search decodes -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The portfolio, the sampled policies and deadlines come first, then policies that differ in single numbers from the
// best ones, and at last some that are changed at random.
//
//===------------------------------------------------------------------------------------------===//

#include "Search.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// The climb continues from a result that is longer than the point it came from by at most a random share of this
/// tolerance, in millionths of the makespan: far less than what a report shows.
constexpr int64_t kTolerancePpm = 200;
/// Number of points that the climb changes.
constexpr size_t kPool = 4;
/// Every kPatience steps of the climb, a point that is more than kBehindPpm millionths longer than the best one is
/// replaced by the best one.
constexpr int64_t kPatience = 24, kBehindPpm = 10000;
/// The first answer is the best of at most kFirstDecodes decodes, which take at most kFirstSteps steps together (a few
/// hundredths of a second).
constexpr size_t kFirstDecodes = 24;
constexpr int64_t kFirstSteps = 200000;
/// Estimates of the makespan from which deadlines follow, in permille of the shortest known makespan.
constexpr int64_t kEstimates[] = {960, 920, 980, 990};
/// Number of policies of the portfolio that are decoded before deadlines are tried.
constexpr size_t kDecodesBeforeDeadlines = 4;
/// Limit on the number of rounds over kEstimates; a round that does not help is the last one.
constexpr int32_t kDeadlineRounds = 3;
/// With buckets, policies that come after the deadlines are given up if they exceed the best makespan by more than
/// this, in permille: memory makes some of them far longer, and their steps are better spent on moves.
constexpr int64_t kWorthwhilePermille = 20;
/// Shares of the effort, in percent, with buckets: for the knobs that help most, and for the rest of the portfolio.
constexpr int64_t kTunePercent = 20, kRestPercent = 5;

} // namespace

/// Decodes the policies of the portfolio that have not been decoded. With buckets, small ones and deadlines come after
/// the first few, then the numbers that help most. Returns whether the search goes on.
bool Search::decodePortfolio(int64_t effort) {
  std::vector<Policy> policies = portfolio(facts, limit);
  for (; nextPolicy < policies.size(); ++nextPolicy) {
    if (nextPolicy == kDecodesBeforeDeadlines && !facts.bucketing)
      compareReferences();
    if (nextPolicy == kDecodesBeforeDeadlines && facts.bucketing && !isTuned) {
      budget = std::min(effort, spent + mulDiv(effort, kTunePercent, 100));
      if (!isFirstAnswer) {
        trySamples();
        compareReferences();
      }
      if (effort > 0)
        trySmallBuckets();
      setDeadlines();
      tune();
      isTuned = effort > 0;
      budget = std::min(effort, spent + mulDiv(effort, kRestPercent, 100));
      worthwhile = bestMakespan + mulDiv(bestMakespan, kWorthwhilePermille, 1000);
    }
    if (shouldStop())
      break;
    phase = SearchPhase::Portfolio;
    if (ahead.empty())
      decodeAhead(llvm::ArrayRef(policies).drop_front(nextPolicy));
    decodePolicy(policies[nextPolicy]);
  }
  ahead.clear();
  budget = effort;
  return !shouldStop();
}

/// Decodes a policy, unless that was done ahead, and keeps the result as a point of the local search.
void Search::decodePolicy(const Policy &policy) {
  SearchPoint point;
  point.policy = policy;
  point.reference = preferred;
  if (phase != SearchPhase::Portfolio) {
    decode(point, kFailed);
  } else if (ahead.empty()) {
    decode(point, worthwhile);
  } else {
    Trial trial = std::move(ahead.back());
    ahead.pop_back();
    judge(point, std::move(trial), worthwhile);
  }
  points.push_back(std::move(point));
}

/// Decodes the first of `policies` at once, one for each thread, as many as the search is likely to need. They depend
/// on the given order alone, not on each other, and are judged one after the other as if each were decoded in its turn:
/// so the answer is the same for any number of threads. What the search ends before is thrown away.
void Search::decodeAhead(llvm::ArrayRef<Policy> policies) {
  if (executor.threads < 2 || points.empty())
    return;
  auto known = static_cast<int64_t>(points.size());
  int64_t each = std::max<int64_t>(spent / known, 1);
  int64_t forFirst = std::min<int64_t>(static_cast<int64_t>(kFirstDecodes) - known, (kFirstSteps - spent) / each);
  int64_t likely = std::max((budget - spent) / each + 1, forFirst);
  if (facts.bucketing && points.size() < kDecodesBeforeDeadlines)
    likely = std::min<int64_t>(likely, static_cast<int64_t>(kDecodesBeforeDeadlines) - known);
  size_t count = std::min({policies.size(), executor.threads, static_cast<size_t>(std::max<int64_t>(likely, 1))});
  if (count < 2)
    return;
  while (moreDecoders.size() < count)
    moreDecoders.push_back(std::make_unique<Decoder>(facts));
  ahead.resize(count);
  executor.run(count, [&](size_t index) {
    SearchPoint point;
    point.policy = policies[index];
    point.reference = preferred;
    ahead[count - 1 - index] = attempt(*moreDecoders[index], point, worthwhile);
  });
}

/// Whether the search ends: the target is reached, or the effort and the allowance of a first answer are spent.
bool Search::shouldStop() const {
  if (points.empty() || !exhausted())
    return false;
  int64_t next = spent / static_cast<int64_t>(points.size());
  return bestMakespan <= target || points.size() >= kFirstDecodes || spent + next > kFirstSteps;
}

/// Decodes the policies so far from the roomy reference, too, and prefers it if the shortest of these
/// schedules is shorter than the shortest of the others.
void Search::compareReferences() {
  if (uncompared == kNone || points.empty())
    return;
  auto shortest = [](llvm::ArrayRef<SearchPoint> some) {
    Ns result = kFailed;
    for (const SearchPoint &point : some)
      result = std::min(result, point.makespan);
    return result;
  };
  std::vector<SearchPoint> others;
  for (const SearchPoint &point : points) {
    if (shouldStop())
      break;
    others.push_back(point);
    others.back().reference = uncompared;
    decode(others.back(), kFailed);
  }
  if (shortest(others) < shortest(points)) {
    preferred = uncompared;
    ahead.clear();
  }
  uncompared = kNone;
  llvm::append_range(points, others);
}

/// Decodes the sampled policies.
void Search::trySamples() {
  phase = SearchPhase::Sweep;
  for (const Policy &policy : sampledPolicies(facts, limit, incumbent.makespan)) {
    if (shouldStop())
      return;
    decodePolicy(policy);
  }
}

/// Decodes with small buckets. Deadlines are then set for that policy if it is the best one.
void Search::trySmallBuckets() {
  if (shouldStop())
    return;
  phase = SearchPhase::Sweep;
  decodePolicy(smallBucketPolicy(limit));
}

/// Decodes with deadlines. Deadlines help only if they follow from a makespan that can be reached and is shorter than
/// the best one, so several estimates are tried.
void Search::setDeadlines() {
  phase = SearchPhase::Deadlines;
  Ns base = facts.horizonBase();
  Policy best = llvm::min_element(points, [](const SearchPoint &a, const SearchPoint &b) {
                  return a.makespan < b.makespan;
                })->policy;
  for (Policy policy : {deadlinePolicy(), best})
    for (int32_t round = 0; round < kDeadlineRounds; ++round) {
      Ns before = bestMakespan;
      for (int64_t share : kEstimates) {
        if (shouldStop())
          return;
        policy.horizon = mulDiv(mulDiv(incumbent.makespan, share, 1000), 1000, base);
        decodePolicy(policy);
      }
      if (bestMakespan == before)
        break;
    }
}

/// Sets a knob of a point, and keeps that if the schedule becomes shorter.
bool Search::tryKnob(SearchPoint &point, KnobValue setting) {
  if (setting.value < 0 || setting.value >= numValues(setting.knob))
    return false;
  SearchPoint next = point;
  next.policy = withKnob(point.policy, setting.knob, setting.value, limit);
  if (areEqual(next.policy, point.policy))
    return false;
  bool isShorter = decode(next, point.makespan) < point.makespan;
  if (!isTuned)
    points.push_back(next);
  if (isShorter)
    point = std::move(next);
  return isShorter;
}

/// Sets those knobs of the best point that help most, and where one helped, its neighbouring values.
void Search::tune() {
  phase = SearchPhase::Sweep;
  SearchPoint best =
      *llvm::min_element(points, [](const SearchPoint &a, const SearchPoint &b) { return a.makespan < b.makespan; });
  for (bool improved = true; improved;) {
    improved = false;
    for (KnobValue setting : tunings()) {
      if (shouldStop())
        return;
      if (!tryKnob(best, setting))
        continue;
      improved = true;
      for (int32_t step : {-1, 1})
        for (int32_t value = setting.value + step; !shouldStop() && tryKnob(best, {setting.knob, value});)
          value += step;
    }
  }
}

/// Coordinate descent: sets one knob after another to each of its values, and keeps what shortens the schedule, until
/// nothing does.
void Search::sweep(SearchPoint &point) {
  phase = SearchPhase::Sweep;
  for (bool improved = true; improved;) {
    improved = false;
    for (int32_t knob : knobsOf(facts))
      for (int32_t value = 0; value < numValues(knob); ++value) {
        if (exhausted())
          return;
        improved |= tryKnob(point, {knob, value});
      }
  }
}

/// Changes a point a little: a knob, the reference, or the keys of some neighbours in the reference.
void Search::perturb(SearchPoint &point, SplitMix64 &random) const {
  int64_t kind = random.below(10);
  if (kind == 0 && references.size() > 1) {
    point.reference = static_cast<int32_t>(random.below(static_cast<int64_t>(references.size())));
    return;
  }
  if (facts.bucketing && kind < 4) {
    point.policy = nudged(point.policy, random);
    return;
  }
  if (kind < 6) {
    for (int64_t turns = 1 + random.below(2); turns > 0; --turns) {
      llvm::ArrayRef<int32_t> knobs = knobsOf(facts);
      int32_t knob = knobs[random.below(static_cast<int64_t>(knobs.size()))];
      point.policy = withKnob(point.policy, knob, static_cast<int32_t>(random.below(numValues(knob))), limit);
    }
    return;
  }
  NodeId size = facts.problem.size();
  if (point.bias.empty())
    point.bias.assign(size, 0);
  // Widths and amplitudes are spread over the powers of two.
  int64_t width = std::min<int64_t>(size, int64_t(1) << random.below(12));
  Ns total = references[point.reference].makespan;
  int64_t first = random.below(size), amplitude = std::max<Ns>(total >> (2 + random.below(14)), 1);
  bool together = random.below(2) == 0, startsOnly = random.below(2) == 0;
  int64_t shift = random.below(2 * amplitude + 1) - amplitude;
  for (int64_t at = first; at < std::min<int64_t>(first + width, size); ++at) {
    NodeId node = references[point.reference].order[at];
    if (startsOnly == (facts.problem.nodes[node].kind == NodeKind::Start))
      point.bias[node] += together ? shift : random.below(2 * amplitude + 1) - amplitude;
  }
}

/// Iterated local search: changes a few points at random, and keeps each change that is within the tolerance. Half of
/// the changes start from the best point.
void Search::climb() {
  phase = SearchPhase::Climb;
  llvm::stable_sort(points, [](const SearchPoint &a, const SearchPoint &b) { return a.makespan < b.makespan; });
  std::vector<SearchPoint> pool;
  for (const SearchPoint &point : points)
    if (pool.size() < kPool && point.makespan != kFailed && (pool.empty() || pool.back().makespan != point.makespan))
      pool.push_back(point);
  if (pool.empty())
    return;
  for (int64_t step = 1; !exhausted(); ++step) {
    size_t at =
        climbRandom.below(2) == 0 ? 0 : static_cast<size_t>(climbRandom.below(static_cast<int64_t>(pool.size())));
    SearchPoint next = pool[at];
    settleReference();
    perturb(next, climbRandom);
    Ns allowed = pool[at].makespan + mulDiv(pool[at].makespan, climbRandom.below(kTolerancePpm + 1), 1000000);
    if (decode(next, allowed + 1) <= allowed)
      pool[at] = std::move(next);
    if (at > 0 && pool[at].makespan < pool.front().makespan)
      std::swap(pool[at], pool.front());
    if (step % kPatience == 0 && pool.size() > 1) {
      size_t other = 1 + static_cast<size_t>(climbRandom.below(static_cast<int64_t>(pool.size()) - 1));
      if (pool[other].makespan - pool.front().makespan > mulDiv(pool.front().makespan, kBehindPpm, 1000000))
        pool[other] = pool.front();
    }
  }
  points.insert(points.end(), pool.begin(), pool.end());
}
