//===- Memory.cpp - Live bytes of an order ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One sweep along an order counts live bytes. ScheduleVerifier has an independent copy of these rules.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Memory/Memory.h"
#include <algorithm>

using namespace commsched;

namespace {

/// The sweep's state: what is live now, and how many touches of each buffer are to come.
class Sweep {
public:
  explicit Sweep(const Problem &problem)
      : problem(problem), toCome(problem.buffers.size()), live(problem.buffers.size(), 0) {
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
      toCome[id] = static_cast<int32_t>(problem.users[id].size());
      if (problem.buffers[id].def == kNone && toCome[id] > 0)
        allocate(id);
    }
  }

  /// Runs a node; returns the live bytes after its allocations, workspace included.
  Bytes step(NodeId node) {
    for (BufferId id : problem.touches[node])
      if (!live[id])
        allocate(id);
    Bytes now = bytes + problem.nodes[node].workspace;
    for (BufferId id : problem.touches[node])
      if (--toCome[id] == 0 && !problem.buffers[id].liveOut)
        bytes -= problem.buffers[id].bytes;
    return now;
  }

private:
  void allocate(BufferId id) {
    live[id] = 1;
    bytes += problem.buffers[id].bytes;
  }

  const Problem &problem;
  std::vector<int32_t> toCome;
  std::vector<char> live;
  Bytes bytes = 0;
};

} // namespace

MemoryProfile commsched::memoryProfile(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  MemoryProfile profile;
  profile.live.reserve(order.size());
  Sweep sweep(problem);
  for (NodeId node : order)
    profile.live.push_back(sweep.step(node));
  if (auto top = std::max_element(profile.live.begin(), profile.live.end()); top != profile.live.end()) {
    profile.peak = *top;
    profile.peakPosition = static_cast<int32_t>(top - profile.live.begin());
  }
  return profile;
}

Bytes commsched::peakOf(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  Bytes peak = 0;
  Sweep sweep(problem);
  for (NodeId node : order)
    peak = std::max(peak, sweep.step(node));
  return peak;
}
