//===- IncrementalTimeline.h - The times of an order under small changes ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every clock of a timeline is a maximum of sums of earlier clocks and costs. So each clock has a tail: the longest
// time from its value to the end of the order. The makespan after a change of a few neighbours is the largest sum of a
// clock behind the change and its tail, and only the neighbours have to be played again. The heads and tails of
// job-shop scheduling are used in the same way (E. Taillard, "Parallel taboo search techniques for the job shop
// scheduling problem", ORSA Journal on Computing 6(2), 1994). Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_TIME_INCREMENTALTIMELINE_H
#define COMMSCHED_LIB_SCHEDULING_TIME_INCREMENTALTIMELINE_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/ADT/BitVector.h"
#include <algorithm>

namespace commsched {

/// An update of the clocks and tails of more nodes than this takes far longer than the rest of a change, so who makes
/// many changes focuses on some positions at a time.
inline constexpr NodeId kLongOrder = 32768;

/// The clocks of one order, and the tails of its clocks. Lanes are kept between blocks of positions only, and played
/// again within these.
class IncrementalTimeline {
public:
  /// `order` is a permutation of the problem's nodes that respects its edges. `costs`, indexed by node, replace
  /// Node::cost unless they are empty. O(N + E + lanes).
  IncrementalTimeline(const Problem &problem, llvm::ArrayRef<NodeId> order, llvm::ArrayRef<Ns> costs = {});

  /// The longest lane time of the order, ns; equal to makespanOf().
  Ns makespan() const { return longest; }

  /// A lower bound of the makespan, ns, of the order in which `window` stands at the positions from `first` on;
  /// `window` is a permutation of what stands there. The true makespan is this value or the largest time of what the
  /// window does not change, which is at most makespan(): an answer above makespan() is exact. The answer may also be
  /// any number above `cutoff` if the makespan is above `cutoff`. O(window + spacing), and less if compute stands still
  /// for too long within the window.
  Ns makespanIfReplaced(int32_t first, llvm::ArrayRef<NodeId> window, Ns cutoff);

  /// Makes that change. O(window + blocks in which clocks or tails change, or nodes that wait for a start whose end has
  /// changed, or starts whose waiting nodes' tails have changed).
  void replace(int32_t first, llvm::ArrayRef<NodeId> window);

  /// From now on all windows lie between these positions, of which there is at least one, until the next call. A change
  /// that moves all clocks behind it costs O(N) otherwise: now the clocks behind the blocks of these positions, and the
  /// tails before them, stay those of this call, and nothing but makespan() may be asked about positions outside.
  /// O(N + E + lanes).
  void focus(int32_t first, int32_t last);

  /// Changes what a node is: its kind, lane, costs and start. The clocks stay those of before until replace() is called
  /// with a window that contains the node, its waits and, if it is a wait, its start; makespanIfReplaced() with such a
  /// window answers for the changed nodes. A node with a region does not change.
  void setNode(NodeId id, const Node &node);

  /// Whether the node's own time is part of a longest path through the timeline, so that the makespan depends on it.
  /// `position` is where the node stands. O(1).
  bool isCritical(int32_t position) const;

  /// Whether the compute lane stands still at a wait, and the makespan depends on it. O(1).
  bool isExposed(int32_t position) const {
    return clocks[position + 1] > clocks[position] && clocks[position + 1] + tails[position + 1] == longest &&
           isWait(steps[current[position]]);
  }

  /// Whether the makespan depends on a start's collective, and it begins as soon as compute issues it. O(1).
  bool isStarved(int32_t position) const;

  /// When the collective of a start ends, ns, and what follows that end at least: through the nodes that wait for it,
  /// and through its lane as well.
  Ns endOf(NodeId start) const { return ends[start]; }
  Ns tailOfWaiters(NodeId start) const { return tailsOfEnds[start]; }
  Ns tailThrough(NodeId start) const { return tailsThrough[start]; }

  /// The compute lane's clock before a position, up to the number of nodes, and that clock's tail, ns. O(1).
  Ns clockAt(int32_t position) const { return clocks[position]; }
  Ns tailAt(int32_t position) const { return tails[position]; }
  /// The clocks of the communication lanes before a position, and their tails, ns, by lane. O(spacing + lanes).
  void lanesAt(int32_t position, std::vector<Ns> &lanes);
  void laneTailsAt(int32_t position, std::vector<Ns> &lanes);

  llvm::ArrayRef<NodeId> order() const { return current; }

private:
  /// What is played. Every try plays hundreds of nodes, so it is small: costs of starts on the compute lane, which are
  /// rarer, are kept apart.
  struct Step {
    /// As NodeKind. Ready: a wait for a future that came in; Region: a node with communication in its regions.
    enum Kind : uint8_t { Compute, Start, Wait, Ready, Hybrid, Region };
    /// Its cost; of a Ready, when its data is there, ns.
    Ns time;
    /// The lane of a start or hybrid, the start of a wait, the index of a region.
    int32_t what;
    Kind kind;
  };

  static bool isWait(const Step &step) { return step.kind == Step::Wait || step.kind == Step::Ready; }
  static Step stepOf(const Node &node, Ns cost);
  /// Calls `visit` with every start that a node waits for.
  template <typename Visit> void forEachAwaited(const Step &step, Visit visit) const {
    if (step.kind == Step::Wait)
      visit(step.what);
    else if (step.kind == Step::Region)
      for (NodeId start : problem.regions[step.what].starts)
        visit(start);
  }
  /// What a node takes of the compute lane, however long it waits, ns.
  Ns workOf(NodeId node) const {
    const Step &step = steps[node];
    return step.kind == Step::Start ? issues[node] : isWait(step) ? 0 : step.time;
  }
  Ns playRegion(NodeId node, Ns &compute);
  template <typename WillStart, typename WillAwait>
  Ns play(NodeId node, Ns &compute, WillStart willStart, WillAwait willAwait);
  void playBackward(NodeId node, Ns &tail);
  void updateTailOfEnd(NodeId start);
  void setTailOfWaiter(NodeId id, const Step &step, Ns tail);
  Ns playBlock(int32_t block, Ns compute);
  Ns playBlockBackward(int32_t block, Ns tail);
  void updateClocks();
  void updateTails();
  void measure();
  Ns longestAfter(int32_t lastBlock, Ns compute);
  int32_t size() const { return static_cast<int32_t>(current.size()); }
  int32_t blockOf(int32_t position) const { return position / spacing; }
  int32_t numBlocks() const { return (size() + spacing - 1) / spacing; }
  int32_t endOfBlock(int32_t block) const { return std::min((block + 1) * spacing, size()); }
  llvm::MutableArrayRef<Ns> lanesBefore(int32_t block) {
    return llvm::MutableArrayRef<Ns>(laneClocks).slice(static_cast<size_t>(block) * numLanes, numLanes);
  }
  llvm::MutableArrayRef<Ns> tailsBefore(int32_t block) {
    return llvm::MutableArrayRef<Ns>(laneTails).slice(static_cast<size_t>(block) * numLanes, numLanes);
  }

  const Problem &problem;
  /// Indexed by node, also the second: what issuing a start costs the compute lane, ns.
  std::vector<Step> steps;
  std::vector<Ns> issues;
  /// By start: the nodes that wait for it.
  std::vector<llvm::SmallVector<NodeId, 1>> waiters;
  Order current;
  std::vector<int32_t> positions;
  int32_t numLanes = 1;
  /// The positions are divided into blocks of this length, and lanes are kept between these. Large where there are many
  /// lanes, so that they take O(N).
  int32_t spacing = 32;
  Ns longest = 0;

  /// By position, N + 1 of them: the compute lane's clock before the node there, and that clock's tail.
  std::vector<Ns> clocks, tails;
  /// The lanes' clocks and their tails before each block, and before the end.
  std::vector<Ns> laneClocks, laneTails;
  /// By block: what its nodes take of the compute lane without what they wait, ns; and what the changes by setNode()
  /// add since the last replace().
  std::vector<Ns> work;
  Ns moreWork = 0;
  /// The blocks of the focus.
  int32_t firstBlock = 0, endBlock = 0;
  /// The longest path beside the focus, ns: through a start before it to a node behind it that waits for it, or from a
  /// future behind it that came in late.
  Ns passing = 0;
  /// The starts in the focus that nodes behind it wait for. Neither these nor those change before the next call.
  std::vector<NodeId> crossing;
  /// The blocks that an update has to play.
  llvm::BitVector dirty;
  /// By start: when its collective ends, and the tail of that end in what waits for it. Of all nodes on a communication
  /// lane: the tail of its end in all that follows.
  std::vector<Ns> ends, tailsOfEnds, tailsThrough;
  /// By node that waits for a start: the tail of the compute lane's clock before it.
  std::vector<Ns> tailsOfWaiters;
  /// Scratch: lanes; and of makespanIfReplaced(), the starts that were played, with their ends before.
  std::vector<Ns> lanesNow;
  std::vector<std::pair<NodeId, Ns>> played;
  /// By start: the number of the last trial in which a node that waits for it was played.
  std::vector<int32_t> waitedIn;
  int32_t trial = 0;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_TIME_INCREMENTALTIMELINE_H
