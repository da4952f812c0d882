//===- OrderFsdp.cpp - Contiguous groups for fully sharded collectives ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Collects the groups by searches along edges, then schedules groups and single nodes as units with Kahn's algorithm.
// Units on a cycle (a strongly connected component of several units) are dissolved, and the scheduling is repeated.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/OrderFsdp.h"
#include "llvm/ADT/GraphTraits.h"
#include "llvm/ADT/SCCIterator.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <functional>
#include <queue>

using namespace commsched;

namespace {

/// A node or a group, and the units that follow it.
struct UnitNode {
  std::vector<UnitNode *> after;
};
using UnitGraph = std::vector<UnitNode>;

} // namespace

namespace llvm {
template <> struct GraphTraits<UnitNode *> {
  using NodeRef = UnitNode *;
  using ChildIteratorType = std::vector<UnitNode *>::iterator;
  static NodeRef getEntryNode(UnitNode *node) { return node; }
  static ChildIteratorType child_begin(NodeRef node) { return node->after.begin(); }
  static ChildIteratorType child_end(NodeRef node) { return node->after.end(); }
};
} // namespace llvm

namespace {

class FsdpOrderer {
public:
  FsdpOrderer(const Problem &problem, llvm::ArrayRef<NodeId> order, llvm::ArrayRef<FsdpRole> roles,
              std::vector<FsdpGroups> &formed)
      : problem(problem), given(order), roles(roles), formed(formed), place(problem.size()),
        groupOf(problem.size(), kNone) {
    for (auto [at, id] : llvm::enumerate(order))
      place[id] = static_cast<int32_t>(at);
  }

  /// Returns the order.
  Order run() {
    for (NodeId id : given) {
      const Node &node = problem.nodes[id];
      if (node.kind == NodeKind::Start && node.collective == CollectiveKind::AllGather && groupOf[id] == kNone)
        formGather(id);
      else if (roles[id] == FsdpRole::ChunkCat && groupOf[id] == kNone)
        formScatter(id);
    }
    return schedule();
  }

private:
  bool isStart(NodeId id) const { return problem.nodes[id].kind == NodeKind::Start; }
  bool isWait(NodeId id) const { return problem.nodes[id].kind == NodeKind::Wait; }
  bool isView(NodeId id) const { return problem.nodes[id].kind == NodeKind::Compute && problem.nodes[id].cost == 0; }

  /// Returns the nodes that `roots` reach along `edges`, roots included, in the given order. The search enters free
  /// nodes that `enter` admits and does not continue beyond nodes with the role `last`.
  std::vector<NodeId> reach(std::vector<NodeId> roots, const IndexLists &edges, llvm::function_ref<bool(NodeId)> enter,
                            FsdpRole last = FsdpRole::None) {
    std::vector<NodeId> found = std::move(roots);
    ++visit;
    for (NodeId root : found)
      seen[root] = visit;
    for (size_t next = 0; next < found.size(); ++next)
      if (last == FsdpRole::None || roles[found[next]] != last)
        for (NodeId other : edges[found[next]])
          if (groupOf[other] == kNone && seen[other] != visit && enter(other)) {
            seen[other] = visit;
            found.push_back(other);
          }
    llvm::sort(found, [&](NodeId a, NodeId b) { return place[a] < place[b]; });
    return found;
  }

  /// Collects the groups of an all-gather: the nodes that produce its input, and its waits with the copy-outs.
  void formGather(NodeId start) {
    std::vector<NodeId> launch = reach({start}, problem.preds, [&](NodeId id) {
      return problem.nodes[id].kind == NodeKind::Compute && roles[id] != FsdpRole::CopyOut;
    });
    if (llvm::none_of(launch, [&](NodeId id) { return roles[id] == FsdpRole::CopyIn; }))
      return;
    // A copy-out that is only reached through another one belongs to the layer's next use. Views of what was copied
    // out stay with it.
    auto isCopyOut = [&](NodeId id) { return roles[id] == FsdpRole::CopyOut; };
    auto followsWait = [&](NodeId id) { return problem.nodes[id].start == start || isCopyOut(id) || isView(id); };
    std::vector<NodeId> copied = reach({start}, problem.succs, followsWait, FsdpRole::CopyOut);
    std::vector<NodeId> wait = reach(copied, problem.succs, [&](NodeId id) { return isView(id) && !isCopyOut(id); });
    // Only what follows from a wait: a view of the start's own operands is no part of it.
    wait.erase(wait.begin(), llvm::find_if(wait, [&](NodeId id) { return isWait(id); }));
    form(start, std::move(launch), std::move(wait), gathers);
  }

  /// Collects the groups of a reduce-scatter: its copy-in, and its wait with all nodes that depend on it.
  void formScatter(NodeId chunkCat) {
    auto isPlain = [&](NodeId id) {
      return problem.nodes[id].kind == NodeKind::Compute && roles[id] == FsdpRole::None;
    };
    NodeId start = kNone;
    for (NodeId copy : reach({chunkCat}, problem.succs, isPlain))
      for (NodeId succ : problem.succs[copy])
        if (isStart(succ) && problem.nodes[succ].collective == CollectiveKind::ReduceScatter &&
            groupOf[succ] == kNone && (start == kNone || place[succ] < place[start]))
          start = succ;
    if (start == kNone)
      return;
    std::vector<NodeId> related = reach({chunkCat}, problem.succs, [&](NodeId id) {
      return id == start || problem.nodes[id].start == start || isPlain(id);
    });
    auto firstWait = llvm::find_if(related, [&](NodeId id) { return isWait(id); });
    form(start, {related.begin(), firstWait}, {firstWait, related.end()}, scatters);
  }

  void form(NodeId start, std::vector<NodeId> launch, std::vector<NodeId> wait, std::vector<int32_t> &kind) {
    if (wait.empty())
      return;
    int32_t index = static_cast<int32_t>(formed.size());
    for (NodeId id : launch)
      groupOf[id] = 2 * index;
    for (NodeId id : wait)
      groupOf[id] = 2 * index + 1;
    formed.push_back({start, std::move(launch), std::move(wait)});
    kind.push_back(index);
  }

  llvm::ArrayRef<NodeId> members(int32_t group) const {
    const FsdpGroups &groups = formed[group / 2];
    return group % 2 == 0 ? groups.launch : groups.wait;
  }

  /// The unit in which a node is scheduled: its group unless that has been dissolved, otherwise the node alone.
  int32_t unitOf(NodeId id) const {
    int32_t group = groupOf[id];
    return group == kNone || broken[group] ? id : problem.size() + group;
  }
  llvm::ArrayRef<NodeId> nodesOf(const int32_t &unit) const {
    return unit < problem.size() ? llvm::ArrayRef<NodeId>(unit) : members(unit - problem.size());
  }

  /// Kahn's algorithm over units, by first position. Dissolves units on a cycle and starts again.
  Order schedule() {
    broken.assign(2 * formed.size(), 0);
    while (true) {
      UnitGraph graph = makeGraph();
      Order order = sortUnits(graph);
      if (order.size() == static_cast<size_t>(problem.size()))
        return order;
      dissolveCycles(graph);
    }
  }

  /// Sets the units that follow each unit: by dependences, and by the order of the groups of one kind.
  UnitGraph makeGraph() {
    UnitGraph graph(problem.size() + broken.size());
    auto addEdge = [&](int32_t from, int32_t to) {
      if (from != to)
        graph[from].after.push_back(&graph[to]);
    };
    for (NodeId id : given)
      for (NodeId pred : problem.preds[id])
        addEdge(unitOf(pred), unitOf(id));
    for (const std::vector<int32_t> *kind : {&gathers, &scatters})
      for (size_t next = 1; next < kind->size(); ++next) {
        int32_t from = 2 * (*kind)[next - 1] + 1, to = 2 * (*kind)[next];
        bool inTurn = !broken[from] && !broken[to];
        formed[to / 2].after = inTurn ? from / 2 : kNone;
        if (inTurn)
          addEdge(problem.size() + from, problem.size() + to);
      }
    return graph;
  }

  /// Returns the nodes of all units that are not behind a cycle.
  Order sortUnits(const UnitGraph &graph) const {
    std::vector<int32_t> unmet(graph.size(), 0);
    for (const UnitNode &unit : graph)
      for (const UnitNode *next : unit.after)
        ++unmet[next - graph.data()];
    using Entry = std::pair<int32_t, int32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> ready;
    auto push = [&](int32_t unit) { ready.push({place[nodesOf(unit).front()], unit}); };
    for (NodeId id : given)
      if (int32_t unit = unitOf(id); unmet[unit] == 0 && nodesOf(unit).front() == id)
        push(unit);
    Order order;
    while (!ready.empty()) {
      int32_t unit = ready.top().second;
      ready.pop();
      llvm::append_range(order, nodesOf(unit));
      for (const UnitNode *next : graph[unit].after)
        if (int32_t index = static_cast<int32_t>(next - graph.data()); --unmet[index] == 0)
          push(index);
    }
    return order;
  }

  /// Dissolves the groups that are on a cycle: those in one strongly connected component with another unit.
  void dissolveCycles(UnitGraph &graph) {
    UnitNode root;
    for (UnitNode &unit : graph)
      root.after.push_back(&unit);
    for (auto component = llvm::scc_begin(&root); !component.isAtEnd(); ++component) {
      if (component->size() == 1)
        continue;
      for (const UnitNode *unit : *component)
        if (int64_t group = unit - graph.data() - problem.size(); group >= 0)
          dissolve(static_cast<int32_t>(group));
    }
  }

  void dissolve(int32_t group) {
    FsdpGroups &groups = formed[group / 2];
    broken[group] = 1;
    groups.together = false;
    (group % 2 == 0 ? groups.launchTogether : groups.waitTogether) = false;
  }

  const Problem &problem;
  llvm::ArrayRef<NodeId> given;
  llvm::ArrayRef<FsdpRole> roles;
  std::vector<FsdpGroups> &formed;
  std::vector<int32_t> place;
  /// Indexed by node: 2 * group, plus 1 in its wait group; kNone outside of groups.
  std::vector<int32_t> groupOf;
  std::vector<char> broken;
  std::vector<int32_t> gathers, scatters;
  std::vector<int32_t> seen = std::vector<int32_t>(problem.size(), 0);
  int32_t visit = 0;
};

} // namespace

Schedule commsched::orderFsdp(const Problem &problem, llvm::ArrayRef<NodeId> order, llvm::ArrayRef<FsdpRole> roles,
                              std::vector<FsdpGroups> &groups) {
  groups.clear();
  Schedule result;
  result.order = FsdpOrderer(problem, order, roles, groups).run();
  std::vector<int32_t> from(problem.size()), to(problem.size());
  for (int32_t at = 0; at < problem.size(); ++at)
    from[order[at]] = at, to[result.order[at]] = at;
  for (const FsdpGroups &formed : groups) {
    CollectiveRecord record;
    record.node = formed.start;
    record.grouped = static_cast<int32_t>(formed.launch.size() + formed.wait.size());
    record.moves = from[formed.start] - to[formed.start];
    record.factor = formed.together ? LimitingFactor::Grouped : LimitingFactor::GroupDissolved;
    result.records.push_back(record);
  }
  measureExposure(problem, order, result);
  return result;
}
