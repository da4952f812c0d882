//===- PeerOrder.cpp - Somebody else's order as an answer -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Somebody else may merge what this project does not, and may have operations of his own. So his order is a preference:
// the dependences of the problem decide, and he says which of the ready operations is the next one.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/Schedule.h"
#include "llvm/ADT/STLExtras.h"
#include <functional>
#include <map>
#include <queue>

using namespace commsched;

/// His buckets, without members that cannot be merged. A bucket of several keys becomes one for each.
static std::vector<Bucket> bucketsLike(const Problem &problem, const PeerAnswer &peer) {
  std::vector<Bucket> buckets;
  for (const std::vector<NodeId> &merged : peer.buckets) {
    std::map<int32_t, Bucket> byKey;
    for (NodeId start : merged)
      if (isMergeable(problem, start))
        byKey[problem.nodes[start].mergeKey].members.push_back(start);
    for (auto &[key, bucket] : byKey)
      if (bucket.members.size() > 1)
        buckets.push_back(std::move(bucket));
  }
  return buckets;
}

/// Indexed by node: its place in his order. What he does not name, such as a pack, comes with the first operation that
/// needs it.
static std::vector<size_t> placesIn(const Problem &problem, const Schedule &schedule, const PeerAnswer &peer) {
  const Problem &carriedOut = schedule.carriedOut(problem);
  const size_t last = peer.order.size();
  std::vector<size_t> places(carriedOut.size(), last);
  std::vector<bool> isNamed(carriedOut.size());
  for (auto [place, node] : llvm::enumerate(peer.order)) {
    const NodeId image = schedule.imageOf(node);
    if (!isNamed[image])
      places[image] = place;
    isNamed[image] = true;
  }
  for (NodeId node = carriedOut.size(); node-- > 0;)
    for (NodeId pred : carriedOut.preds[node])
      if (!isNamed[pred])
        places[pred] = std::min(places[pred], places[node]);
  return places;
}

Schedule commsched::answerLike(const Problem &problem, const PeerAnswer &peer) {
  llvm::Expected<Schedule> merged = mergeInOrder(problem, bucketsLike(problem, peer));
  if (!merged) // A bucket depends on itself.
    llvm::consumeError(merged.takeError());
  // Merging nothing fails for no problem.
  Schedule schedule = merged ? std::move(*merged) : llvm::cantFail(mergeInOrder(problem, {}));
  const Problem &carriedOut = schedule.carriedOut(problem);
  const std::vector<size_t> places = placesIn(problem, schedule, peer);
  std::vector<int32_t> missing(carriedOut.size());
  std::vector<std::vector<NodeId>> succs(carriedOut.size());
  for (NodeId node = 0; node < carriedOut.size(); ++node) {
    missing[node] = carriedOut.preds[node].size();
    for (NodeId pred : carriedOut.preds[node])
      succs[pred].push_back(node);
  }
  using Entry = std::pair<size_t, NodeId>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> ready;
  for (NodeId node = 0; node < carriedOut.size(); ++node)
    if (missing[node] == 0)
      ready.push({places[node], node});
  schedule.order.clear();
  while (!ready.empty()) {
    const NodeId node = ready.top().second;
    ready.pop();
    schedule.order.push_back(node);
    for (NodeId succ : succs[node])
      if (--missing[succ] == 0)
        ready.push({places[succ], succ});
  }
  return schedule;
}
