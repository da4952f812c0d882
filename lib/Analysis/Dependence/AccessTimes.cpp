//===- AccessTimes.cpp - Times of memory accesses in an answer --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/AccessTimes.h"

using namespace commsched;

std::vector<AccessTime> commsched::accessTimesOf(const Problem &problem, const Schedule &answer) {
  // Indexed by node of the answer.
  std::vector<int32_t> placeOf(answer.order.size());
  for (auto [place, node] : llvm::enumerate(answer.order))
    placeOf[node] = static_cast<int32_t>(place);
  std::vector<AccessTime> times(problem.size());
  for (NodeId node = 0; node < problem.size(); ++node) {
    int32_t place = placeOf[answer.imageOf(node)];
    times[node] = {place, place};
  }
  if (!answer.isExpanded())
    return times;
  for (auto [bucket, nodes] : llvm::zip_equal(answer.buckets, answer.expanded.buckets))
    for (NodeId member : bucket.members) {
      if (nodes.pack != kNone)
        times[member].begin = placeOf[nodes.pack];
      times[problem.members[member].wait].begin = placeOf[nodes.wait];
    }
  return times;
}
