//===- ExactBuckets.cpp - All buckets of small problems ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Enumerates every way to merge a few collectives, and all orders of each (ExactSearch.h). If the enumeration comes to
// its end, nothing is shorter than the answer.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "SearchPhases.h"
#include "Solver/Exact/ExactSearch.h"
#include <algorithm>

using namespace commsched;

namespace {

/// Limit on the number of collectives that may be merged: eight have 4,140 partitions.
constexpr size_t kMostMergeable = 8;

/// The enumeration of all buckets of one problem.
class BucketEnumeration {
public:
  explicit BucketEnumeration(SearchState &state) : state(state), problem(state.facts.problem) {
    for (NodeId node = 0; node < problem.size(); ++node)
      if (state.facts.mergeable[node])
        starts.push_back(node);
  }

  void run() {
    if (starts.empty() || starts.size() > kMostMergeable)
      return;
    spentBefore = state.spent();
    isComplete = true;
    assign(0);
    if (state.spent() > spentBefore)
      state.noteFruitless(spentBefore);
    if (isComplete)
      state.knowLeastOfAllSchedules();
  }

private:
  /// Puts the start with index `next`, and those behind it, into the buckets of those before it and into new ones.
  void assign(size_t next) {
    if (!isComplete)
      return;
    if (next == starts.size())
      return chooseForms(0);
    for (size_t index = 0; index < groups.size(); ++index) {
      if (!mayJoin(groups[index], starts[next]))
        continue;
      groups[index].members.push_back(starts[next]);
      assign(next + 1);
      groups[index].members.pop_back();
    }
    groups.push_back({{starts[next]}, BucketForm::Coalesced});
    assign(next + 1);
    groups.pop_back();
  }

  bool mayJoin(const Bucket &group, NodeId start) const {
    const int32_t key = problem.nodes[start].mergeKey;
    if (problem.nodes[group.members.front()].mergeKey != key)
      return false;
    Bytes bytes = problem.nodes[start].bytes;
    for (NodeId member : group.members)
      bytes += problem.nodes[member].bytes;
    const Bytes cap = problem.mergeKeys[key].cap;
    return cap < 0 || bytes <= cap;
  }

  /// Gives the groups from `next` on every form.
  void chooseForms(size_t next) {
    if (next == groups.size())
      return searchOrders();
    const bool isBucket = groups[next].members.size() > 1;
    groups[next].form = BucketForm::Coalesced;
    chooseForms(next + 1);
    if (!isBucket || !problem.copyCost)
      return;
    groups[next].form = BucketForm::Packed;
    chooseForms(next + 1);
  }

  /// Searches all orders with the present buckets.
  void searchOrders() {
    if (!isComplete)
      return;
    std::vector<Bucket> buckets;
    for (const Bucket &group : groups)
      if (group.members.size() > 1)
        buckets.push_back(group);
    state.spend(problem.size());
    llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, buckets);
    if (!expanded) // Buckets that depend on themselves.
      return llvm::consumeError(expanded.takeError());
    BoundOptions bound;
    bound.limit = state.limit;
    if (lowerBound(expanded->problem, bound).withLimit >= state.makespan())
      return;
    isComplete = expanded->problem.size() <= ExactSearch::kMaxNodes && search(*expanded, std::move(buckets));
  }

  /// Returns whether all orders were looked at, and what was found was taken.
  bool search(const ExpandedProblem &expanded, std::vector<Bucket> buckets) {
    ExactSearch exact(expanded.problem, state.limit, state.makespan());
    int64_t steps = state.left(), allowed = steps;
    if (steps <= 0)
      return false;
    const bool wasComplete = exact.run(steps);
    state.spend(allowed - steps);
    if (exact.order().empty())
      return wasComplete;
    DecodedSchedule found;
    found.makespan = exact.makespan();
    found.steps = stepsOf(problem, buckets, expanded, exact.order());
    found.buckets = std::move(buckets);
    const bool isTaken = state.offer(std::move(found), spentBefore) == SearchVerdict::Incumbent;
    spentBefore = state.spent();
    return isTaken && wasComplete;
  }

  SearchState &state;
  const Problem &problem;
  std::vector<NodeId> starts;
  /// The starts that have a place so far, in groups of one key.
  std::vector<Bucket> groups;
  int64_t spentBefore = 0;
  bool isComplete = false;
};

} // namespace

void commsched::searchBuckets(SearchState &state) {
  const Problem &problem = state.facts.problem;
  if (state.facts.bucketing && problem.size() <= ExactSearch::kMaxNodes && !state.isDone() && !state.hasUnits &&
      !problem.hasContention() && !state.options.admits)
    BucketEnumeration(state).run();
}
