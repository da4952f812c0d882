//===- OverlapListScheduler.cpp - Starts early, waits late, compute in between ----------------===//

#include "CommSched/Scheduling/OverlapListScheduler.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <optional>
#include <queue>
#include <tuple>

using namespace commsched;

namespace {

/// Smaller keys are scheduled first. The last component is unique.
struct Key {
  int32_t collective = INT32_MAX;
  int32_t wait = 0;
  int32_t place = 0;

  bool operator>(const Key &other) const {
    return std::tie(collective, wait, place) > std::tie(other.collective, other.wait, other.place);
  }
};

bool isCollective(const Node &node) { return node.kind == NodeKind::Start || node.kind == NodeKind::Hybrid; }

class ListScheduler {
public:
  ListScheduler(const Problem &problem, llvm::ArrayRef<NodeId> order, const OverlapListOptions &options)
      : problem(problem), given(order), options(options), keys(problem.size()), unmet(problem.size()) {
    makeKeys();
  }

  Order run() {
    for (NodeId id : given) {
      unmet[id] = static_cast<int32_t>(problem.preds[id].size());
      if (unmet[id] == 0)
        makeReady(id);
    }
    while (std::optional<NodeId> next = pop(ready)) {
      emit(*next);
      if (options.fillWithCompute && isCollective(problem.nodes[*next]))
        fill(problem.nodes[*next].cost);
    }
    return std::move(result);
  }

private:
  struct Later {
    bool operator()(const std::pair<Key, NodeId> &a, const std::pair<Key, NodeId> &b) const {
      return a.first > b.first;
    }
  };
  using ReadyHeap = std::priority_queue<std::pair<Key, NodeId>, std::vector<std::pair<Key, NodeId>>, Later>;

  /// A node's collective is the least of its own index and those of its successors: the lowest that it leads to.
  void makeKeys() {
    int32_t collectives = 0;
    for (auto [place, id] : llvm::enumerate(given)) {
      keys[id].place = static_cast<int32_t>(place);
      const Node &node = problem.nodes[id];
      if (options.raiseStarts && isCollective(node))
        keys[id].collective = collectives++;
      else if (options.sinkWaits && node.kind == NodeKind::Wait)
        keys[id].wait = 1;
    }
    for (NodeId id : llvm::reverse(given))
      for (NodeId pred : problem.preds[id])
        keys[pred].collective = std::min(keys[pred].collective, keys[id].collective);
  }

  void makeReady(NodeId id) {
    ready.push({keys[id], id});
    if (options.fillWithCompute && problem.nodes[id].kind == NodeKind::Compute)
      readyComputes.push({keys[id], id});
  }

  /// The least node that is still ready; both heaps may hold nodes that went out through the other one.
  std::optional<NodeId> pop(ReadyHeap &heap) {
    while (!heap.empty()) {
      NodeId id = heap.top().second;
      heap.pop();
      if (unmet[id] == 0)
        return id;
    }
    return std::nullopt;
  }

  void emit(NodeId id) {
    unmet[id] = -1;
    result.push_back(id);
    for (NodeId succ : problem.succs[id])
      if (--unmet[succ] == 0)
        makeReady(succ);
  }

  void fill(Ns uncovered) {
    while (uncovered > 0) {
      std::optional<NodeId> next = pop(readyComputes);
      if (!next)
        return;
      emit(*next);
      uncovered -= problem.nodes[*next].cost;
    }
  }

  const Problem &problem;
  llvm::ArrayRef<NodeId> given;
  const OverlapListOptions &options;
  std::vector<Key> keys;
  std::vector<int32_t> unmet;
  ReadyHeap ready, readyComputes;
  Order result;
};

/// How far each start moved up (each wait down, when only waits sink), and what it stands next to.
std::vector<CollectiveRecord> describeMoves(const Problem &problem, llvm::ArrayRef<NodeId> before,
                                            llvm::ArrayRef<NodeId> after, const OverlapListOptions &options) {
  std::vector<int32_t> from(problem.size()), to(problem.size());
  for (int32_t at = 0; at < problem.size(); ++at)
    from[before[at]] = at, to[after[at]] = at;
  std::vector<CollectiveRecord> records;
  for (NodeId id : before) {
    const Node &node = problem.nodes[id];
    bool mover = options.raiseStarts ? node.kind == NodeKind::Start : node.kind == NodeKind::Wait;
    if (!mover)
      continue;
    CollectiveRecord record;
    record.node = id;
    record.moves = options.raiseStarts ? from[id] - to[id] : to[id] - from[id];
    // The nearest node that it depends on, or that depends on it.
    for (NodeId other : options.raiseStarts ? problem.preds[id] : problem.succs[id])
      if (record.blocker == kNone ||
          (options.raiseStarts ? to[other] > to[record.blocker] : to[other] < to[record.blocker]))
        record.blocker = other;
    record.factor = record.blocker == kNone ? LimitingFactor::BlockEnd : LimitingFactor::DataDependence;
    records.push_back(record);
  }
  return records;
}

} // namespace

ReorderResult commsched::scheduleForOverlap(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                            const OverlapListOptions &options) {
  ReorderResult result;
  result.order = ListScheduler(problem, order, options).run();
  result.records = describeMoves(problem, order, result.order, options);
  measureExposure(problem, order, result);
  return result;
}
