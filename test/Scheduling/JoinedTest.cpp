//===- JoinedTest.cpp - Two steps as one block ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A forward and a backward graph may come as one graph. The search does not know where they meet, so nothing but its
// quality makes it as good as two searches.
//
//===------------------------------------------------------------------------------------------===//

#include "CheckResult.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "RandomProblem.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::test;

namespace {

/// One block that runs `first` and then `second`, whose first computes read what `first` gives. Both have the same
/// lanes, and neither has regions, streams or demands.
Problem joined(const Problem &first, const Problem &second) {
  Problem result = first;
  result.preds = result.touches = IndexLists();
  for (NodeId node = 0; node < first.size(); ++node) {
    result.preds.append(first.preds[node]);
    result.touches.append(first.touches[node]);
  }
  auto shifted = [](llvm::ArrayRef<int32_t> list, int32_t by) {
    std::vector<int32_t> moved(list);
    for (int32_t &entry : moved)
      entry += by;
    return moved;
  };
  auto move = [](int32_t &index, int32_t by) { index += index == kNone ? 0 : by; };
  const auto nodes = first.size(), buffers = static_cast<int32_t>(first.buffers.size()),
             keys = static_cast<int32_t>(first.mergeKeys.size());
  for (Node node : second.nodes) {
    move(node.start, nodes);
    move(node.mergeKey, keys);
    result.nodes.push_back(node);
  }
  for (Buffer buffer : second.buffers) {
    move(buffer.def, nodes);
    result.buffers.push_back(buffer);
  }
  // The first computes of `second` read what the last node of `first` gives.
  auto isFirst = [&](NodeId node) {
    return second.preds[node].empty() && second.nodes[node].kind == NodeKind::Compute && second.nodes[node].cost > 0;
  };
  for (NodeId node = 0; node < second.size(); ++node) {
    std::vector<int32_t> preds = shifted(second.preds[node], nodes);
    if (isFirst(node))
      preds.insert(preds.begin(), nodes - 1);
    result.preds.append(preds);
    result.touches.append(shifted(second.touches[node], buffers));
  }
  for (MergeMember member : second.members) {
    move(member.wait, nodes);
    move(member.cast, nodes);
    move(member.input, buffers);
    move(member.output, buffers);
    result.members.push_back(member);
  }
  result.mergeKeys.insert(result.mergeKeys.end(), second.mergeKeys.begin(), second.mergeKeys.end());
  result.finalize();
  EXPECT_EQ(result.validate(), "");
  return result;
}

// A block that is two steps, one behind the other, has the answers of both as an answer: the best order of the first
// one and then that of the second one. It gets one that is not slower, and mostly a faster one, in which collectives of
// one step hide behind the other.
TEST(Joined, IsNotSlowerThanItsParts) {
  const uint64_t count = portion(8u);
  uint64_t faster = 0;
  for (uint64_t seed = 0; seed < count; ++seed) {
    const LayeredOptions shape = {4 + static_cast<int32_t>(seed % 3), 8, 3, /*tensorParallel=*/seed % 2 == 0, 64};
    const Problem first = layeredProblem(2 * seed, shape), second = layeredProblem(2 * seed + 1, shape),
                  both = joined(first, second);
    const ScheduleOptions options;
    const Schedule before = schedule(first, options), behind = schedule(second, options),
                   together = schedule(both, options);
    ASSERT_NO_FATAL_FAILURE(checkResult(both, options, together)) << "seed " << seed;
    // What the two answers in a row need is within the limit of the whole.
    ASSERT_LE(std::max(before.peak, behind.peak), together.limit) << "seed " << seed;
    EXPECT_LE(together.makespan, before.makespan + behind.makespan) << "seed " << seed;
    faster += together.makespan < before.makespan + behind.makespan;
  }
  EXPECT_GE(faster, count / 2);
}

} // namespace
