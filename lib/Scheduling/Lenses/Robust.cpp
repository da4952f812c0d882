//===- Robust.cpp - Answers that do not lose when costs are wrong -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/Robust.h"
#include "CommSched/Scheduling/Answer/Variants.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Problem/KeepTogether.h"
#include "Lens.h"
#include "Solver/Moves/GuardedMoves.h"
#include "llvm/ADT/STLExtras.h"
#include <array>
#include <limits>

using namespace commsched;

namespace {

constexpr size_t kScales = std::size(kPlayedScales);
/// The place of the scale as planned among the played ones.
constexpr size_t kAsPlanned = 1;
static_assert(kPlayedScales[kAsPlanned] == kScaleOne);
/// The scales that are solved for beside the planned one. Indices of kPlayedScales.
constexpr size_t kSolvedScales[] = {0, 3, 4};
/// Shares of the effort, in percent: of each of these solves, of the moves that follow, and of one turn of the moves.
constexpr int64_t kSolvedPercent = 20, kMovesPercent = 60, kTurnPercent = 5;
/// A turn takes at least so many steps per node: everything around it is linear in the nodes.
constexpr int64_t kTurnPerNode = 5;
/// The moves end after this many turns, one after the other, that did not lower the regret.
constexpr int64_t kFruitlessTurns = 4;
/// At most so many scales are added between the played ones.
constexpr size_t kAddedScales = 4;
/// An answer with at most this regret, in thousandths, is not improved.
constexpr int64_t kLittleRegretPermille = 1;

using Makespans = std::array<Ns, kScales>;

/// A makespan and what cannot be beaten: their ratio less one is a regret.
struct Ratio {
  Ns makespan = 0, bound = 1;
  bool operator<(const Ratio &other) const { return compareProducts(makespan, other.bound, other.makespan, bound) < 0; }
};

/// Whether `a` is more than `permille` thousandths above `b`.
bool exceeds(Ns a, Ns b, int64_t permille) { return compareProducts(a, kPermille, b, kPermille + permille) > 0; }

struct Candidate {
  Schedule schedule;
  Makespans makespans{};
};

class RobustSolver {
public:
  RobustSolver(const Problem &problem, const ScheduleOptions &options, InnerSolver inner)
      : problem(problem), options(options), inner(inner) {}

  Schedule run() {
    Schedule asPlanned = inner(problem, options);
    asPlanned.whyMakespan = reasonForMakespan(asPlanned);
    if (!asPlanned.whyMakespan.empty())
      return asPlanned;
    Schedule answer = chooseFrom(std::move(asPlanned));
    answer.objective = options.objective;
    return answer;
  }

private:
  /// What is said of the search as planned, whatever is chosen.
  struct Facts {
    int64_t steps = 0;
    int32_t incumbents = 0;
    std::optional<Ns> leastOrder, leastSchedule;
    std::string defect;
  };

  /// Why the answer as planned is all that can be had; empty if it is not.
  std::string reasonForMakespan(const Schedule &asPlanned) const {
    if (options.effort == 0)
      return "only a first answer is asked for";
    if (options.admits)
      return "answers have to meet a further condition";
    if (!asPlanned.isWithinLimit())
      return "no order within the limit was found";
    if (!isSmallEnough())
      return "the times are too large to be scaled";
    return "";
  }

  /// Chooses between `first`, the answer as planned, and those that are found from now on.
  Schedule chooseFrom(Schedule first) {
    limit = first.limit;
    facts = {first.steps, first.incumbents, first.leastOrder, first.leastSchedule, first.defect};
    input = play(problem, identityOrder(problem));
    isIncumbent = first.inputPeak <= limit;
    Makespans makespans = play(first);
    candidates.push_back({std::move(first), makespans});
    for (auto [at, scale] : llvm::enumerate(kPlayedScales))
      scaled[at] = scaleCollectives(problem, scale);
    findBounds();
    const bool isGood = llvm::all_of(bounds, [](Ns bound) { return bound > 0; }) &&
                        regretOf(candidates.front()) < Ratio{kPermille + kLittleRegretPermille, kPermille} &&
                        !loses(candidates.front());
    if (!isGood) {
      solveOtherScales();
      moveNodes();
      // From all that the default finds, so that its regret is never less.
      if (std::exchange(rule, options.objective) != options.objective)
        moveNodes();
    }
    return finish(isGood ? candidates.front() : candidates[choose()]);
  }

  /// Whether sums of times at the largest scale are small enough for solvers, too.
  bool isSmallEnough() const {
    Wide total = 0;
    for (const Node &node : problem.nodes)
      total += node.cost + node.ready;
    return total * kPlayedScales[kScales - 1] / kPermille < kMaxTotalNs;
  }

  Makespans play(const Problem &carried, llvm::ArrayRef<NodeId> order) const {
    Makespans makespans;
    llvm::copy(playAtScales(carried, order, kPlayedScales), makespans.begin());
    return makespans;
  }
  Makespans play(const Schedule &schedule) const { return play(schedule.carriedOut(problem), schedule.order); }

  /// What the shares are of. By default it does not grow with long problems: every step costs more here, where an order
  /// is played at several scales.
  int64_t effort() const {
    return options.effort < 0 ? std::min(defaultEffort(problem.size()), kDefaultEffort) : options.effort;
  }

  /// A lower bound at each scale; 0 if it would take too long.
  void findBounds() {
    bounds.fill(0);
    if (!isBoundCheap(problem.size(), effort()))
      return;
    if (problem.hasVariants())
      least = withLeastVariants(problem);
    options.executor.run(kScales, [&](size_t at) { bounds[at] = boundFor(kPlayedScales[at]); });
  }

  /// A lower bound at a scale, ns.
  Ns boundFor(CostScale scale) const {
    Problem atScale = scaleCollectives(least ? *least : problem, scale);
    BoundOptions bound;
    bound.limit = limit;
    return (options.bucketing ? jointLowerBound(atScale, bound) : lowerBound(atScale, bound)).withLimit;
  }

  /// What an answer at a scale is compared with.
  Ns boundAt(size_t index) const {
    Ns least = bounds[index];
    if (least <= 0)
      least = std::min_element(candidates.begin(), candidates.end(), [&](const Candidate &a, const Candidate &b) {
                return a.makespans[index] < b.makespans[index];
              })->makespans[index];
    return std::max<Ns>(least, 1);
  }

  Ratio regretOf(const Candidate &candidate) const {
    Ratio worst;
    for (size_t index = 0; index < kScales; ++index)
      worst = std::max(worst, Ratio{candidate.makespans[index], boundAt(index)});
    return worst;
  }

  /// Whether the given order would have been the better choice at some scale.
  bool loses(const Candidate &candidate) const {
    if (!isIncumbent)
      return false;
    for (size_t index = 0; index < kScales; ++index)
      if (exceeds(candidate.makespans[index], input[index], kLossPermille))
        return true;
    return false;
  }

  /// Adds the answers for slower collectives, in the order of the scales.
  void solveOtherScales() {
    std::array<Schedule, std::size(kSolvedScales)> found;
    options.executor.run(found.size(), [&](size_t index) {
      ScheduleOptions part = options;
      part.observers = {};
      part.effort = mulDiv(effort(), kSolvedPercent, 100);
      found[index] = inner(scaled[kSolvedScales[index]], part);
    });
    for (Schedule &schedule : found) {
      facts.steps += schedule.steps;
      noteDefect(schedule.defect);
      noteDefect(offer(std::move(schedule)));
    }
  }

  /// Adds an answer of the problem at some scale, if it is one within the limit of the problem as it was given. Returns
  /// what makes it none.
  std::string offer(Schedule schedule) {
    if (std::string wrong = carryOver(problem, options, limit, schedule); !wrong.empty() || !schedule.isWithinLimit())
      return wrong;
    Makespans makespans = play(schedule);
    candidates.push_back({std::move(schedule), makespans});
    return "";
  }

  /// Lowers the regret of the answer that the rule takes, scale by scale: moves shorten it at the one where its regret
  /// is largest, as long as that of the others stays below, and the loss to the fastest answer and to the given order
  /// within what the rule allows.
  void moveNodes() {
    if (hasUnits(problem) || problem.hasVariants() || problem.hasContention())
      return;
    size_t from = choose();
    int64_t left = mulDiv(effort(), kMovesPercent, 100);
    const int64_t perTurn = std::max<int64_t>(mulDiv(effort(), kTurnPercent, 100), kTurnPerNode * problem.size() + 1);
    for (int64_t turn = 0, fruitless = 0; left > 0 && fruitless < kFruitlessTurns && !options.isStopped(); ++turn) {
      const size_t at = worstScale(candidates[from]);
      int64_t steps = std::min(perTurn, left), given = steps;
      std::optional<Schedule> found =
          moveWithGuards(ScheduleFacts(scaled[at], options.bucketing), candidates[from].schedule, limit,
                         guardsOf(candidates[from], at), boundAt(at), turn, steps, options.stop);
      facts.steps += given - steps;
      left -= std::max<int64_t>(given - steps, 1);
      ++fruitless;
      if (!found)
        continue;
      const size_t before = candidates.size();
      noteDefect(offer(std::move(*found)));
      if (candidates.size() == before || regretOf(candidates[from]) < regretOf(candidates.back()))
        continue;
      if (regretOf(candidates.back()) < regretOf(candidates[from]))
        fruitless = 0;
      from = before;
    }
  }

  /// The scale at which the regret of an answer is largest.
  size_t worstScale(const Candidate &candidate) const {
    size_t worst = 0;
    for (size_t at = 1; at < kScales; ++at)
      if (Ratio{candidate.makespans[worst], boundAt(worst)} < Ratio{candidate.makespans[at], boundAt(at)})
        worst = at;
    return worst;
  }

  /// What an answer may take at the scales other than `at` if it is to replace `candidate`.
  llvm::SmallVector<TimeGuard> guardsOf(const Candidate &candidate, size_t at) const {
    const Ratio worst = regretOf(candidate);
    llvm::SmallVector<TimeGuard> guards;
    for (size_t other = 0; other < kScales; ++other) {
      if (other == at)
        continue;
      Ns most = mulDiv(worst.makespan, boundAt(other), worst.bound);
      if (other == kAsPlanned && rule == Objective::Robust)
        most =
            std::min(mulDiv(fastest(), kPermille + kTolerancePermille, kPermille), isIncumbent ? input[other] : most);
      if (isIncumbent)
        most = std::min(most, mulDiv(input[other], kPermille + kLossPermille, kPermille));
      guards.push_back({&scaled[other], std::max(most, candidate.makespans[other])});
    }
    return guards;
  }

  /// The shortest makespan as planned of all answers that may be taken.
  Ns fastest() const {
    Ns least = std::numeric_limits<Ns>::max();
    for (const Candidate &candidate : candidates)
      if (isAdmissible(candidate))
        least = std::min(least, candidate.makespans[kAsPlanned]);
    return least == std::numeric_limits<Ns>::max() ? candidates.front().makespans[kAsPlanned] : least;
  }

  void noteDefect(std::string defect) {
    if (facts.defect.empty())
      facts.defect = std::move(defect);
  }

  /// Whether an answer may be taken: the given order would not have been the better choice.
  bool isAdmissible(const Candidate &candidate) const {
    const bool isSlower = isIncumbent && candidate.makespans[kAsPlanned] > input[kAsPlanned];
    return !loses(candidate) && !(isSlower && rule == Objective::Robust);
  }

  std::vector<size_t> admissible() const {
    std::vector<size_t> answers;
    for (size_t index = 0; index < candidates.size(); ++index)
      if (isAdmissible(candidates[index]))
        answers.push_back(index);
    return answers;
  }

  /// The answer that the rule takes, as an index.
  size_t choose() {
    auto isFaster = [&](size_t a, size_t b) {
      return candidates[a].makespans[kAsPlanned] < candidates[b].makespans[kAsPlanned];
    };
    auto hasLessRegret = [&](size_t a, size_t b) { return regretOf(candidates[a]) < regretOf(candidates[b]); };
    std::vector<size_t> answers = admissible();
    if (answers.empty()) {
      offerGivenOrder();
      answers = admissible();
      // Only a defect keeps the given order from being one of them.
      return answers.empty() ? 0 : *llvm::min_element(answers, isFaster);
    }
    const Ns least = fastest();
    if (rule == Objective::Robust)
      llvm::erase_if(answers, [&](size_t index) {
        return exceeds(candidates[index].makespans[kAsPlanned], least, kTolerancePermille);
      });
    return *llvm::min_element(answers, hasLessRegret);
  }

  /// Adds the given order, with the buckets of the answer as planned and alone, each settled, and as it is.
  void offerGivenOrder() {
    // The buckets may need another order: merging in place is then not an answer, which is no defect.
    if (llvm::Expected<Schedule> merged = mergeInOrder(problem, candidates.front().schedule.buckets))
      static_cast<void>(offer(std::move(*merged)));
    else
      llvm::consumeError(merged.takeError());
    llvm::Expected<Schedule> given = mergeInOrder(problem, {});
    if (!given)
      return noteDefect(llvm::toString(given.takeError()));
    noteDefect(offer(*given));
    // Settling plays fewer scales than these, so at another one the given order itself may be shorter.
    measure(problem, *given);
    given->claims = {makespanOf(problem, given->order), given->peak};
    given->limit = limit;
    candidates.push_back({std::move(*given), input});
  }

  /// The answer of a candidate, with what is known of it at other scales.
  Schedule finish(Candidate &candidate) {
    std::vector<ScaledTimes> times;
    for (size_t index = 0; index < kScales; ++index)
      times.push_back({kPlayedScales[index], candidate.makespans[index], input[index], std::max<Ns>(bounds[index], 0)});
    // If activities share resources, a makespan need not be convex in the scale, so the played scales prove nothing of
    // those between them.
    const bool isConvex = !problem.hasContention();
    if (isConvex)
      addScales(times, kAddedScales, [&](CostScale scale) { return measureAt(candidate.schedule, scale); });
    Schedule answer = std::move(candidate.schedule);
    answer.regretPpm = isConvex ? regretPpm(times) : std::nullopt;
    answer.scales = std::move(times);
    answer.steps = facts.steps;
    answer.incumbents = facts.incumbents;
    answer.leastOrder = facts.leastOrder;
    answer.leastSchedule = facts.leastSchedule;
    answer.defect = facts.defect;
    return answer;
  }

  /// The answer and the given order at a scale that was not played.
  ScaledTimes measureAt(const Schedule &schedule, CostScale scale) const {
    auto makespan = [&](const Problem &carried, llvm::ArrayRef<NodeId> order) {
      return playAtScales(carried, order, scale).front();
    };
    return {scale, makespan(schedule.carriedOut(problem), schedule.order), makespan(problem, identityOrder(problem)),
            boundFor(scale)};
  }

  const Problem &problem;
  const ScheduleOptions &options;
  InnerSolver inner;
  /// The rule by which an answer is chosen now: Robust, and at last the objective of the options.
  Objective rule = Objective::Robust;
  Bytes limit = kUnlimited;
  Facts facts;
  /// Whether the given order is within the limit, so that one could have kept it.
  bool isIncumbent = true;
  /// Indexed like kPlayedScales, also the second: the makespans of the given order, and lower bounds, ns.
  Makespans input{}, bounds{};
  /// Indexed like kPlayedScales: the problem.
  std::array<Problem, kScales> scaled;
  /// With the shortest variant of each collective, if there is a choice.
  std::optional<Problem> least;
  /// First the answer as planned. An answer is legal and within the limit.
  std::vector<Candidate> candidates;
};

} // namespace

bool commsched::asksForScales(const Problem &, const ScheduleOptions &options) {
  return options.objective != Objective::Makespan;
}

Schedule commsched::scheduleAtScales(const Problem &problem, const ScheduleOptions &options, InnerSolver inner) {
  return RobustSolver(problem, options, inner).run();
}
