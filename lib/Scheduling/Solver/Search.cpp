//===- Search.cpp - Iterated local search over policies ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The phases of a search, its moves, and the gate that every improvement passes before it becomes the incumbent. Which
// policies it decodes is in SearchPolicies.cpp.
//
//===------------------------------------------------------------------------------------------===//

#include "Search.h"
#include "CommSched/Scheduling/Model/KeepTogether.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Scheduling/Model/ScheduleVerifier.h"
#include "CommSched/Scheduling/Model/Timeline.h"
#include "ExactSearch.h"
#include "WindowSearch.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cassert>

using namespace commsched;

namespace {

/// Shares of the effort, in percent: for the exact search of a small problem, and for the exact search of the order of
/// the buckets that were found.
constexpr int64_t kExactPercent = 30, kExactLastPercent = 10;
/// Widths of the windows that are searched exactly, in positions.
constexpr int32_t kWindows[] = {16, 32};
/// Shares of the effort, in percent: that moves of single nodes may take before the sweep, and of one turn of the moves
/// or of the climb.
constexpr int64_t kMovesPercent = 95, kSlicePercent = 5;
/// With buckets, and in small problems, the moves before the sweep may lengthen the order: at first by up to this share
/// of the makespan, in millionths, then by half of that after each of kCoolings equal parts of their effort, and in a
/// last part not at all.
constexpr int64_t kSlackPpm = 20, kCoolings = 10;
/// A problem is small up to about this many nodes: the default effort is then 1,000 steps for each. At first, the slack
/// is half of the mean time of a node there.
constexpr NodeId kMostSmall = 3000;
/// They end before if this many slices one after the other have found nothing shorter.
constexpr int64_t kFruitlessSlices = 4;
/// Later, every so many turns in which the moves found nothing shorter, they may lengthen the order as at first, for
/// half of a turn.
constexpr int32_t kTurnsPerHeat = 4;
/// Share of the effort, in percent, that the sweep over single knobs may take; never more than half of what is left.
constexpr int64_t kSweepPercent = 20, kSweepWithBucketsPercent = 10;
/// What a call of ScheduleOptions::admits counts as, in steps for each node: about what a plan of its buffers takes.
constexpr int64_t kStepsToAdmit = 8;
/// Limit on the number of times by which a slice of the moves is made smaller because its orders are not admitted.
constexpr int64_t kMinSliceShare = 64;
/// Seed of the climb: "CommSche" in ASCII. Any constant would do.
constexpr uint64_t kClimbSeed = 0x436f6d6d53636865ull;

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

Search::Search(const ScheduleFacts &facts, const ScheduleOptions &options, Reference given, Bytes limit,
               std::optional<Reference> roomy)
    : facts(facts), mode(options.collectiveOrder), slowDown(options.slowDown), observers(options.observers),
      limit(limit), units(hasUnits(facts.problem)), executor(options.executor), admits(options.admits), decoder(facts),
      climbRandom(kClimbSeed) {
  references.push_back(std::move(given));
  incumbent.makespan = references.front().makespan;
  incumbent.peak = references.front().peak;
  bestMakespan = slowDown.any() ? makespanOf(facts.problem, references.front().order, slowDown) : incumbent.makespan;
  incumbent.steps.reserve(references.front().order.size());
  for (NodeId node : references.front().order)
    incumbent.steps.push_back({DecodeStep::Run, node});
  bestOrder = references.front().order;
  numIncumbents = 1;
  if (!roomy)
    return;
  uncompared = static_cast<int32_t>(references.size());
  references.push_back(std::move(*roomy));
}

/// Carries the given order out if it is still the incumbent, and nobody has done so yet. Without buckets, every node
/// keeps its number.
void Search::carryOutGiven() {
  if (!carriedOut.image.empty())
    return;
  carriedOut = llvm::cantFail(expandBuckets(facts.problem, {}));
  assert(carriedOut.image == identityOrder(facts.problem) && "nothing is merged");
}

/// Enumerates the orders of the incumbent's problem, buckets carried out, if it is small enough. Returns whether the
/// incumbent's order is known to be the best one afterwards. Slow-downs and contention only lengthen, so an order that
/// is not shorter without them than the incumbent is with them cannot be better.
bool Search::searchExactly(int64_t share) {
  carryOutGiven();
  const Problem &problem = carriedOut.problem;
  if (problem.size() > ExactSearch::kMaxNodes || exhausted())
    return false;
  phase = SearchPhase::Exact;
  ExactSearch exact(problem, limit, bestMakespan);
  int64_t steps = std::min(share, budget - spent), before = steps, spentBefore = spent;
  bool complete = exact.run(steps);
  // A search that its first bound ends has looked at the problem all the same.
  spent += std::max<int64_t>(before - steps, 1);
  if (exact.order().empty()) {
    if (complete && incumbent.buckets.empty())
      leastOrder = bestMakespan;
    notify(nullptr, nullptr, /*makespan=*/0, SearchVerdict::CutOff, spentBefore);
    return complete;
  }
  if (complete && incumbent.buckets.empty())
    leastOrder = exact.makespan();
  DecodedSchedule found;
  found.buckets = incumbent.buckets;
  found.makespan = exact.makespan();
  found.steps = stepsOf(facts.problem, found.buckets, carriedOut, exact.order());
  bool isBetter = offer(std::move(found), spentBefore) == SearchVerdict::Incumbent;
  return isBetter && complete && !slowDown.any() && !problem.hasContention();
}

/// Offers a schedule that no policy was decoded to, and whose makespan is that without contention.
SearchVerdict Search::offer(DecodedSchedule found, int64_t spentBefore) {
  if (facts.problem.hasContention())
    found.makespan = play(found);
  Ns time = gatherUnits(found) ? timeOf(found) : kFailed;
  SearchVerdict verdict = SearchVerdict::Dropped;
  if (time < bestMakespan)
    verdict = accept(found) ? SearchVerdict::Incumbent : isRefused ? SearchVerdict::CutOff : SearchVerdict::Rejected;
  if (verdict == SearchVerdict::Incumbent)
    referToIncumbent();
  notify(nullptr, time == kFailed ? nullptr : &found, time, verdict, spentBefore);
  return verdict;
}

/// Moves single nodes of the incumbent's order and changes its buckets, `slice` steps at a time for as long as that
/// helps, and goes on where it stopped if there is no other incumbent since. The first time with buckets, or in a small
/// problem, it is simulated annealing (Kirkpatrick, Gelatt and Vecchi 1983): moves may lengthen the order, less and
/// less, until the effort is spent. Slow-downs are part of no move's evaluation, so an order that is shorter without
/// them may be refused. If an order is not admitted, the moves begin again from the incumbent, half as many at a time.
void Search::moveNodes(int64_t slice, bool reheats) {
  const int64_t least = slice / kMinSliceShare, begin = spent;
  if (units)
    return;
  phase = SearchPhase::Moves;
  if (facts.problem.hasContention())
    return moveContended(slice);
  const bool anneals = (facts.bucketing || facts.problem.size() <= kMostSmall) && !std::exchange(isAnnealed, true);
  Ns shortest = kFailed;
  int64_t fruitless = 0;
  for (bool goesOn = true; goesOn && !exhausted();) {
    int64_t spentBefore = spent;
    if (!moves || numIncumbents != incumbentOfMoves) {
      moves = std::make_unique<LocalMoves>(facts, incumbent, limit, movesBegun++);
      incumbentOfMoves = numIncumbents;
      spent += facts.problem.size();
    }
    shortest = std::min(shortest, moves->makespan());
    Ns slack = anneals ? slackAfter(spentBefore - begin, budget - begin) : 0;
    int64_t steps = std::min(slice, budget - spent), given = steps;
    if (std::exchange(reheats, false)) {
      int64_t forHeat = steps / 2, left = forHeat;
      moves->run(left, target, firstSlack());
      steps -= forHeat - left;
    }
    moves->run(steps, target, slack);
    if (steps == given)
      break;
    spent += given - steps;
    bool improved = moves->makespan() < shortest;
    fruitless = improved ? 0 : fruitless + 1;
    goesOn = improved || (slack > 0 && fruitless < kFruitlessSlices);
    if (!improved)
      notify(nullptr, nullptr, /*makespan=*/0, SearchVerdict::CutOff, spentBefore);
    else if (offer(moves->decoded(), spentBefore) == SearchVerdict::Incumbent)
      incumbentOfMoves = numIncumbents;
    else if (isRefused) {
      moves.reset();
      slice /= 2;
      goesOn = slice > least;
    }
    if (!improved && !anneals && searchWindows(slice))
      goesOn = true;
    phase = SearchPhase::Moves;
  }
  if (moves && moves->makespan() > shortest)
    moves.reset();
}

/// Searches windows of the incumbent's order exactly, with the buckets that it has, for as long as that helps and at
/// most for `share` steps. Returns whether there is a new incumbent. As with moves, slow-downs are not seen.
bool Search::searchWindows(int64_t share) {
  if (units || facts.problem.hasContention() || exhausted() || numIncumbents == incumbentOfWindows)
    return false;
  phase = SearchPhase::Exact;
  carryOutGiven();
  const int64_t spentBefore = spent;
  WindowSearch windows(carriedOut.problem, bestOrder, limit);
  const Ns before = windows.makespan();
  int64_t steps = std::min(share, budget - spent), given = steps;
  for (int32_t width : kWindows)
    while (windows.sweep(width, steps, target)) {
    }
  spent += given - steps + carriedOut.problem.size();
  bool isShorter = windows.makespan() < before;
  if (isShorter) {
    DecodedSchedule found;
    found.buckets = incumbent.buckets;
    found.makespan = windows.makespan();
    found.steps = stepsOf(facts.problem, found.buckets, carriedOut, windows.order());
    isShorter = offer(std::move(found), spentBefore) == SearchVerdict::Incumbent;
  } else {
    notify(nullptr, nullptr, /*makespan=*/0, SearchVerdict::CutOff, spentBefore);
  }
  if (!isShorter || steps > 0)
    incumbentOfWindows = numIncumbents;
  return isShorter;
}

/// By how much a move may lengthen the order when the annealing begins, ns.
Ns Search::firstSlack() const {
  const NodeId size = facts.problem.size();
  return size <= kMostSmall ? bestMakespan / (2 * std::max<NodeId>(size, 1))
                            : mulDiv(bestMakespan, kSlackPpm, kMillion);
}

/// By how much a move may lengthen the order after `done` of `all` steps of the annealing, ns.
Ns Search::slackAfter(int64_t done, int64_t all) const {
  int64_t coolings = mulDiv(kCoolings + 1, done, std::max<int64_t>(all, 1));
  return coolings >= kCoolings ? 0 : firstSlack() >> coolings;
}

/// The same with contention: buckets stay as they are.
void Search::moveContended(int64_t slice) {
  carryOutGiven();
  for (bool improved = true; improved && !exhausted();) {
    int64_t spentBefore = spent;
    if (!contendedMoves || numIncumbents != incumbentOfMoves) {
      contendedMoves = std::make_unique<ContendedMoves>(carriedOut.problem, bestOrder, limit);
      incumbentOfMoves = numIncumbents;
      spent += facts.problem.size();
    }
    int64_t steps = std::min(slice, budget - spent), given = steps;
    contendedMoves->run(steps, target);
    if (steps == given)
      return;
    spent += given - steps;
    improved = contendedMoves->makespan() < bestMakespan;
    if (!improved) {
      notify(nullptr, nullptr, /*makespan=*/0, SearchVerdict::CutOff, spentBefore);
      continue;
    }
    DecodedSchedule found;
    found.buckets = incumbent.buckets;
    found.makespan = contendedMoves->makespan();
    found.steps = stepsOf(facts.problem, found.buckets, carriedOut, contendedMoves->order());
    improved = offer(std::move(found), spentBefore) == SearchVerdict::Incumbent;
    // The same buckets give the same problem again, so the moves go on.
    if (improved)
      incumbentOfMoves = numIncumbents;
  }
}

/// The makespan of a decode with the slow-downs, ns. O(1) without slow-downs, otherwise O(N log N).
Ns Search::timeOf(const DecodedSchedule &decoded) {
  return slowDown.any() && !facts.problem.hasContention() ? play(decoded) : decoded.makespan;
}

/// Plays a decode with slow-downs and contention. Returns the makespan, ns. O(N log N).
Ns Search::play(const DecodedSchedule &decoded) {
  llvm::Expected<ExpandedProblem> expanded = expandBuckets(facts.problem, decoded.buckets);
  if (!expanded) {
    // accept() reports it.
    llvm::consumeError(expanded.takeError());
    return decoded.makespan;
  }
  spent += facts.problem.size();
  return makespanOf(expanded->problem, orderOf(decoded, *expanded), slowDown);
}

/// Gathers units that the decode has torn apart, because it sees only their outer dependences. Fails if the gathered
/// order exceeds the limit.
bool Search::gatherUnits(DecodedSchedule &decoded) {
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

/// Makes a decode the incumbent if the models and the verifier agree with it, and the caller admits it.
bool Search::accept(const DecodedSchedule &decoded) {
  isRefused = false;
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
  requirements.peakLimit = limit;
  requirements.collectiveOrder = mode;
  if (std::string why = verify(facts.problem, candidate, requirements); !why.empty())
    return reject(std::move(why));
  if (makespanOf(carried, candidate.order) != decoded.makespan)
    return reject("the decode's clocks disagree with the timeline");
  if (admits) {
    spent += kStepsToAdmit * facts.problem.size();
    isRefused = !admits(carried, candidate.order);
    if (isRefused)
      return false;
  }
  settleReference();
  incumbent = decoded;
  incumbent.peak = candidate.claims->peak;
  bestMakespan = slowDown.any() ? makespanOf(carried, candidate.order, slowDown) : decoded.makespan;
  carriedOut = std::move(candidate.expanded);
  bestOrder = std::move(candidate.order);
  ++numIncumbents;
  spent += facts.problem.size();
  return true;
}

/// Decodes a point. Its makespan becomes the decode's, or kFailed. Callers continue from it if it is below `cutoff`.
Ns Search::decode(SearchPoint &point, Ns cutoff) { return judge(point, attempt(decoder, point, cutoff), cutoff); }

/// The part of a decode that changes nothing but the decoder, so that several may run at once.
Search::Trial Search::attempt(Decoder &with, const SearchPoint &point, Ns cutoff) const {
  const Reference &reference = references[point.reference];
  Bytes share = limit >= kUnlimited ? limit : mulDiv(limit, point.policy.limitShare, 1000);
  Trial trial;
  trial.fits = with.run(reference, point.policy, std::max(share, std::min(limit, reference.peak)), cutoff, point.bias,
                        trial.decoded);
  return trial;
}

/// The rest of it: counts the steps, and compares with the incumbent.
Ns Search::judge(SearchPoint &point, Trial trial, Ns cutoff) {
  auto &[decoded, fits] = trial;
  int64_t spentBefore = spent;
  spent += std::max<int64_t>(decoded.work, facts.problem.size());
  fits = fits && gatherUnits(decoded);
  point.makespan = fits ? timeOf(decoded) : kFailed;
  SearchVerdict verdict = !fits                     ? SearchVerdict::CutOff
                          : point.makespan < cutoff ? SearchVerdict::Kept
                                                    : SearchVerdict::Dropped;
  if (fits && point.makespan < bestMakespan) {
    bool accepted = accept(decoded);
    if (accepted)
      referToIncumbent();
    verdict = accepted ? SearchVerdict::Incumbent : isRefused ? SearchVerdict::CutOff : SearchVerdict::Rejected;
  }
  notify(&point, fits ? &decoded : nullptr, point.makespan, verdict, spentBefore);
  return point.makespan;
}

/// Tells the observers of a trial. `point` is null for an enumeration, `result` for a trial that was cut off.
void Search::notify(const SearchPoint *point, const DecodedSchedule *result, Ns makespan, SearchVerdict verdict,
                    int64_t spentBefore) const {
  if (observers.empty())
    return;
  llvm::SmallVector<PolicyValue, 8> policy;
  SearchTrial trial;
  trial.phase = phase;
  trial.verdict = verdict;
  if (point) {
    describePolicy(point->policy, policy);
    trial.policy = policy;
    trial.reference = point->reference == 0                    ? SearchReference::Given
                      : point->reference == incumbentReference ? SearchReference::Incumbent
                                                               : SearchReference::Roomy;
    trial.shifted = static_cast<NodeId>(llvm::count_if(point->bias, [](Ns shift) { return shift != 0; }));
  }
  if (result) {
    trial.makespan = makespan;
    trial.peak = result->peak;
    trial.buckets = static_cast<int32_t>(result->buckets.size());
  }
  trial.steps = spent - spentBefore;
  trial.stepsSoFar = spent - spentBeforeRun;
  trial.best = bestMakespan;
  for (SearchObserver *observer : observers)
    observer->observe(trial);
}

/// Makes the incumbent's order one of the references. Only the climb uses it, so that waits until the climb, or until
/// there is another incumbent.
void Search::referToIncumbent() {
  isReferenceDue = true;
  spent += facts.problem.size();
}

void Search::settleReference() {
  if (!std::exchange(isReferenceDue, false))
    return;
  Reference reference(facts, withoutBuckets(facts.problem, incumbent));
  if (reference.peak > limit)
    return;
  if (incumbentReference == kNone) {
    incumbentReference = static_cast<int32_t>(references.size());
    references.push_back(std::move(reference));
  } else {
    references[incumbentReference] = std::move(reference);
  }
}

void Search::adopt(Search &&other) {
  if (other.bestMakespan >= bestMakespan)
    return;
  settleReference();
  incumbent = std::move(other.incumbent);
  bestMakespan = other.bestMakespan;
  carriedOut = std::move(other.carriedOut);
  bestOrder = std::move(other.bestOrder);
  referToIncumbent();
}

void Search::adoptUndisturbed(DecodedSchedule plan) {
  plan.makespan = play(plan);
  if (plan.makespan < bestMakespan && accept(plan))
    referToIncumbent();
}

void Search::run(int64_t effort, Ns bound) {
  // Where a search goes on, observers see another one, which begins with the answer of the first one.
  if (spentBeforeRun > 0)
    ++numIncumbents;
  SearchStart start = {facts.bucketing,
                       facts.problem.size(),
                       std::max<int64_t>(effort - spent, 0),
                       kClimbSeed,
                       limit,
                       bestMakespan,
                       bound};
  for (SearchObserver *observer : observers)
    observer->begin(start);
  improve(effort, bound);
  carryOutGiven();
  SearchEnd end = {bestMakespan, incumbent.peak, static_cast<int32_t>(incumbent.buckets.size()),
                   spent - spentBeforeRun};
  for (SearchObserver *observer : observers)
    observer->end(end);
  spentBeforeRun = spent;
}

void Search::improve(int64_t effort, Ns bound) {
  budget = effort;
  target = bound;
  isFirstAnswer = effort <= spent;
  if (!decodePortfolio(effort))
    return;
  if (incumbent.buckets.empty() && searchExactly(mulDiv(effort, kExactPercent, 100)) && !facts.bucketing)
    return;
  llvm::stable_sort(points, [](const SearchPoint &a, const SearchPoint &b) { return a.makespan < b.makespan; });
  bool isSmall = facts.problem.size() <= ExactSearch::kMaxNodes;
  int64_t forLast = isSmall ? mulDiv(effort, kExactLastPercent, 100) : 0, slice = mulDiv(effort, kSlicePercent, 100);
  int64_t forMoves = mulDiv(effort, kMovesPercent, 100);
  budget = std::min(std::max(forMoves, spent + slice), effort - forLast);
  moveNodes(slice);
  SearchPoint best = points.front();
  int64_t forSweep = mulDiv(effort, facts.bucketing ? kSweepWithBucketsPercent : kSweepPercent, 100);
  budget = std::min(spent + forSweep, spent + (effort - forLast - spent) / 2);
  sweep(best);
  points.push_back(best);
  int32_t stuckTurns = 0;
  for (int64_t spentBefore = -1; spent > spentBefore && spent < effort - forLast && bestMakespan > target;) {
    spentBefore = spent;
    budget = effort - forLast;
    Ns before = bestMakespan;
    moveNodes(slice, /*reheats=*/stuckTurns % kTurnsPerHeat == kTurnsPerHeat - 1);
    stuckTurns = bestMakespan == before ? stuckTurns + 1 : 0;
    budget = std::min(spent + slice, effort - forLast);
    climb();
  }
  budget = effort;
  searchExactly(effort);
}
