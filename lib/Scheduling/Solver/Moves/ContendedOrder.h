//===- ContendedOrder.h - An order of activities that share resources ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// No clock is a maximum of sums under contention, so a change of an order has to be played. It is played from a stop in
// front of the change to the end, to the next stop at which everything is as it was but for a shift of time, or to a
// point at which the order is known to be longer. Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_CONTENDEDORDER_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_CONTENDEDORDER_H

#include "Time/ContentionPlayer.h"

namespace commsched {

/// Nodes that are played with contention in the time of one step of a decode.
inline constexpr int64_t kContendedPerStep = 4;

/// Plays an order with changes. The order itself is its user's.
class ContendedOrder {
public:
  /// Keeps a reference to `problem`, which has contention. Costs and demands of the problem may change before the nodes
  /// that have them are placed or played again. O(N + lanes).
  explicit ContendedOrder(const Problem &problem);

  /// Plays `order` as it is from the stop at or before position `first`, where nothing has changed before. O(nodes from
  /// there x activities in flight).
  void place(llvm::ArrayRef<NodeId> order, int32_t first);
  /// Of the order that was placed last, ns.
  Ns makespan() const { return best; }

  /// The makespan, ns, if `nodeAt` gives the nodes of the positions, which differ from those placed from `first` to
  /// `last` alone, or if the start `changed` there has another cost or demand; or a number that is at least `cutoff`.
  /// Adds the nodes played to `played`.
  template <class NodeAt>
  Ns play(int32_t first, int32_t last, NodeAt nodeAt, Ns cutoff, int64_t &played, NodeId changed = kNone) {
    player.resume(stops[first / spacing]);
    for (int32_t at = first / spacing * spacing; at < problem.size(); ++at) {
      if (at % spacing == 0 && at >= last) {
        const ContentionPlayer::Stop &before = stops[at / spacing];
        if (player.now() + left[at] >= cutoff)
          return cutoff;
        if (shifts) {
          player.save(now);
          if (now.pending == before.pending && !isPending(before, changed))
            return best + now.time - before.time;
        }
      }
      player.play(nodeAt(at));
      ++played;
    }
    return player.finish();
  }

private:
  /// Whether a start is in flight or queued: if it has changed, equal times left do not mean that all is as it was.
  static bool isPending(const ContentionPlayer::Stop &stop, NodeId start);

  const Problem &problem;
  ContentionPlayer player;
  /// In front of every spacing-th position: the state of the order as it is.
  std::vector<ContentionPlayer::Stop> stops;
  int32_t spacing;
  /// Indexed by position: what the compute lane needs from there on at least, ns.
  std::vector<Ns> left;
  Ns best = 0;
  /// Whether a shift of time shifts all that follows: nothing arrives at a fixed time.
  bool shifts;
  ContentionPlayer::Stop now;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_CONTENDEDORDER_H
