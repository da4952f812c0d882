//===- Search.cpp - The solver's search -------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "Search.h"
#include "CommSched/Scheduling/Model/KeepTogether.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Scheduling/Model/ScheduleVerifier.h"
#include "CommSched/Scheduling/Model/Timeline.h"
#include "ExactSearch.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <limits>

using namespace commsched;

namespace {

constexpr Ns kFailed = std::numeric_limits<Ns>::max();
/// A climb goes on from an answer that is at most this much longer than the one it came from, in millionths.
constexpr int64_t kTolerancePpm = 200;
/// Points that a climb goes from, and after how many steps one that is so many millionths longer than the best is given
/// up.
constexpr size_t kPool = 4;
constexpr int64_t kPatience = 24, kBehindPpm = 10000;
/// The first answer is the best of so many decodes, as long as they take no more than so many steps.
constexpr size_t kFirstDecodes = 24;
constexpr int64_t kFirstSteps = 200000;
/// Estimates of the makespan that deadlines are set by, in permille of the shortest one known; and how many decodes of
/// the portfolio come first.
constexpr int64_t kAims[] = {960, 920, 980, 990};
constexpr size_t kDecodesBeforeAims = 4;
/// They are tried again as long as they help, up to so many times.
constexpr int32_t kAimRounds = 3;
/// Of the effort, the share that an exact search of a small problem may use, and that of the order of the buckets that
/// were found, in percent.
constexpr int64_t kExactPercent = 30, kExactLastPercent = 10;
/// Of the effort, the share that the systematic sweep over single knobs may use, in percent.
constexpr int64_t kSweepPercent = 50;

} // namespace

Order commsched::withoutBuckets(const Problem &problem, const DecodedSchedule &decoded) {
  Order order;
  order.reserve(problem.size());
  std::vector<char> placed(problem.size(), 0);
  auto place = [&](NodeId node) {
    if (!std::exchange(placed[node], 1))
      order.push_back(node);
  };
  for (DecodeStep step : decoded.steps) {
    if (step.what == DecodeStep::Run || step.what == DecodeStep::Unpack) {
      place(step.id);
      continue;
    }
    const Bucket &bucket = decoded.buckets[step.id];
    if (step.what == DecodeStep::Start)
      for (NodeId member : bucket.members) {
        if (NodeId cast = fusedCast(problem, member); cast != kNone)
          place(cast);
        place(member);
      }
    if (step.what == DecodeStep::Wait)
      for (NodeId member : bucket.members)
        place(problem.members[member].wait);
  }
  return order;
}

Search::Search(const ScheduleFacts &facts, const ScheduleOptions &options, Order given, Bytes limit)
    : facts(facts), mode(options.collectiveOrder), slowDown(options.slowDown), limit(limit),
      units(hasUnits(facts.problem)), decoder(facts) {
  references.emplace_back(facts, std::move(given));
  incumbent.makespan = references.front().makespan;
  incumbent.peak = references.front().peak;
  bestMakespan = makespanOf(facts.problem, references.front().order, slowDown);
  for (NodeId node : references.front().order)
    incumbent.steps.push_back({DecodeStep::Run, node});
  carriedOut = llvm::cantFail(expandBuckets(facts.problem, {}));
  bestOrder = references.front().order;
  for (NodeId &node : bestOrder)
    node = carriedOut.image[node];
  numIncumbents = 1;
}

/// The steps of an order of an expanded problem.
static std::vector<DecodeStep> stepsOf(const Problem &problem, llvm::ArrayRef<Bucket> buckets,
                                       const ExpandedProblem &expanded, llvm::ArrayRef<NodeId> order) {
  std::vector<DecodeStep> steps;
  for (NodeId node : order) {
    if (expanded.origin[node] != kNone) {
      steps.push_back({DecodeStep::Run, expanded.origin[node]});
      continue;
    }
    int32_t index = expanded.bucketOf[node];
    const BucketNodes &names = expanded.buckets[index];
    auto unpack = llvm::find(names.unpacks, node);
    if (unpack != names.unpacks.end()) {
      NodeId member = buckets[index].members[unpack - names.unpacks.begin()];
      steps.push_back({DecodeStep::Unpack, problem.members[member].wait});
    } else {
      steps.push_back({node == names.pack    ? DecodeStep::Pack
                       : node == names.start ? DecodeStep::Start
                       : node == names.wait  ? DecodeStep::Wait
                                             : DecodeStep::View,
                       index});
    }
  }
  return steps;
}

/// Looks at every order of the incumbent's problem, buckets carried out, if that is small enough. Returns whether the
/// incumbent's order is known to be the best one then. Slow-downs only lengthen: what is no shorter without them than
/// the incumbent is with them cannot be better.
bool Search::searchExactly(int64_t share) {
  const Problem &problem = carriedOut.problem;
  if (problem.size() > ExactSearch::kMaxNodes || exhausted())
    return false;
  ExactSearch exact(problem, limit, bestMakespan);
  int64_t steps = std::min(share, budget - spent), before = steps;
  bool complete = exact.run(steps);
  spent += before - steps;
  if (exact.order().empty())
    return complete;
  DecodedSchedule found;
  found.buckets = incumbent.buckets;
  found.makespan = exact.makespan();
  found.steps = stepsOf(facts.problem, found.buckets, carriedOut, exact.order());
  bool isBetter = settleUnits(found) && timeOf(found) < bestMakespan && accept(found);
  if (isBetter)
    addReference(incumbent);
  return isBetter && complete && !slowDown.any();
}

/// How long a decode takes with the slow-downs. Without any it is what the decode says; else O(N log N).
Ns Search::timeOf(const DecodedSchedule &decoded) {
  if (!slowDown.any())
    return decoded.makespan;
  llvm::Expected<ExpandedProblem> expanded = expandBuckets(facts.problem, decoded.buckets);
  if (!expanded) {
    // accept() reports it.
    llvm::consumeError(expanded.takeError());
    return decoded.makespan;
  }
  spent += facts.problem.size();
  return makespanOf(expanded->problem, orderOf(decoded, *expanded), slowDown);
}

/// Gathers units that the decode has torn apart: it sees their outer dependences alone. Fails where that passes the
/// limit.
bool Search::settleUnits(DecodedSchedule &decoded) {
  if (!units)
    return true;
  const Problem &problem = facts.problem;
  llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, decoded.buckets);
  if (!expanded) {
    // accept() reports it.
    llvm::consumeError(expanded.takeError());
    return true;
  }
  Order order = orderOf(decoded, *expanded);
  auto accept = [&](llvm::ArrayRef<NodeId> candidate) { return peakOf(expanded->problem, candidate) <= limit; };
  std::optional<Order> settled = keepTogether(expanded->problem, order, accept);
  spent += problem.size();
  if (!settled)
    return false;
  if (*settled == order)
    return true;
  decoded.steps = stepsOf(problem, decoded.buckets, *expanded, *settled);
  decoded.makespan = makespanOf(expanded->problem, *settled);
  decoded.peak = peakOf(expanded->problem, *settled);
  return true;
}

/// Takes a decode as the incumbent if the models and the verifier agree with it.
bool Search::accept(const DecodedSchedule &decoded) {
  auto reject = [&](std::string why) {
    if (firstDefect.empty())
      firstDefect = std::move(why);
    return false;
  };
  llvm::Expected<ExpandedProblem> expanded = expandBuckets(facts.problem, decoded.buckets);
  if (!expanded)
    return reject(llvm::toString(expanded.takeError()));
  Schedule candidate;
  candidate.buckets = decoded.buckets;
  candidate.expanded = std::move(*expanded);
  candidate.order = orderOf(decoded, candidate.expanded);
  const Problem &carried = candidate.expanded.problem;
  candidate.claims = {decoded.makespan, peakOf(carried, candidate.order)};
  ScheduleRequirements requirements;
  requirements.peakLimit = limit >= kUnlimited ? -1 : limit;
  requirements.collectiveOrder = mode;
  if (std::string why = verify(facts.problem, candidate, requirements); !why.empty())
    return reject(std::move(why));
  if (makespanOf(carried, candidate.order) != decoded.makespan)
    return reject("the decode's clocks disagree with the timeline");
  incumbent = decoded;
  incumbent.peak = candidate.claims->peak;
  bestMakespan = makespanOf(carried, candidate.order, slowDown);
  carriedOut = std::move(candidate.expanded);
  bestOrder = std::move(candidate.order);
  ++numIncumbents;
  spent += facts.problem.size();
  return true;
}

/// Decodes a point; its makespan becomes the decode's, or kFailed.
Ns Search::decode(Point &point, Ns cutoff) {
  const Reference &reference = references[point.reference];
  Bytes share = limit >= kUnlimited ? limit : mulDiv(limit, point.policy.limitShare, 1000);
  DecodedSchedule decoded;
  bool fits = decoder.run(reference, point.policy, std::max(share, std::min(limit, reference.peak)), cutoff, point.bias,
                          decoded);
  spent += std::max<int64_t>(decoded.work, facts.problem.size());
  fits = fits && settleUnits(decoded);
  point.makespan = fits ? timeOf(decoded) : kFailed;
  if (fits && point.makespan < bestMakespan && accept(decoded))
    addReference(incumbent);
  return point.makespan;
}

/// Lets later decodes fall back to the incumbent's order.
void Search::addReference(const DecodedSchedule &decoded) {
  Reference reference(facts, withoutBuckets(facts.problem, decoded));
  spent += facts.problem.size();
  if (reference.peak > limit)
    return;
  if (references.size() < 2)
    references.push_back(std::move(reference));
  else
    references.back() = std::move(reference);
}

void Search::adopt(const Search &other) {
  if (other.bestMakespan >= bestMakespan)
    return;
  incumbent = other.incumbent;
  bestMakespan = other.bestMakespan;
  carriedOut = other.carriedOut;
  bestOrder = other.bestOrder;
  addReference(incumbent);
}

void Search::run(int64_t effort, Ns bound) {
  budget = effort;
  target = bound;
  for (const Policy &policy : portfolio(facts, limit)) {
    if (points.size() == kDecodesBeforeAims && facts.bucketing)
      aim();
    if (isAnswered())
      return;
    begin(policy);
  }
  if (incumbent.buckets.empty() && searchExactly(mulDiv(effort, kExactPercent, 100)) && !facts.bucketing)
    return;
  llvm::stable_sort(points, [](const Point &a, const Point &b) { return a.makespan < b.makespan; });
  Point best = points.front();
  budget = mulDiv(effort, kSweepPercent, 100);
  sweep(best);
  points.push_back(best);
  bool isSmall = facts.problem.size() <= ExactSearch::kMaxNodes;
  budget = effort - (isSmall ? mulDiv(effort, kExactLastPercent, 100) : 0);
  if (!exhausted())
    climb();
  budget = effort;
  searchExactly(effort);
}

/// Decodes a policy of the portfolio.
void Search::begin(const Policy &policy) {
  Point point;
  point.policy = policy;
  decode(point, kFailed);
  points.push_back(std::move(point));
}

/// Whether there is nothing left to gain, or to spend: neither effort, nor the allowance of a first answer.
bool Search::isAnswered() const {
  if (points.empty() || !exhausted())
    return false;
  int64_t next = spent / static_cast<int64_t>(points.size());
  return bestMakespan <= target || points.size() >= kFirstDecodes || spent + next > kFirstSteps;
}

/// Deadlines only help if they belong to a makespan that can be reached and is better than what is known.
void Search::aim() {
  Ns base = facts.horizonBase();
  Policy best =
      llvm::min_element(points, [](const Point &a, const Point &b) { return a.makespan < b.makespan; })->policy;
  for (Policy policy : {deadlinePolicy(), best})
    for (int32_t round = 0; round < kAimRounds; ++round) {
      Ns before = bestMakespan;
      for (int64_t share : kAims) {
        if (isAnswered())
          return;
        policy.horizon = mulDiv(mulDiv(incumbent.makespan, share, 1000), 1000, base);
        begin(policy);
      }
      if (bestMakespan == before)
        break;
    }
}

/// Turns every knob to every value, again and again, and keeps what helps.
void Search::sweep(Point &point) {
  for (bool improved = true; improved;) {
    improved = false;
    for (int32_t knob = 0; knob < numKnobs(facts); ++knob)
      for (int32_t value = 0; value < numValues(knob); ++value) {
        if (exhausted())
          return;
        Point next = point;
        next.policy = turned(point.policy, knob, value, limit);
        if (decode(next, point.makespan) >= point.makespan)
          continue;
        point = std::move(next);
        improved = true;
      }
  }
}

/// Moves a point a little: a knob, the reference, or the keys of some neighbours in the reference.
void Search::perturb(Point &point, Generator &random) const {
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
      int32_t knob = static_cast<int32_t>(random.below(numKnobs(facts)));
      point.policy = turned(point.policy, knob, static_cast<int32_t>(random.below(numValues(knob))), limit);
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

/// Random steps from a few points, each kept unless it is worse. Half of them go from the best point; one that has
/// fallen far behind is given up for it.
void Search::climb() {
  llvm::stable_sort(points, [](const Point &a, const Point &b) { return a.makespan < b.makespan; });
  std::vector<Point> pool;
  for (const Point &point : points)
    if (pool.size() < kPool && point.makespan != kFailed && (pool.empty() || pool.back().makespan != point.makespan))
      pool.push_back(point);
  if (pool.empty())
    return;
  Generator random(0x436f6d6d53636865ull);
  for (int64_t step = 1; !exhausted(); ++step) {
    size_t at = random.below(2) == 0 ? 0 : static_cast<size_t>(random.below(static_cast<int64_t>(pool.size())));
    Point next = pool[at];
    perturb(next, random);
    Ns allowed = pool[at].makespan + mulDiv(pool[at].makespan, random.below(kTolerancePpm + 1), 1000000);
    if (decode(next, allowed + 1) <= allowed)
      pool[at] = std::move(next);
    if (at > 0 && pool[at].makespan < pool.front().makespan)
      std::swap(pool[at], pool.front());
    if (step % kPatience == 0 && pool.size() > 1) {
      size_t other = 1 + static_cast<size_t>(random.below(static_cast<int64_t>(pool.size()) - 1));
      if (pool[other].makespan - pool.front().makespan > mulDiv(pool.front().makespan, kBehindPpm, 1000000))
        pool[other] = pool.front();
    }
  }
  points.insert(points.end(), pool.begin(), pool.end());
}
