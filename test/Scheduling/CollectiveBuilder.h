//===- CollectiveBuilder.h - Small problems of gathers and reductions ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Builds problems with collectives that may be merged on one lane, small enough to try all of their bucketings and
// orders.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TEST_SCHEDULING_COLLECTIVEBUILDER_H
#define COMMSCHED_TEST_SCHEDULING_COLLECTIVEBUILDER_H

#include "Bucketings.h"
#include "Solver/Exact/ExactSearch.h"
#include "gtest/gtest.h"
#include <cstdlib>

namespace commsched::test {

/// A merge key of lane 1: a latency, which each member of a group call adds `perMember` to, ns, and 1 ns for each 16
/// bytes.
inline MergeKey keyOf(CollectiveKind kind, Ns latency, Ns perMember) {
  MergeKey key;
  key.kind = kind;
  key.lane = 1;
  key.ranks = 4;
  key.cost = [=](Bytes bytes) { return latency + bytes / 16; };
  key.groupCost = [=](Bytes bytes, int32_t members) { return latency + perMember * members + bytes / 16; };
  return key;
}

/// How many problems a test compares with all of their bucketings: `usual`, unless a variable of the environment says
/// another number.
inline uint64_t numProblems(const char *variable, uint64_t usual) {
  const char *wanted = std::getenv(variable);
  return wanted ? std::strtoull(wanted, nullptr, 10) : usual;
}

/// Builds problems of gathers and reduce-scatters without casts: packing only adds to the compute lane.
class CollectiveBuilder {
public:
  CollectiveBuilder() { problem.laneNames = {"compute", "@dp"}; }

  NodeId compute(Ns cost, std::vector<NodeId> preds, std::vector<BufferId> touches) {
    Node node;
    node.cost = cost;
    return add(node, std::move(preds), std::move(touches));
  }

  BufferId buffer(Bytes bytes, NodeId def, bool liveOut = false) {
    problem.buffers.push_back({bytes, def, liveOut});
    return static_cast<BufferId>(problem.buffers.size() - 1);
  }

  /// A start that may be merged and its wait, which is returned. `input` may be kNone.
  NodeId collective(int32_t key, Bytes bytes, BufferId input, Bytes inputBytes, Bytes outputBytes, bool isReturned,
                    std::vector<NodeId> preds) {
    NodeId id = problem.size();
    Node start, wait;
    start.kind = NodeKind::Start;
    start.lane = 1;
    start.collective = problem.mergeKeys[key].kind;
    start.cost = problem.mergeKeys[key].cost(bytes);
    start.bytes = bytes;
    start.mergeKey = key;
    wait.kind = NodeKind::Wait;
    wait.start = id;
    BufferId output = buffer(outputBytes, id, isReturned);
    std::vector<BufferId> touches = {output};
    if (input != kNone)
      touches.insert(touches.begin(), input);
    add(start, std::move(preds), touches);
    add(wait, {id}, touches);
    problem.members[id] = {id + 1, input, output, inputBytes, outputBytes, kNone, 0};
    return id + 1;
  }

  Problem take() {
    problem.finalize();
    EXPECT_EQ(problem.validate(), "");
    return std::move(problem);
  }

  Problem problem;

private:
  NodeId add(const Node &node, std::vector<NodeId> preds, std::vector<BufferId> touches) {
    problem.nodes.push_back(node);
    problem.preds.append(preds);
    problem.touches.append(touches);
    problem.members.emplace_back();
    return problem.size() - 1;
  }
};

/// The shortest makespan within the limit of all bucketings, if it is below `cutoff`; `cutoff` otherwise.
inline Ns optimum(const Problem &problem, Bytes limit, Ns cutoff, size_t bucketings) {
  std::vector<std::vector<Bucket>> all = Bucketings(problem, bucketings, /*isDistinct=*/true).all;
  all.emplace_back();
  for (const std::vector<Bucket> &buckets : all) {
    llvm::Expected<ExpandedProblem> merged = expandBuckets(problem, buckets);
    if (!merged) {
      llvm::consumeError(merged.takeError());
      continue;
    }
    ExactSearch exact(merged->problem, limit, cutoff);
    int64_t steps = 20000;
    exact.run(steps);
    cutoff = std::min(cutoff, exact.makespan());
  }
  return cutoff;
}

} // namespace commsched::test

#endif // COMMSCHED_TEST_SCHEDULING_COLLECTIVEBUILDER_H
