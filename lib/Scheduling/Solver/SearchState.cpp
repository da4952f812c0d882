//===- SearchState.cpp - State of a search ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Decodes on the threads of the executor, judges what they give one after the other, and lets into the incumbent what
// the models and the verifier agree with.
//
//===------------------------------------------------------------------------------------------===//

#include "SearchState.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Problem/KeepTogether.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "Portfolio.h"
#include <algorithm>
#include <cassert>

using namespace commsched;

/// What a call of ScheduleOptions::admits counts as, in steps for each node: about what a plan of its buffers takes.
static constexpr int64_t kStepsToAdmit = 8;
/// The first answer is the best of at most kFirstDecodes decodes, which take at most kFirstSteps steps together (a few
/// hundredths of a second).
static constexpr int64_t kFirstDecodes = 24, kFirstSteps = 200000;

SearchState::SearchState(const ScheduleFacts &facts, const ScheduleOptions &options, Reference given, Bytes limit,
                         std::optional<Reference> roomy)
    : facts(facts), options(options), limit(limit), hasUnits(commsched::hasUnits(facts.problem)) {
  incumbent.makespan = given.makespan;
  incumbent.peak = given.peak;
  incumbent.steps.reserve(given.order.size());
  for (NodeId node : given.order)
    incumbent.steps.push_back({DecodeStep::Run, node});
  bestOrder = given.order;
  references.push_back(std::move(given));
  if (roomy)
    references.push_back(std::move(*roomy));
}

void SearchState::allow(int64_t steps, Ns bound) {
  effort = budget = steps;
  aim = bound;
}

void SearchState::beginPhase(llvm::StringRef name, int64_t percent) {
  phase = name;
  budget = std::min(effort, numSpent + mulDiv(effort, percent, 100));
}

bool SearchState::mayDecode() const {
  if (numDecoded == 0 || !isDone())
    return true;
  return !isShortest() && numDecoded < kFirstDecodes && numSpent + numSpent / numDecoded <= kFirstSteps;
}

/// Without buckets, every node keeps its number.
const ExpandedProblem &SearchState::expanded() {
  if (carried.image.empty()) {
    carried = llvm::cantFail(expandBuckets(facts.problem, {}));
    assert(carried.image == identityOrder(facts.problem) && "nothing is merged");
  }
  return carried;
}

/// How many of the policies are decoded at once: one for each thread, as many as the search is likely to need.
size_t SearchState::numAtOnce(size_t policies) const {
  if (options.executor.threads < 2 || numDecoded == 0)
    return 1;
  const int64_t each = std::max<int64_t>(numSpent / numDecoded, 1);
  const int64_t forFirst = std::min(kFirstDecodes - numDecoded, (kFirstSteps - numSpent) / each);
  const int64_t likely = std::max<int64_t>({left() / each + 1, forFirst, 1});
  return std::min({policies, options.executor.threads, static_cast<size_t>(likely)});
}

/// The policies depend on their reference, not on each other, and are judged one after the other as if each were
/// decoded in its turn: so the answer is the same for any number of threads. What the search ends before is thrown
/// away.
void SearchState::decodeAll(llvm::ArrayRef<Policy> policies) {
  while (!policies.empty() && mayDecode()) {
    const size_t count = numAtOnce(policies.size());
    while (decoders.size() < count)
      decoders.push_back(std::make_unique<Decoder>(facts));
    std::vector<Trial> trials(count);
    options.executor.run(count, [&](size_t at) { trials[at] = attempt(*decoders[at], policies[at]); });
    for (size_t at = 0; at < count && mayDecode(); ++at)
      judge(policies[at], std::move(trials[at]));
    policies = policies.drop_front(count);
  }
}

void SearchState::compareReferences(llvm::ArrayRef<Policy> policies) {
  const size_t other = references.size() - 1;
  if (preferred == other || numDecoded == 0)
    return;
  const Ns fromGiven = shortestDecode;
  preferred = other;
  decodeAll(policies.take_front(numDecoded));
  if (shortestDecode >= fromGiven)
    preferred = 0;
}

/// The part of a decode that changes nothing but the decoder, so that several may run at once.
SearchState::Trial SearchState::attempt(Decoder &with, const Policy &policy) const {
  Trial trial;
  trial.fits = with.run(references[preferred], policy, limit, kFailed, trial.decoded);
  return trial;
}

/// The rest of it: counts the steps, and compares with the incumbent.
void SearchState::judge(const Policy &policy, Trial trial) {
  auto &[decoded, fits] = trial;
  const int64_t spentBefore = numSpent;
  ++numDecoded;
  numSpent += std::max<int64_t>(decoded.work, facts.problem.size());
  fits = fits && gatherUnits(decoded);
  const Ns found = fits ? decoded.makespan : kFailed;
  if (found < shortestDecode) {
    shortestDecode = found;
    shortestPolicy = policy;
  }
  SearchVerdict verdict = fits ? SearchVerdict::Dropped : SearchVerdict::CutOff;
  if (found < makespan())
    verdict = accept(decoded) ? SearchVerdict::Incumbent : isRefused ? SearchVerdict::CutOff : SearchVerdict::Rejected;
  notify(&policy, fits ? &decoded : nullptr, found, verdict, spentBefore);
}

SearchVerdict SearchState::offer(DecodedSchedule found, int64_t spentBefore) {
  if (facts.problem.hasContention())
    found.makespan = play(found);
  Ns time = gatherUnits(found) ? found.makespan : kFailed;
  SearchVerdict verdict = SearchVerdict::Dropped;
  if (time < makespan())
    verdict = accept(found) ? SearchVerdict::Incumbent : isRefused ? SearchVerdict::CutOff : SearchVerdict::Rejected;
  notify(nullptr, time == kFailed ? nullptr : &found, time, verdict, spentBefore);
  return verdict;
}

void SearchState::noteFruitless(int64_t spentBefore) const {
  notify(nullptr, nullptr, /*makespan=*/0, SearchVerdict::CutOff, spentBefore);
}

/// Plays a decode with contention. Returns the makespan, ns. O(N log N).
Ns SearchState::play(const DecodedSchedule &decoded) {
  llvm::Expected<ExpandedProblem> merged = expandBuckets(facts.problem, decoded.buckets);
  if (!merged) {
    // accept() reports it.
    llvm::consumeError(merged.takeError());
    return decoded.makespan;
  }
  numSpent += facts.problem.size();
  return makespanOf(merged->problem, orderOf(decoded, *merged));
}

/// Gathers units that the decode has torn apart, because it sees only their outer dependences. Fails if the gathered
/// order exceeds the limit.
bool SearchState::gatherUnits(DecodedSchedule &decoded) {
  if (!hasUnits)
    return true;
  const Problem &problem = facts.problem;
  llvm::Expected<ExpandedProblem> merged = expandBuckets(problem, decoded.buckets);
  if (!merged) {
    // accept() reports it.
    llvm::consumeError(merged.takeError());
    return true;
  }
  Order order = orderOf(decoded, *merged);
  auto fits = [&](llvm::ArrayRef<NodeId> candidate) { return peakOf(merged->problem, candidate) <= limit; };
  std::optional<Order> settled = keepTogether(merged->problem, order, fits);
  numSpent += problem.size();
  if (!settled)
    return false;
  if (*settled == order)
    return true;
  decoded.steps = stepsOf(problem, decoded.buckets, *merged, *settled);
  decoded.makespan = makespanOf(merged->problem, *settled);
  decoded.peak = peakOf(merged->problem, *settled);
  return true;
}

/// Makes a decode the incumbent if the models and the verifier agree with it, and the caller admits it.
bool SearchState::accept(const DecodedSchedule &decoded) {
  isRefused = false;
  auto reject = [&](std::string why) {
    if (firstDefect.empty())
      firstDefect = std::move(why);
    return false;
  };
  llvm::Expected<ExpandedProblem> expansion = expandBuckets(facts.problem, decoded.buckets);
  if (!expansion)
    return reject(llvm::toString(expansion.takeError()));
  Schedule candidate;
  candidate.buckets = decoded.buckets;
  candidate.expanded = std::move(*expansion);
  candidate.order = orderOf(decoded, candidate.expanded);
  const Problem &merged = candidate.expanded.problem;
  candidate.claims = {decoded.makespan, peakOf(merged, candidate.order)};
  ScheduleRequirements requirements;
  requirements.peakLimit = limit;
  requirements.collectiveOrder = options.collectiveOrder;
  if (std::string why = verify(facts.problem, candidate, requirements); !why.empty())
    return reject(std::move(why));
  if (makespanOf(merged, candidate.order) != decoded.makespan)
    return reject("the decode's clocks disagree with the timeline");
  if (options.admits) {
    numSpent += kStepsToAdmit * facts.problem.size();
    isRefused = !options.admits(merged, candidate.order);
    if (isRefused)
      return false;
  }
  incumbent = decoded;
  incumbent.peak = candidate.claims->peak;
  carried = std::move(candidate.expanded);
  bestOrder = std::move(candidate.order);
  ++numIncumbents;
  numSpent += facts.problem.size();
  return true;
}

/// Tells the observers of a trial. `policy` is null if none was decoded, `result` if the trial was cut off.
void SearchState::notify(const Policy *policy, const DecodedSchedule *result, Ns makespan, SearchVerdict verdict,
                         int64_t spentBefore) const {
  if (options.observers.empty())
    return;
  llvm::SmallVector<PolicyValue, 8> values;
  SearchTrial trial;
  trial.phase = phase;
  trial.verdict = verdict;
  trial.isDecode = policy != nullptr;
  if (policy) {
    describePolicy(*policy, values);
    trial.policy = values;
    trial.reference = preferred == 0 ? SearchReference::Given : SearchReference::Roomy;
  }
  if (result) {
    trial.makespan = makespan;
    trial.peak = result->peak;
    trial.buckets = static_cast<int32_t>(result->buckets.size());
  }
  trial.steps = numSpent - spentBefore;
  trial.stepsSoFar = numSpent - spentBeforeRun;
  trial.best = incumbent.makespan;
  for (SearchObserver *observer : options.observers)
    observer->observe(trial);
}

void SearchState::adopt(SearchState &&other) {
  if (other.makespan() >= makespan())
    return;
  incumbent = std::move(other.incumbent);
  carried = std::move(other.carried);
  bestOrder = std::move(other.bestOrder);
}

void SearchState::beginFrom(const Schedule &known) {
  if (!facts.bucketing && !known.buckets.empty())
    return;
  llvm::Expected<ExpandedProblem> merged = expandBuckets(facts.problem, known.buckets);
  if (!merged)
    return llvm::consumeError(merged.takeError());
  // The search that found it has counted the steps.
  const int64_t spentBefore = numSpent;
  DecodedSchedule found;
  found.buckets = known.buckets;
  found.steps = stepsOf(facts.problem, found.buckets, *merged, known.order);
  found.makespan = makespanOf(merged->problem, known.order);
  found.peak = peakOf(merged->problem, known.order);
  if (found.makespan < makespan() && found.peak <= limit)
    accept(found);
  numSpent = spentBefore;
}

void SearchState::tellBegin() {
  if (hasRun())
    ++numIncumbents;
  SearchStart start = {facts.bucketing, facts.problem.size(), std::max<int64_t>(effort - numSpent, 0),
                       limit,           makespan(),           aim};
  for (SearchObserver *observer : options.observers)
    observer->begin(start);
}

void SearchState::tellEnd() {
  SearchEnd end = {makespan(), incumbent.peak, static_cast<int32_t>(incumbent.buckets.size()),
                   numSpent - spentBeforeRun};
  for (SearchObserver *observer : options.observers)
    observer->end(end);
  spentBeforeRun = numSpent;
}
