//===- IncrementalTimeline.cpp - The times of an order under small changes --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays nodes forward for clocks and backward for tails.
//
//===------------------------------------------------------------------------------------------===//

#include "IncrementalTimeline.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <limits>
#include <utility>

using namespace commsched;

/// The least length of a block. Playing so many nodes costs about what a query of the memory after a move does.
static constexpr int32_t kLeastSpacing = 32;
/// The answer for what is above the cutoff.
static constexpr Ns kLate = std::numeric_limits<Ns>::max();

IncrementalTimeline::Step IncrementalTimeline::stepOf(const Node &node, Ns cost) {
  if (node.region != kNone)
    return {cost, node.region, Step::Region};
  switch (node.kind) {
  case NodeKind::Compute:
    break;
  case NodeKind::Start:
    return {cost, node.lane, Step::Start};
  case NodeKind::Wait:
    return node.start == kNone ? Step{node.ready, kNone, Step::Ready} : Step{0, node.start, Step::Wait};
  case NodeKind::Hybrid:
    return {cost, node.lane, Step::Hybrid};
  }
  return {cost, kNone, Step::Compute};
}

IncrementalTimeline::IncrementalTimeline(const Problem &problem, llvm::ArrayRef<NodeId> order, llvm::ArrayRef<Ns> costs)
    : problem(problem), current(order.begin(), order.end()), positions(order.size(), 0),
      numLanes(std::max<LaneId>(problem.numLanes(), 1)), spacing(std::max(kLeastSpacing, numLanes)) {
  const int32_t size = problem.size();
  waiters.resize(size);
  steps.reserve(size);
  issues.reserve(size);
  for (NodeId id = 0; id < size; ++id) {
    const Node &node = problem.nodes[id];
    steps.push_back(stepOf(node, costs.empty() ? node.cost : costs[id]));
    issues.push_back(node.issue);
    forEachAwaited(steps[id], [&](NodeId start) { waiters[start].push_back(id); });
  }

  const size_t kept = static_cast<size_t>(numBlocks() + 1) * numLanes;
  clocks.assign(size + 1, 0);
  tails.assign(size + 1, 0);
  laneClocks.assign(kept, 0);
  laneTails.assign(kept, 0);
  ends.assign(size, 0);
  tailsOfEnds.assign(size, 0);
  tailsThrough.assign(size, 0);
  tailsOfWaiters.assign(size, 0);
  waitedIn.assign(size, 0);
  work.assign(numBlocks(), 0);
  for (int32_t at = 0; at < size; ++at)
    positions[current[at]] = at;
  problem.beginLanes(lanesNow);
  llvm::copy(lanesNow, lanesBefore(0).begin());
  dirty.resize(numBlocks(), true);
  endBlock = numBlocks();
  updateClocks();
  dirty.set();
  updateTails();
  measure();
}

void IncrementalTimeline::focus(int32_t first, int32_t last) {
  if (firstBlock > 0 || endBlock < numBlocks()) {
    firstBlock = 0;
    endBlock = numBlocks();
    dirty.set();
    updateClocks();
    dirty.set();
    updateTails();
  }
  firstBlock = blockOf(first);
  endBlock = blockOf(last - 1) + 1;
  passing = 0;
  crossing.clear();
  const int32_t begin = firstBlock * spacing, end = endOfBlock(endBlock - 1);
  auto isBehind = [&](NodeId waiter) { return positions[waiter] >= end; };
  for (NodeId start : llvm::ArrayRef(current).slice(begin, end - begin))
    if (llvm::any_of(waiters[start], isBehind))
      crossing.push_back(start);
  for (NodeId start : llvm::ArrayRef(current).take_front(begin))
    for (NodeId waiter : llvm::make_filter_range(waiters[start], isBehind))
      passing = std::max(passing, ends[start] + tailsOfWaiters[waiter]);
  for (int32_t at = end; at < size(); ++at)
    if (const Step &step = steps[current[at]]; step.kind == Step::Ready)
      passing = std::max(passing, step.time + tails[at + 1]);
  measure();
}

/// Every path ends behind the focus, where the tails are known. It gets there on the compute lane, on another one, or
/// through a start that something behind it waits for, or it begins there.
void IncrementalTimeline::measure() {
  const int32_t end = std::min(endBlock * spacing, size());
  longest = std::max(passing, clocks[end] + tails[end]);
  for (auto [lane, tail] : llvm::zip_equal(lanesBefore(endBlock), tailsBefore(endBlock)))
    longest = std::max(longest, lane + tail);
  for (NodeId start : crossing)
    longest = std::max(longest, ends[start] + tailsOfEnds[start]);
}

Ns IncrementalTimeline::playRegion(NodeId id, Ns &compute) {
  const Node &node = problem.nodes[id];
  const Ns begin = problem.beginOfRegion(node, compute, lanesNow, ends), stall = begin - compute;
  compute = begin + steps[id].time;
  for (LaneId lane : problem.regions[node.region].lanes)
    lanesNow[lane] = compute;
  return stall;
}

/// The rules of makespanOf(), on `compute` and lanesNow. Calls `willStart` before the end of a start is set, and
/// `willAwait` with each start that a node waits for. Returns for how long compute stands still, ns.
template <typename WillStart, typename WillAwait>
inline Ns IncrementalTimeline::play(NodeId id, Ns &compute, WillStart willStart, WillAwait willAwait) {
  const Step step = steps[id];
  const Ns before = compute;
  switch (step.kind) {
  case Step::Compute:
    compute += step.time;
    return 0;
  case Step::Start: {
    Ns &lane = lanesNow[step.what];
    lane = std::max(compute, lane) + step.time;
    willStart(id, lane);
    ends[id] = lane;
    compute += issues[id];
    return 0;
  }
  case Step::Wait:
    willAwait(step.what);
    compute = std::max(compute, ends[step.what]);
    return compute - before;
  case Step::Ready:
    compute = std::max(compute, step.time);
    return compute - before;
  case Step::Hybrid: {
    const Ns begin = std::max(compute, lanesNow[step.what]);
    compute = lanesNow[step.what] = begin + step.time;
    return begin - before;
  }
  case Step::Region:
    forEachAwaited(step, willAwait);
    return playRegion(id, compute);
  }
  return 0;
}

void IncrementalTimeline::updateTailOfEnd(NodeId start) {
  tailsOfEnds[start] = 0;
  for (NodeId waiter : waiters[start])
    tailsOfEnds[start] = std::max(tailsOfEnds[start], tailsOfWaiters[waiter]);
}

/// Sets the tail of a node that waits for starts. These have to be played again if it is another one.
void IncrementalTimeline::setTailOfWaiter(NodeId id, const Step &step, Ns tail) {
  if (std::exchange(tailsOfWaiters[id], tail) == tail)
    return;
  forEachAwaited(step, [&](NodeId start) {
    updateTailOfEnd(start);
    dirty.set(blockOf(positions[start]));
  });
}

/// The same rules, from the tails after a node to the tails before it.
void IncrementalTimeline::playBackward(NodeId id, Ns &tail) {
  const Step step = steps[id];
  switch (step.kind) {
  case Step::Compute:
    tail += step.time;
    break;
  case Step::Start: {
    Ns &lane = lanesNow[step.what];
    tailsThrough[id] = std::max(tailsOfEnds[id], lane);
    lane = tailsThrough[id] + step.time;
    tail = std::max(tail + issues[id], lane);
    break;
  }
  case Step::Wait:
    setTailOfWaiter(id, step, tail);
    break;
  case Step::Ready:
    break;
  case Step::Hybrid:
    tailsThrough[id] = std::max(tail, lanesNow[step.what]);
    tail = lanesNow[step.what] = tailsThrough[id] + step.time;
    break;
  case Step::Region: {
    llvm::ArrayRef<LaneId> lanes = problem.regions[step.what].lanes;
    for (LaneId lane : lanes)
      tail = std::max(tail, lanesNow[lane]);
    tailsThrough[id] = tail;
    tail += step.time;
    setTailOfWaiter(id, step, tail);
    for (LaneId lane : lanes)
      lanesNow[lane] = tail;
    break;
  }
  }
}

/// Plays a block from the clocks before it. What waits for a start whose end changes has to be played again.
Ns IncrementalTimeline::playBlock(int32_t block, Ns compute) {
  auto willStart = [&](NodeId start, Ns end) {
    if (ends[start] != end)
      for (NodeId waiter : waiters[start])
        dirty.set(blockOf(positions[waiter]));
  };
  Ns stalls = 0;
  const Ns before = compute;
  for (int32_t at = block * spacing, end = endOfBlock(block); at < end; ++at) {
    clocks[at] = compute;
    stalls += play(current[at], compute, willStart, [](NodeId) {});
  }
  work[block] = compute - before - stalls;
  return compute;
}

/// Plays a block backward from the tails behind it.
Ns IncrementalTimeline::playBlockBackward(int32_t block, Ns tail) {
  for (int32_t at = endOfBlock(block), first = block * spacing; at-- > first;) {
    const Step &step = steps[current[at]];
    // Most nodes, without the switch.
    if (step.kind == Step::Compute)
      tail += step.time;
    else
      playBackward(current[at], tail);
    tails[at] = tail;
  }
  return tail;
}

/// Plays the blocks of the focus that are dirty, and each one behind which the clocks differ from what is kept.
void IncrementalTimeline::updateClocks() {
  auto keep = [&](int32_t block, Ns compute) {
    llvm::MutableArrayRef<Ns> kept = lanesBefore(block);
    const int32_t at = std::min(block * spacing, size());
    const bool isSame = clocks[at] == compute && std::equal(kept.begin(), kept.end(), lanesNow.begin());
    clocks[at] = compute;
    std::copy(lanesNow.begin(), lanesNow.end(), kept.begin());
    return isSame;
  };
  for (int32_t block = dirty.find_first(); block >= 0 && block < endBlock; block = dirty.find_next(block)) {
    llvm::copy(lanesBefore(block), lanesNow.begin());
    Ns compute = clocks[block * spacing];
    for (bool goesOn = true; goesOn && block < endBlock; block += goesOn) {
      compute = playBlock(block, compute);
      goesOn = !keep(block + 1, compute) || (block + 1 < endBlock && dirty.test(block + 1));
    }
    if (block == endBlock)
      break;
  }
}

/// The same backward: plays the blocks that are dirty, and each one before which the tails differ from what is kept.
void IncrementalTimeline::updateTails() {
  auto keep = [&](int32_t block, Ns before, Ns tail) {
    llvm::MutableArrayRef<Ns> kept = tailsBefore(block);
    const bool isSame = before == tail && std::equal(kept.begin(), kept.end(), lanesNow.begin());
    std::copy(lanesNow.begin(), lanesNow.end(), kept.begin());
    return isSame;
  };
  for (int32_t block = dirty.find_last(); block >= firstBlock; block = dirty.find_prev(block)) {
    llvm::copy(tailsBefore(block + 1), lanesNow.begin());
    Ns tail = tails[endOfBlock(block)];
    for (bool goesOn = true; goesOn && block >= firstBlock; block -= goesOn) {
      Ns before = tails[block * spacing];
      tail = playBlockBackward(block, tail);
      goesOn = !keep(block, before, tail) || (block > firstBlock && dirty.test(block - 1));
    }
    if (block < firstBlock)
      break;
  }
}

Ns IncrementalTimeline::makespanIfReplaced(int32_t first, llvm::ArrayRef<NodeId> window, Ns cutoff) {
  const int32_t last = first + static_cast<int32_t>(window.size());
  const int32_t block = blockOf(first), lastBlock = blockOf(last - 1), end = endOfBlock(lastBlock);
  llvm::copy(lanesBefore(block), lanesNow.begin());
  Ns compute = clocks[block * spacing];
  // For how long compute may stand still: its work in these blocks is the same in any order.
  Ns slack = cutoff - compute - moreWork - tails[end];
  for (int32_t index = block; index <= lastBlock; ++index)
    slack -= work[index];
  played.clear();
  ++trial;
  const int32_t begin = block * spacing;
  llvm::ArrayRef<NodeId> now = current;
  for (llvm::ArrayRef<NodeId> nodes : {now.slice(begin, first - begin), window, now.slice(last, end - last)})
    for (size_t at = 0; at < nodes.size() && slack >= 0; ++at)
      slack -= play(
          nodes[at], compute, [&](NodeId start, Ns) { played.push_back({start, ends[start]}); },
          [&](NodeId start) { waitedIn[start] = trial; });
  const Ns result = slack >= 0 ? longestAfter(lastBlock, compute) : kLate;
  for (auto [start, before] : played)
    ends[start] = before;
  return result;
}

/// The longest time from the clocks behind what was played to the end. `lastBlock` was played last.
Ns IncrementalTimeline::longestAfter(int32_t lastBlock, Ns compute) {
  Ns result = compute + tails[endOfBlock(lastBlock)];
  llvm::ArrayRef<Ns> after = tailsBefore(lastBlock + 1);
  for (int32_t lane = 0; lane < numLanes; ++lane)
    result = std::max(result, lanesNow[lane] + after[lane]);
  // What is in flight. A node that waits for it and was played has seen its end.
  for (auto [start, before] : played)
    if (waitedIn[start] != trial)
      result = std::max(result, ends[start] + tailsOfEnds[start]);
  return result;
}

void IncrementalTimeline::lanesAt(int32_t position, std::vector<Ns> &lanes) {
  const int32_t block = std::min(blockOf(position), numBlocks());
  llvm::copy(lanesBefore(block), lanesNow.begin());
  // What is played gets the ends that it has.
  Ns compute = clocks[std::min(block * spacing, size())];
  for (int32_t at = block * spacing; at < position; ++at)
    play(current[at], compute, [](NodeId, Ns) {}, [](NodeId) {});
  lanes = lanesNow;
}

void IncrementalTimeline::laneTailsAt(int32_t position, std::vector<Ns> &lanes) {
  const int32_t block = std::min(blockOf(position + spacing - 1), numBlocks());
  llvm::copy(tailsBefore(block), lanesNow.begin());
  int32_t at = std::min(block * spacing, size());
  for (Ns tail = tails[at]; at-- > position;)
    playBackward(current[at], tail);
  lanes = lanesNow;
}

void IncrementalTimeline::setNode(NodeId id, const Node &node) {
  forEachAwaited(steps[id], [&](NodeId start) {
    llvm::erase(waiters[start], id);
    updateTailOfEnd(start);
  });
  moreWork -= workOf(id);
  steps[id] = stepOf(node, node.cost);
  issues[id] = node.issue;
  moreWork += workOf(id);
  forEachAwaited(steps[id], [&](NodeId start) {
    waiters[start].push_back(id);
    updateTailOfEnd(start);
  });
}

void IncrementalTimeline::replace(int32_t first, llvm::ArrayRef<NodeId> window) {
  const int32_t last = first + static_cast<int32_t>(window.size());
  for (int32_t at = first; at < last; ++at) {
    current[at] = window[at - first];
    positions[current[at]] = at;
  }
  for (void (IncrementalTimeline::*update)() :
       {&IncrementalTimeline::updateClocks, &IncrementalTimeline::updateTails}) {
    dirty.reset();
    dirty.set(blockOf(first), blockOf(last - 1) + 1);
    (this->*update)();
  }
  moreWork = 0;
  measure();
}

bool IncrementalTimeline::isCritical(int32_t position) const {
  NodeId node = current[position];
  const Step &step = steps[node];
  if (step.kind == Step::Start)
    return ends[node] + tailsThrough[node] == longest;
  return step.time > 0 && step.kind != Step::Ready && clocks[position + 1] + tails[position + 1] == longest &&
         clocks[position] + tails[position] == longest;
}

bool IncrementalTimeline::isStarved(int32_t position) const {
  NodeId node = current[position];
  const Step &step = steps[node];
  return step.kind == Step::Start && clocks[position] > 0 && ends[node] == clocks[position] + step.time &&
         ends[node] + tailsThrough[node] == longest;
}
