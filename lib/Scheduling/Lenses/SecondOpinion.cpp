//===- SecondOpinion.cpp - Answers that somebody else's costs do not contradict ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The order that an answer replaces was made with other costs than the model's, and either may be wrong (BothCosts.h).
// The answer of the lenses behind this one is played with both, and so are the orders that it replaces. If it loses to
// one of them, others are searched: by moves from it, with a mix of both costs, and by moves from what that finds or
// from these orders themselves, as far as they are known. The first one that loses nowhere is shortened as planned as
// far as it loses nowhere; if there is none, the one whose loss, and what it is slower as planned, add up to least.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/BothCosts.h"
#include "CommSched/Scheduling/Answer/Variants.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Problem/KeepTogether.h"
#include "Lens.h"
#include "Solver/Moves/GuardedMoves.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

namespace {

/// With whose costs, and at which scale, answers are searched that may replace one that loses. A small part of the
/// other costs keeps most of what was gained by the model's.
struct SearchedCosts {
  PeerShare share;
  CostScale scale;
};
constexpr SearchedCosts kSearched[] = {{kByBoth / 2, kScaleOne},
                                       {kSearchedAgainBy[0], kScaleOne},
                                       {kSearchedAgainBy[0], 1500},
                                       {kSearchedAgainBy[1], kScaleOne},
                                       {kSearchedAgainBy[1], 1500}};
/// Shares of the effort, in percent: of the moves from the answer that loses, of each search, of the moves from the
/// one that loses least, of those that shorten what is taken, and of one turn of moves.
constexpr int64_t kOpinionFirstMovesPercent = 15, kOpinionSearchPercent = 20, kOpinionMovesPercent = 40,
                  kOpinionShortenPercent = 20, kOpinionTurnPercent = 5;
/// Moves end after this many turns, one after the other, that did not lower the loss.
constexpr int64_t kFruitlessOpinionTurns = 3;

/// One of both costs at one of the scales.
struct CostsAtScale {
  bool byPeer = false;
  size_t at = 0;
  bool operator==(const CostsAtScale &other) const { return byPeer == other.byPeer && at == other.at; }
};

struct JudgedAnswer {
  Schedule schedule;
  BothCosts times;
};

Ns timeOf(const BothCosts &times, CostsAtScale scenario) {
  return (scenario.byPeer ? times.byPeer : times.byModel)[scenario.at];
}

class OpinionChooser {
public:
  OpinionChooser(const Problem &problem, const ScheduleOptions &options, InnerSolver inner)
      : problem(problem), opinion(*options.second), options(options), inner(inner) {}

  Schedule run() {
    ScheduleOptions own = options;
    own.second = nullptr;
    Schedule first = inner(problem, own);
    // Nobody looked at other scales, or no order is within the limit.
    if (first.scales.empty() || !isSmallEnough())
      return first;
    limit = first.limit;
    BothCosts times = playWithBothCosts(problem, opinion.byPeer, first);
    given = playWithBothCosts(problem, opinion.byPeer, keepOrder(problem));
    isIncumbent = first.inputPeak <= limit;
    if (isIncumbent)
      addIncumbent(given);
    if (opinion.others && !isNearBounds(first, times))
      for (PeerAnswer &other : opinion.others()) {
        if (other.peak <= limit)
          addIncumbent(other.times);
        if (!other.order.empty())
          others.push_back(std::move(other));
      }
    OpinionOutcome outcome{times, given, incumbents};
    candidates.push_back({std::move(first), std::move(times)});
    size_t taken = 0;
    if (incumbents > 0) {
      outcome.firstLossPpm = outcome.lossPpm = lossPpm(candidates[0].times);
      if (loses(candidates[0].times)) {
        taken = searchOther();
        outcome.lossPpm = lossPpm(candidates[taken].times);
        outcome.answer = candidates[taken].times;
        outcome.isReplaced = taken != 0;
      }
    }
    Schedule answer = finish(taken);
    answer.opinion = std::move(outcome);
    return answer;
  }

private:
  /// Whether sums of the other times at the largest scale are small enough for solvers.
  bool isSmallEnough() const {
    Wide total = 0;
    for (const Node &node : opinion.byPeer.nodes)
      total += node.cost + node.ready;
    return total * std::end(kPlayedScales)[-1] / kPermille < kMaxTotalNs;
  }

  int64_t effort() const {
    return options.effort < 0 ? std::min(defaultEffort(problem.size()), kDefaultEffort) : options.effort;
  }

  /// Whether lower bounds show that no order within the limit is faster by more than kLossPermille anywhere.
  bool isNearBounds(const Schedule &first, const BothCosts &times) const {
    auto isNear = [](Ns time, Ns bound) {
      return bound > 0 && compareProducts(time, kPermille, bound, kPermille + kLossPermille) <= 0;
    };
    for (size_t at = 0; at < std::size(kPlayedScales); ++at) {
      auto known =
          llvm::find_if(first.scales, [&](const ScaledTimes &entry) { return entry.scale == kPlayedScales[at]; });
      if (known == first.scales.end() || !isNear(times.byModel[at], known->bound))
        return false;
    }
    if (!isBoundCheap(problem.size(), effort()))
      return false;
    std::vector<char> isNearAt(std::size(kPlayedScales));
    options.executor.run(isNearAt.size(), [&](size_t at) {
      BoundOptions bound;
      bound.limit = limit;
      Problem atScale = scaleCollectives(opinion.byPeer, kPlayedScales[at]);
      const Ns least = (options.bucketing ? jointLowerBound(atScale, bound) : lowerBound(atScale, bound)).withLimit;
      isNearAt[at] = isNear(times.byPeer[at], least);
    });
    return llvm::all_of(isNearAt, [](char isNear) { return isNear; });
  }

  void addIncumbent(const BothCosts &times) {
    if (incumbents++ == 0) {
      least = times;
      return;
    }
    auto lower = [](std::vector<Ns> &all, const std::vector<Ns> &times) {
      for (auto [time, other] : llvm::zip_equal(all, times))
        time = std::min(time, other);
    };
    lower(least.byModel, times.byModel);
    lower(least.byPeer, times.byPeer);
  }

  bool loses(const BothCosts &times) const { return times.isSlowerThan(least); }

  static std::vector<CostsAtScale> scenarios() {
    std::vector<CostsAtScale> all;
    for (bool byPeer : {false, true})
      for (size_t at = 0; at < std::size(kPlayedScales); ++at)
        all.push_back({byPeer, at});
    return all;
  }

  int64_t lossPpmAt(const BothCosts &times, CostsAtScale scenario) const {
    const Ns before = std::max<Ns>(timeOf(least, scenario), 1);
    return mulDiv(timeOf(times, scenario) - timeOf(least, scenario), kMillion, before);
  }

  CostsAtScale worstOf(const BothCosts &times) const {
    std::vector<CostsAtScale> all = scenarios();
    return *llvm::max_element(
        all, [&](CostsAtScale a, CostsAtScale b) { return lossPpmAt(times, a) < lossPpmAt(times, b); });
  }

  /// How much slower than an incumbent an answer is where it loses most.
  int64_t lossPpm(const BothCosts &times) const { return lossPpmAt(times, worstOf(times)); }

  /// The most that an answer may take, ns.
  Ns mostAt(CostsAtScale scenario) const {
    const Ns most = mulDiv(timeOf(least, scenario), kPermille + kLossPermille, kPermille);
    return isIncumbent && scenario == kPlanned ? std::min(most, timeOf(given, kPlanned)) : most;
  }

  /// Searches answers that do not lose. Returns the one to take, as an index.
  size_t searchOther() {
    moveAgainstLoss(kOpinionFirstMovesPercent);
    for (SearchedCosts costs : kSearched) {
      if (!loses(candidates[leastLosing()].times) || options.isStopped())
        break;
      ScheduleOptions part = options;
      part.second = nullptr;
      part.objective = Objective::Makespan;
      part.observers = {};
      part.effort = mulDiv(effort(), kOpinionSearchPercent, 100);
      offer(inner(scaleCollectives(mixCosts(problem, opinion.byPeer, costs.share), costs.scale), part));
    }
    // Somebody else's order is rarely as fast as planned as one that a search finds, and is good by his costs.
    if (loses(candidates[leastLosing()].times))
      for (const PeerAnswer &other : others)
        if (options.bucketing || other.buckets.empty())
          offer(answerLike(problem, other));
    moveAgainstLoss(kOpinionMovesPercent);
    // The given order is an answer, too. Merging nothing fails for no problem.
    if (isIncumbent && loses(candidates[leastLosing()].times))
      offer(llvm::cantFail(mergeInOrder(problem, {})), /*settles=*/false);
    const size_t taken = leastLosing();
    return loses(candidates[taken].times) ? taken : shorten(taken);
  }

  /// How much an answer gives away: what it loses where it loses most, and by how much it is slower as planned than the
  /// answer without a second opinion.
  int64_t givenAwayPpm(const BothCosts &times) const {
    const Ns planned = std::max<Ns>(timeOf(candidates[0].times, kPlanned), 1);
    return lossPpm(times) + mulDiv(timeOf(times, kPlanned) - planned, kMillion, planned);
  }

  /// Of the answers that do not lose, the fastest one as planned; if all lose, the one that gives least away.
  size_t leastLosing() const {
    auto isBetter = [&](const JudgedAnswer &a, const JudgedAnswer &b) {
      const bool aLoses = loses(a.times), bLoses = loses(b.times);
      if (aLoses != bLoses)
        return bLoses;
      return aLoses ? givenAwayPpm(a.times) < givenAwayPpm(b.times)
                    : timeOf(a.times, kPlanned) < timeOf(b.times, kPlanned);
    };
    return llvm::min_element(candidates, isBetter) - candidates.begin();
  }

  /// Adds an answer for other costs, if it is one for those of the problem and as planned no slower than the given
  /// order.
  void offer(Schedule schedule, bool settles = true) {
    if (settles && !carryOver(problem, options, limit, schedule).empty())
      return;
    if (!settles) {
      measure(problem, schedule);
      schedule.claims = {schedule.makespan, schedule.peak};
      schedule.limit = limit;
    }
    if (!schedule.isWithinLimit() || (isIncumbent && schedule.makespan > schedule.inputMakespan))
      return;
    BothCosts times = playWithBothCosts(problem, opinion.byPeer, schedule);
    candidates.push_back({std::move(schedule), std::move(times)});
  }

  bool canMove() const { return !hasUnits(problem) && !problem.hasVariants() && !problem.hasContention(); }

  /// The problem by the costs and at the scale of a scenario.
  const Problem &problemOf(CostsAtScale scenario) {
    std::optional<Problem> &scaled = problems[scenario.byPeer][scenario.at];
    if (!scaled)
      scaled = scaleCollectives(scenario.byPeer ? opinion.byPeer : problem, kPlayedScales[scenario.at]);
    return *scaled;
  }

  /// Moves from one candidate that shorten it in one scenario. In the others it takes at most what it took or may take.
  /// Counts the steps in `left`. Returns whether that gave another candidate.
  bool move(size_t from, CostsAtScale scenario, Ns target, int64_t turn, int64_t &left) {
    std::vector<TimeGuard> guards;
    for (CostsAtScale other : scenarios())
      if (!(other == scenario))
        guards.push_back({&problemOf(other), std::max(mostAt(other), timeOf(candidates[from].times, other))});
    int64_t steps =
        std::min(std::max<int64_t>(mulDiv(effort(), kOpinionTurnPercent, 100), 5 * problem.size() + 1), left);
    const int64_t given = steps;
    std::optional<Schedule> found =
        moveWithGuards(ScheduleFacts(problemOf(scenario), options.bucketing), candidates[from].schedule, limit, guards,
                       target, turn, steps, options.stop);
    left -= std::max<int64_t>(given - steps, 1);
    const size_t before = candidates.size();
    if (found)
      offer(std::move(*found));
    return candidates.size() > before;
  }

  /// Moves from the candidate that loses least, in the scenario where it loses most, until it does not lose.
  void moveAgainstLoss(int64_t percent) {
    int64_t left = mulDiv(effort(), percent, 100);
    for (int64_t turn = 0, fruitless = 0; canMove() && left > 0 && fruitless < kFruitlessOpinionTurns; ++turn) {
      const size_t from = leastLosing();
      if (!loses(candidates[from].times) || options.isStopped())
        return;
      const CostsAtScale worst = worstOf(candidates[from].times);
      const bool isOther = move(from, worst, mostAt(worst), turn, left);
      fruitless = isOther && leastLosing() != from ? 0 : fruitless + 1;
    }
  }

  /// Shortens an answer that does not lose as planned, as far as it does not lose. Returns the result.
  size_t shorten(size_t taken) {
    int64_t left = mulDiv(effort(), kOpinionShortenPercent, 100);
    // What would have been taken is as fast as it gets.
    const Ns target = timeOf(candidates[0].times, kPlanned);
    for (int64_t turn = 0, fruitless = 0; canMove() && left > 0 && fruitless < kFruitlessOpinionTurns; ++turn) {
      if (timeOf(candidates[taken].times, kPlanned) <= target || options.isStopped())
        break;
      const bool isOther = move(taken, kPlanned, target, turn, left);
      const size_t best = leastLosing();
      fruitless = isOther && best != taken ? 0 : fruitless + 1;
      taken = best;
    }
    return taken;
  }

  /// The answer of a candidate, with what the first one says of other scales and of the search.
  Schedule finish(size_t taken) {
    Schedule first = std::move(candidates[0].schedule);
    if (taken == 0)
      return first;
    Schedule answer = std::move(candidates[taken].schedule);
    answer.scales = std::move(first.scales);
    for (ScaledTimes &at : answer.scales)
      at.makespan = playAtScales(answer.carriedOut(problem), answer.order, at.scale).front();
    answer.regretPpm = first.regretPpm ? regretPpm(answer.scales) : std::nullopt;
    answer.objective = first.objective;
    answer.steps = first.steps;
    answer.incumbents = first.incumbents;
    answer.leastOrder = first.leastOrder;
    answer.leastSchedule = first.leastSchedule;
    answer.defect = std::move(first.defect);
    return answer;
  }

  /// As planned.
  static constexpr CostsAtScale kPlanned = {false, 1};
  static_assert(kPlayedScales[1] == kScaleOne);

  const Problem &problem;
  const SecondOpinion &opinion;
  const ScheduleOptions &options;
  InnerSolver inner;
  Bytes limit = kUnlimited;
  int32_t incumbents = 0;
  /// Whether the given order is within the limit, so that one could have kept it, and what it takes.
  bool isIncumbent = false;
  BothCosts given;
  /// The least that an incumbent takes.
  BothCosts least;
  /// Indexed by whose costs, then like kPlayedScales: the problem, once it is asked for.
  std::optional<Problem> problems[2][std::size(kPlayedScales)];
  /// Orders of somebody else that can be taken over.
  std::vector<PeerAnswer> others;
  /// First the answer without a second opinion. All are legal and within the limit.
  std::vector<JudgedAnswer> candidates;
};

} // namespace

bool commsched::hasSecondOpinion(const Problem &, const ScheduleOptions &options) {
  return options.second && options.objective != Objective::Makespan;
}

Schedule commsched::scheduleWithSecondOpinion(const Problem &problem, const ScheduleOptions &options,
                                              InnerSolver inner) {
  return OpinionChooser(problem, options, inner).run();
}
