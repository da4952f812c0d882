//===- CapBound.cpp - What a memory limit costs -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CapBound.h"
#include "CommSched/Scheduling/Model/Bucketing.h"
#include "CommSched/Support/Arithmetic.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// The most nodes that are looked at, and how many nodes may be visited for all of them.
constexpr int64_t kScarcest = 256, kMaxVisits = int64_t(1) << 23;

/// Where a node stands with respect to the node that is looked at.
enum class Place : uint8_t { Beside, Before, Behind, There };

/// Looks at one node after the other.
class Bounder {
public:
  Bounder(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times, Bytes limit, bool bucketing)
      : problem(problem), costs(costs), times(times), limit(limit), vanishes(problem.size(), 0),
        released(problem.size(), kNone), defines(definitions(problem)) {
    for (NodeId node = 0; node < problem.size(); ++node) {
      if (problem.nodes[node].kind != NodeKind::Start || costs.lane[node] <= 0)
        continue;
      starts.push_back(node);
      if (!bucketing || problem.nodes[node].mergeKey == kNone || !isMergeable(problem, node))
        continue;
      const MergeMember &member = problem.members[node];
      vanishes[node] = vanishes[member.wait] = 1;
      released[member.wait] = member.input;
      if (NodeId cast = fusedCast(problem, node); cast != kNone)
        vanishes[cast] = 1;
    }
  }

  bool hasStarts() const { return !starts.empty(); }
  bool isPlace(NodeId node) const { return !vanishes[node] && times.exit[node] > 0; }

  /// Raises `bound` by what can be said of `node`.
  void raise(NodeId node, CapBound &bound) {
    findPlaces(node);
    weigh();
    Bytes room = limit - problem.nodes[node].workspace;
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
      NodeId def = problem.buffers[id].def;
      if (def == kNone || places[def] == Place::Before || places[def] == Place::There)
        room -= weights[id];
    }
    fillKnapsacks(node, std::max<Bytes>(room, 0), bound);
  }

private:
  struct Item {
    NodeId start;
    Bytes bytes;
  };

  static IndexLists definitions(const Problem &problem) {
    std::vector<std::vector<int32_t>> lists(problem.size());
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id)
      if (problem.buffers[id].def != kNone)
        lists[problem.buffers[id].def].push_back(id);
    IndexLists result;
    for (const std::vector<int32_t> &list : lists)
      result.append(list);
    return result;
  }

  void findPlaces(NodeId node) {
    places.assign(problem.size(), Place::Beside);
    places[node] = Place::There;
    auto isIn = [&](Place place) {
      return [this, place](NodeId other) { return places[other] == place || places[other] == Place::There; };
    };
    for (NodeId other = node + 1; other < problem.size(); ++other)
      if (llvm::any_of(problem.preds[other], isIn(Place::Behind)))
        places[other] = Place::Behind;
    for (NodeId other = node - 1; other >= 0; --other)
      if (llvm::any_of(problem.succs[other], isIn(Place::Before)))
        places[other] = Place::Before;
  }

  /// Sets the weights of all buffers: from the last nodes to the first, because a node's results come behind it.
  void weigh() {
    weights.assign(problem.buffers.size(), 0);
    given.assign(problem.size(), {});
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
      const Buffer &buffer = problem.buffers[id];
      NodeId last = kNone;
      bool isHeld = buffer.liveOut;
      for (NodeId user : problem.users[id]) {
        if (released[user] == id)
          continue;
        isHeld |= places[user] == Place::Behind || places[user] == Place::There;
        if (places[user] == Place::Beside && user != buffer.def)
          last = user;
      }
      if (isHeld && !problem.users[id].empty())
        weights[id] = buffer.bytes;
      else if (last != kNone)
        given[last].push_back(id);
    }
    for (NodeId node = problem.size() - 1; node >= 0; --node) {
      Bytes results = 0;
      for (BufferId id : given[node].empty() ? llvm::ArrayRef<int32_t>() : defines[node])
        results += weights[id];
      for (BufferId id : given[node]) {
        weights[id] = std::min(results, problem.buffers[id].bytes);
        results -= weights[id];
      }
    }
  }

  /// The starts that are not before the node fill the room of their lane; what does not fit comes behind the node.
  void fillKnapsacks(NodeId node, Bytes room, CapBound &bound) {
    llvm::SmallVector<Ns, 8> work(problem.numLanes(), 0), tail(problem.numLanes(), INT64_MAX);
    items.clear();
    for (NodeId start : starts) {
      if (places[start] == Place::Before || places[start] == Place::There)
        continue;
      LaneId lane = problem.nodes[start].lane;
      tail[lane] = std::min(tail[lane], times.laneTail[start]);
      if (places[start] == Place::Behind) {
        work[lane] += costs.lane[start];
        continue;
      }
      Bytes bytes = 0;
      for (BufferId id : defines[start])
        bytes += weights[id];
      for (BufferId id : given[start])
        bytes -= weights[id];
      if (bytes > 0)
        items.push_back({start, bytes});
    }
    llvm::sort(items, [&](const Item &a, const Item &b) {
      __int128 first = static_cast<__int128>(costs.lane[a.start]) * b.bytes;
      __int128 second = static_cast<__int128>(costs.lane[b.start]) * a.bytes;
      return first != second ? first > second : a.start < b.start;
    });
    llvm::SmallVector<Bytes, 8> left(problem.numLanes(), room);
    for (const Item &item : items) {
      LaneId lane = problem.nodes[item.start].lane;
      Bytes fits = std::min(left[lane], item.bytes);
      left[lane] -= fits;
      work[lane] += mulDiv(costs.lane[item.start], item.bytes - fits, item.bytes);
    }
    for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
      if (work[lane] > 0 && times.exit[node] + work[lane] + tail[lane] > bound.makespan)
        bound = {times.exit[node] + work[lane] + tail[lane], lane, node};
  }

  const Problem &problem;
  const BoundCosts &costs;
  const HeadsAndTails &times;
  const Bytes limit;
  std::vector<NodeId> starts;
  /// Of each node: whether a bucket may replace it; of a wait, the buffer that it does not hold then.
  std::vector<char> vanishes;
  std::vector<BufferId> released;
  /// Of each node: the buffers that it defines.
  const IndexLists defines;
  /// With respect to the node that is looked at: places, weights of buffers, and the buffers given to each node.
  std::vector<Place> places;
  std::vector<Bytes> weights;
  std::vector<llvm::SmallVector<BufferId, 2>> given;
  std::vector<Item> items;
};

} // namespace

CapBound commsched::capBound(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times,
                             llvm::ArrayRef<Bytes> mandatory, Bytes limit, bool bucketing) {
  CapBound bound;
  Bounder bounder(problem, costs, times, limit, bucketing);
  if (!bounder.hasStarts())
    return bound;
  std::vector<NodeId> nodes;
  for (NodeId node = 0; node < problem.size(); ++node)
    if (bounder.isPlace(node))
      nodes.push_back(node);
  llvm::stable_sort(nodes, [&](NodeId a, NodeId b) { return mandatory[a] > mandatory[b]; });
  int64_t most = std::clamp<int64_t>(kMaxVisits / std::max<int64_t>(1, problem.size()), 1, kScarcest);
  nodes.resize(std::min<size_t>(nodes.size(), static_cast<size_t>(most)));
  for (NodeId node : nodes)
    bounder.raise(node, bound);
  return bound;
}
