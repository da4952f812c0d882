//===- CollectiveRecord.cpp - What a pass did for each collective, and what stopped it --------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Model/CollectiveRecord.h"
#include "CommSched/Scheduling/Model/Timeline.h"

using namespace commsched;

llvm::StringRef commsched::stringify(LimitingFactor factor) {
  static constexpr llvm::StringLiteral names[] = {
      "none",           "end of the block", "data dependence", "collective order", "peak memory",
      "already hidden", "others' exposure", "group limit",     "move limit",       "makespan",
      "lane busy",      "preference",       "its group",       "group dissolved",  "units",
      "prefetch limit", "starts at once"};
  return names[static_cast<unsigned>(factor)];
}

void commsched::measureExposure(const Problem &problem, llvm::ArrayRef<NodeId> before, ReorderResult &result) {
  if (result.records.empty())
    return;
  // Exposed time by collective: that of its waits. A wait for an argument's future stands for itself.
  auto exposed = [&](llvm::ArrayRef<NodeId> order) {
    Timeline line = simulate(problem, order);
    std::vector<Ns> ofNode = line.exposed;
    for (NodeId id = 0; id < problem.size(); ++id)
      if (NodeId start = awaitedStart(problem, line, id); start != kNone)
        ofNode[start] += line.exposed[id];
    return ofNode;
  };
  std::vector<Ns> initial = exposed(before), final = exposed(result.order);
  for (CollectiveRecord &record : result.records) {
    NodeId start = problem.nodes[record.node].start;
    NodeId collective = start == kNone ? record.node : start;
    record.initialExposed = initial[collective];
    record.finalExposed = final[collective];
  }
}
