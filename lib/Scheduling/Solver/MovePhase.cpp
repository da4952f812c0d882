//===- MovePhase.cpp - Moves of single nodes as a phase of the search -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Runs the moves slice by slice, and offers what they find after each.
//
//===------------------------------------------------------------------------------------------===//

#include "SearchPhases.h"
#include "Solver/Moves/ContendedMoves.h"
#include "Solver/Moves/LocalMoves.h"
#include <algorithm>

using namespace commsched;

namespace {

/// Share of the effort, in percent, of one slice.
constexpr int64_t kSlicePercent = 5;
/// While the phase anneals, a move may lengthen the order: at first by up to this share of the makespan, in millionths,
/// then by half of that after each of kCoolings equal parts of the effort, and in a last part not at all. In a small
/// problem (kMostSmall), the slack is half of the mean time of a node at first.
constexpr int64_t kSlackPpm = 20, kCoolings = 10;
/// Annealing ends, and so do the moves behind it, if so many slices one after the other have found nothing shorter.
constexpr int64_t kFruitlessSlices = 8;
/// Limit on the number of times by which a slice is made smaller because its orders are not admitted.
constexpr int64_t kMinSliceShare = 64;

/// The moves of a problem without contention.
class UndisturbedMoves {
public:
  UndisturbedMoves(SearchState &state, uint64_t seed)
      : moves(state.facts, state.best(), state.limit, seed), stop(state.options.stop) {}

  void run(int64_t &steps, Ns target, Ns slack) { moves.run(steps, target, slack, stop); }
  Ns makespan() const { return moves.makespan(); }
  DecodedSchedule decoded() const { return moves.decoded(); }

private:
  LocalMoves moves;
  const std::atomic<bool> *stop;
};

/// The moves of a problem with contention. The buckets stay as they are, and so does the problem that they give.
class DisturbedMoves {
public:
  DisturbedMoves(SearchState &state, uint64_t)
      : problem(state.facts.problem), expanded(state.expanded()), buckets(state.best().buckets),
        moves(expanded.problem, state.order(), state.limit), stop(state.options.stop) {}

  void run(int64_t &steps, Ns target, Ns) { moves.run(steps, target, stop); }
  Ns makespan() const { return moves.makespan(); }
  DecodedSchedule decoded() const {
    DecodedSchedule found;
    found.buckets = buckets;
    found.makespan = moves.makespan();
    found.steps = stepsOf(problem, found.buckets, expanded, moves.order());
    return found;
  }

private:
  const Problem &problem;
  const ExpandedProblem expanded;
  const std::vector<Bucket> buckets;
  ContendedMoves moves;
  const std::atomic<bool> *stop;
};

/// The phase, with one kind of moves.
template <typename Moves> class MoveSlices {
public:
  explicit MoveSlices(SearchState &state)
      : state(state), begin(state.spent()), all(state.left()),
        slice(std::max<int64_t>(mulDiv(state.allEffort(), kSlicePercent, 100), 1)),
        leastSlice(std::max<int64_t>(slice / kMinSliceShare, 1)),
        anneals((state.facts.bucketing || isSmall()) && !state.facts.problem.hasContention()) {}

  void run() {
    restart();
    for (int64_t fruitless = 0; !state.isDone() && slice >= leastSlice;) {
      const int64_t spentBefore = state.spent();
      int64_t steps = std::min(slice, state.left()), allowed = steps;
      moves->run(steps, state.target(), slack());
      if (steps == allowed)
        return;
      state.spend(allowed - steps);
      if (moves->makespan() < shortest) {
        fruitless = 0;
        take(spentBefore);
        continue;
      }
      state.noteFruitless(spentBefore);
      if (++fruitless < kFruitlessSlices)
        continue;
      if (!std::exchange(anneals, false))
        return;
      fruitless = 0;
      if (moves->makespan() > shortest)
        restart();
    }
  }

private:
  bool isSmall() const { return state.facts.problem.size() <= kMostSmall; }

  /// Begins again from the answer, with other random moves.
  void restart() {
    moves = std::make_unique<Moves>(state, numStarts++);
    shortest = moves->makespan();
    state.spend(state.facts.problem.size());
  }

  /// Offers what the moves have found. If it is not admitted, they begin again from the answer, half as many at a time.
  void take(int64_t spentBefore) {
    shortest = moves->makespan();
    if (state.offer(moves->decoded(), spentBefore) == SearchVerdict::Incumbent || !state.wasRefused())
      return;
    slice /= 2;
    restart();
  }

  /// By how much a move may lengthen the order now, ns.
  Ns slack() const {
    const NodeId size = std::max<NodeId>(state.facts.problem.size(), 1);
    const int64_t coolings = mulDiv(kCoolings + 1, state.spent() - begin, std::max<int64_t>(all, 1));
    if (!anneals || coolings >= kCoolings)
      return 0;
    return (isSmall() ? state.makespan() / (2 * size) : mulDiv(state.makespan(), kSlackPpm, kMillion)) >> coolings;
  }

  SearchState &state;
  const int64_t begin, all;
  int64_t slice;
  const int64_t leastSlice;
  bool anneals;
  std::unique_ptr<Moves> moves;
  /// The shortest order of these moves, ns.
  Ns shortest = 0;
  uint64_t numStarts = 0;
};

} // namespace

void commsched::moveNodes(SearchState &state) {
  if (state.hasUnits || state.isDone())
    return;
  if (state.facts.problem.hasContention())
    MoveSlices<DisturbedMoves>(state).run();
  else
    MoveSlices<UndisturbedMoves>(state).run();
}
