//===- ExactSearch.cpp - Optimal orders of small problems -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The bound of a prefix is the largest of the paths and the lane loads that remain. Children are tried by ascending
// bound, so that a good order is found early and cuts off the rest.
//
//===------------------------------------------------------------------------------------------===//

#include "ExactSearch.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// Limits on the number of prefixes that are kept for dominance tests, in total and for one set: they bound the memory
/// to some 20 MiB and the time of a test.
static constexpr size_t kMaxRemembered = 200000, kMaxPerSet = 12;
/// Number of nodes that can be visited in the time of one step.
static constexpr int64_t kNodesPerStep = 4;

PrefixSets::PrefixSets(const Problem &problem)
    : problem(problem), before(problem.size(), 0), allocates(problem.size(), 0), users(problem.buffers.size(), 0) {
  for (NodeId node = 0; node < problem.size(); ++node)
    for (NodeId pred : problem.preds[node])
      before[node] |= bit(pred);
  for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
    const Buffer &buffer = problem.buffers[id];
    if (buffer.def != kNone)
      allocates[buffer.def] += buffer.bytes;
    for (NodeId user : problem.users[id])
      users[id] |= bit(user);
    if (buffer.liveOut)
      users[id] = ~Set(0);
  }
}

Bytes PrefixSets::liveAtFirst() const {
  Bytes live = 0;
  for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id)
    if (problem.buffers[id].def == kNone && !problem.users[id].empty())
      live += problem.buffers[id].bytes;
  return live;
}

Bytes PrefixSets::liveBehind(Bytes live, Set done, NodeId node) const {
  live += allocates[node];
  for (BufferId id : problem.touches[node])
    if ((users[id] & ~done) == 0)
      live -= problem.buffers[id].bytes;
  return live;
}

ExactSearch::ExactSearch(const Problem &problem, Bytes limit, Ns cutoff)
    : problem(problem), limit(limit), cutoff(cutoff), sets(problem), path(problem.size(), 0), endOf(problem.size(), 0),
      pathOfWaits(problem.size(), 0), waits(problem.size(), 0) {
  for (NodeId node = 0; node < problem.size(); ++node) {
    if (problem.nodes[node].kind == NodeKind::Wait && problem.nodes[node].start != kNone)
      waits[problem.nodes[node].start] |= bit(node);
    for (NodeId start : awaitedInRegion(node))
      waits[start] |= bit(node);
  }
  for (NodeId node = problem.size() - 1; node >= 0; --node) {
    const Node &info = problem.nodes[node];
    Ns rest = 0;
    for (NodeId user : problem.succs[node]) {
      rest = std::max(rest, path[user]);
      bool waits = problem.nodes[user].kind == NodeKind::Wait && problem.nodes[user].start == node;
      if (waits || llvm::is_contained(awaitedInRegion(user), node))
        pathOfWaits[node] = std::max(pathOfWaits[node], path[user]);
    }
    path[node] =
        info.kind == NodeKind::Start ? std::max(info.cost + pathOfWaits[node], info.issue + rest) : info.cost + rest;
  }
}

llvm::ArrayRef<NodeId> ExactSearch::awaitedInRegion(NodeId node) const {
  int32_t region = problem.nodes[node].region;
  return region == kNone ? llvm::ArrayRef<NodeId>() : llvm::ArrayRef<NodeId>(problem.regions[region].starts);
}

bool ExactSearch::run(int64_t &steps) {
  left = &steps;
  State state;
  problem.beginLanes(state.laneFree);
  state.live = sets.liveAtFirst();
  if (bound(state) < cutoff)
    extend(state);
  return steps > 0;
}

bool ExactSearch::fits(const State &state, NodeId node) const { return sets.peakAt(state.live, node) <= limit; }

/// Whether a ready node takes no time and no memory. Such a node is placed at once.
bool ExactSearch::helpsOnly(const State &state, NodeId node) const {
  const Node &info = problem.nodes[node];
  if (sets.allocatedBy(node) != 0 || info.workspace != 0 || info.region != kNone)
    return false;
  if (info.kind == NodeKind::Wait)
    return (info.start == kNone ? info.ready : endOf[info.start]) <= state.compute;
  return info.kind == NodeKind::Compute && info.cost == 0;
}

/// Moves the clocks over a node without communication in regions.
void ExactSearch::moveClocks(State &next, NodeId node) {
  const Node &info = problem.nodes[node];
  Ns &lane = next.laneFree[info.lane];
  switch (info.kind) {
  case NodeKind::Compute:
    next.compute += info.cost;
    break;
  case NodeKind::Start:
    lane = endOf[node] = std::max(next.compute, lane) + info.cost;
    next.compute += info.issue;
    break;
  case NodeKind::Wait:
    next.compute = std::max(next.compute, info.start == kNone ? info.ready : endOf[info.start]);
    break;
  case NodeKind::Hybrid:
    next.compute = lane = std::max(next.compute, lane) + info.cost;
    break;
  }
}

/// The state after a node has been placed.
ExactSearch::State ExactSearch::after(const State &state, NodeId node) {
  const Node &info = problem.nodes[node];
  State next = state;
  if (info.region == kNone) {
    moveClocks(next, node);
  } else {
    next.compute = problem.beginOfRegion(info, state.compute, state.laneFree, endOf) + info.cost;
    for (LaneId lane : problem.regions[info.region].lanes)
      next.laneFree[lane] = next.compute;
  }
  next.done |= bit(node);
  next.live = sets.liveBehind(state.live, next.done, node);
  return next;
}

/// A lower bound on the makespan of every order that begins with this prefix, ns. Exact if it is a whole order.
Ns ExactSearch::bound(const State &state) const {
  Ns left = 0, result = state.compute;
  llvm::SmallVector<Ns, 8> load(problem.numLanes(), 0), after(problem.numLanes(), INT64_MAX);
  for (Ns lane : state.laneFree)
    result = std::max(result, lane);
  for (NodeId node = 0; node < problem.size(); ++node) {
    const Node &info = problem.nodes[node];
    if (state.done & bit(node)) {
      if (waits[node] & ~state.done)
        result = std::max(result, endOf[node] + pathOfWaits[node]);
      continue;
    }
    result = std::max(result, state.compute + path[node]);
    if (info.kind == NodeKind::Wait && info.start == kNone)
      result = std::max(result, info.ready + path[node]);
    left += info.kind == NodeKind::Start ? info.issue : info.cost;
    if (info.kind != NodeKind::Start && info.kind != NodeKind::Hybrid)
      continue;
    load[info.lane] += info.cost;
    after[info.lane] = std::min(after[info.lane], info.kind == NodeKind::Start ? pathOfWaits[node] : 0);
  }
  result = std::max(result, state.compute + left);
  for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
    if (load[lane] > 0)
      result = std::max(result, std::max(state.compute, state.laneFree[lane]) + load[lane] + after[lane]);
  return result;
}

ExactSearch::Clocks ExactSearch::clocksOf(const State &state) const {
  // A clock behind the compute clock makes no difference.
  Clocks clocks = {state.compute};
  for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
    clocks.push_back(std::max(state.compute, state.laneFree[lane]));
  for (NodeId node = 0; node < problem.size(); ++node)
    if ((state.done & bit(node)) && isAwaited(state, node))
      clocks.push_back(std::max(state.compute, endOf[node]));
  return clocks;
}

/// Whether a prefix of the same set dominates this one. Keeps this one otherwise.
bool ExactSearch::isDominated(const State &state) {
  Clocks clocks = clocksOf(state);
  auto covers = [](const Clocks &good, const Clocks &bad) {
    return llvm::all_of(llvm::zip_equal(good, bad), [](auto pair) { return std::get<0>(pair) <= std::get<1>(pair); });
  };
  std::vector<Clocks> &known = seen[state.done];
  if (llvm::any_of(known, [&](const Clocks &other) { return covers(other, clocks); }))
    return true;
  remembered -= known.size();
  llvm::erase_if(known, [&](const Clocks &other) { return covers(clocks, other); });
  if (known.size() < kMaxPerSet && remembered + known.size() < kMaxRemembered)
    known.push_back(std::move(clocks));
  remembered += known.size();
  return false;
}

/// Tries every continuation of a prefix, the most promising one first.
void ExactSearch::extend(const State &state) {
  *left -= 1 + problem.size() / kNodesPerStep;
  if (*left <= 0)
    return;
  if (static_cast<NodeId>(prefix.size()) == problem.size()) {
    best = prefix;
    cutoff = bound(state);
    return;
  }
  struct Child {
    Ns bound;
    bool computes;
    Ns path;
    NodeId node;
  };
  llvm::SmallVector<Child, 16> children;
  for (NodeId node = 0; node < problem.size(); ++node) {
    if (!sets.isReady(state.done, node) || !fits(state, node))
      continue;
    Ns end = endOf[node];
    Child child = {bound(after(state, node)), problem.nodes[node].kind != NodeKind::Start, path[node], node};
    endOf[node] = end;
    bool only = helpsOnly(state, node);
    if (only)
      children.clear();
    if (child.bound < cutoff)
      children.push_back(child);
    if (only)
      break;
  }
  llvm::sort(children, [](const Child &a, const Child &b) {
    return std::tuple(a.bound, a.computes, -a.path, a.node) < std::tuple(b.bound, b.computes, -b.path, b.node);
  });
  for (const Child &child : children) {
    if (child.bound >= cutoff)
      return;
    Ns end = endOf[child.node];
    State next = after(state, child.node);
    if (!isDominated(next)) {
      prefix.push_back(child.node);
      extend(next);
      prefix.pop_back();
    }
    endOf[child.node] = end;
  }
}
