//===- AccessCheck.cpp - A new order keeps the order of accesses ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Rewrites/AccessCheck.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace commsched;

std::vector<AccessTime> commsched::accessTimesOf(const Problem &problem, const Schedule &schedule) {
  // Indexed by node that is carried out: its place.
  std::vector<int32_t> place(schedule.order.size());
  for (auto [at, node] : llvm::enumerate(schedule.order))
    place[node] = static_cast<int32_t>(at);
  std::vector<AccessTime> times(problem.size());
  for (NodeId node = 0; node < problem.size(); ++node)
    times[node].begin = times[node].end = place[schedule.imageOf(node)];
  for (auto [bucket, nodes] : llvm::zip_equal(schedule.buckets, schedule.expanded.buckets))
    for (NodeId member : bucket.members) {
      if (nodes.pack != kNone)
        times[member].begin = place[nodes.pack];
      times[problem.members[member].wait].begin = place[nodes.wait];
    }
  return times;
}

LogicalResult commsched::checkAccesses(Block &block, const BlockAccesses &accesses, ArrayRef<AccessTime> times,
                                       StringRef pass) {
  std::optional<OrderViolation> violation = findViolation(accesses, times);
  if (!violation)
    return success();
  Operation &first = *std::next(block.begin(), violation->first),
            &second = *std::next(block.begin(), violation->second);
  InFlightDiagnostic error = emitError(second.getLoc());
  error << pass << ": the new order puts '" << second.getName() << "' in front of '" << first.getName()
        << "', but it must stay behind: both may access the same memory, and one of them writes it; please report this";
  error.attachNote(first.getLoc()) << "the operation that must stay in front is here";
  return error;
}
