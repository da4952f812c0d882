//===- AllOrders.h - The topological orders of a small problem ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// For brute force, which plays all of them.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TEST_SCHEDULING_ALLORDERS_H
#define COMMSCHED_TEST_SCHEDULING_ALLORDERS_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace commsched::test {

/// Calls `visit` with each beginning of a topological order, and with the whole orders, which have all nodes. Continues
/// a beginning only if `visit` returns true.
class AllOrders {
public:
  AllOrders(const Problem &problem, llvm::function_ref<bool(const Order &)> visit) : problem(problem), visit(visit) {
    for (NodeId node = 0; node < problem.size(); ++node)
      missing.push_back(static_cast<int32_t>(problem.preds[node].size()));
    extend();
  }

private:
  void extend() {
    if (!visit(order))
      return;
    for (NodeId node = 0; node < problem.size(); ++node) {
      if (missing[node] != 0)
        continue;
      order.push_back(node);
      missing[node] = -1;
      for (NodeId user : problem.succs[node])
        --missing[user];
      extend();
      for (NodeId user : problem.succs[node])
        ++missing[user];
      missing[node] = 0;
      order.pop_back();
    }
  }

  const Problem &problem;
  llvm::function_ref<bool(const Order &)> visit;
  Order order;
  /// Indexed by node: predecessors that are not in `order`; -1 of those that are in it.
  std::vector<int32_t> missing;
};

} // namespace commsched::test

#endif // COMMSCHED_TEST_SCHEDULING_ALLORDERS_H
