//===- LocalMoves.h - Shorter orders by moves of single nodes ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A policy steers a whole block by a few numbers, so what is left after the search over policies are places at which a
// single node stands badly. This search moves one node at a time to another legal place, mostly nodes on which the
// makespan depends, and keeps every move that does not lengthen the order: moves that change nothing open the way for
// others. With buckets, some tries change these (BucketMoves.h). The neighbourhood of nodes is that of the job shop's
// critical blocks (E. Nowicki and C. Smutnicki, "A fast taboo search algorithm for the job shop problem", Management
// Science 42(6), 1996), widened to all places. Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_LOCALMOVES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_LOCALMOVES_H

#include "BucketMoves.h"
#include "MoveChoice.h"
#include <array>
#include <atomic>

namespace commsched {

/// A problem is small up to about this many nodes. It is annealed with so much slack that what a kind of tries gains
/// says little of the kind.
inline constexpr NodeId kMostSmall = 3000;

/// Moves the nodes of one order, and changes its buckets, within a peak limit. Units are not kept together.
class LocalMoves {
public:
  /// `decoded` is a legal schedule of the facts' problem with a peak of at most `limit`, bytes. With bucketing its
  /// buckets may change, and new ones may be formed. `seed` chooses other random moves. O((N + touches) log N + E).
  /// Every order meets `guards`, as `decoded` does.
  LocalMoves(const ScheduleFacts &facts, const DecodedSchedule &decoded, Bytes limit, uint64_t seed = 0,
             llvm::ArrayRef<TimeGuard> guards = {});

  /// Tries moves until `steps` are spent, which are counted down, or the makespan is at most `target`, ns. A move may
  /// lengthen the order by at most `slack`, ns; a random part of it is drawn for each. Equal arguments give equal
  /// orders on every machine. Ends early if `stop` is given and set.
  void run(int64_t &steps, Ns target, Ns slack = 0, const std::atomic<bool> *stop = nullptr);

  DecodedSchedule decoded() const { return order.decoded(); }
  Ns makespan() const { return order.makespan(); }

private:
  /// The kinds of tries, of which those do most of the work that do well: moves of single nodes, changes of buckets,
  /// and among these those that join buckets, put something off, or let a start come earlier.
  enum Kind : uint8_t { AnyMove, AnyChange, Join, PutOff, Advance };
  static constexpr size_t kKinds = 5;
  /// By how much the tries of a kind have lately shortened the shortest order, ns, and the steps that they took.
  struct Success {
    Ns gain = 0;
    int64_t steps = 1;
  };

  bool isLong() const { return order.size() > kLongOrder; }
  void chooseFocus();
  void findCritical();
  int32_t choosePosition();
  bool chooseForExposed(NodeMove &move);
  bool chooseMove(NodeMove &move);
  Ns drawAllowed(Ns slack);
  void tryMove(int64_t &steps, Ns slack);
  void tryChange(Kind kind, int64_t &steps, Ns slack);
  Kind chooseKind();
  void tryOne(int64_t &steps, Ns slack);
  NodeId chooseStart();
  bool choosePutOff(BucketChange &change, int64_t &work);
  NodeId chooseStarved(int64_t &work);
  bool chooseAdvance(BucketChange &change, int64_t &work);
  void findStarvedNear(int32_t position);

  BucketedOrder order;
  /// What the lanes add to the cost of a try, in played nodes.
  int64_t laneWork = 0;
  SplitMix64 random;
  BucketMoves buckets;
  /// All starts of the problem.
  std::vector<NodeId> starts;
  /// The positions that moves are tried at now, and the starts there.
  int32_t focusFirst = 0, focusEnd = 0;
  std::vector<NodeId> startsInFocus;
  /// The slots there on which the makespan depended when findCritical() last looked.
  std::vector<NodeId> critical;
  /// The waits at which compute stood still then, on the critical path.
  std::vector<NodeId> exposed;
  /// The starts for which their lane stood still then, on the critical path.
  std::vector<NodeId> starved;
  /// Indexed by slot: the number of the last advance that needed it; and the number of advances.
  std::vector<int64_t> neededIn;
  int64_t advances = 0;
  std::array<Success, kKinds> success;
  /// The least makespan so far, ns.
  Ns shortest = 0;
  /// Whether kinds that do well are drawn more often, and starts come earlier for lanes that stand still.
  bool learns = false;
  /// Number of changes that put something off since the last one of them that shortened the order.
  int64_t fruitless = 0;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_LOCALMOVES_H
