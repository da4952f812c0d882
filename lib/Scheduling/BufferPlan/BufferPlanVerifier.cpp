//===- BufferPlanVerifier.cpp - Checks a plan of buffers --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays a plan in time and keeps what is live by offset: a buffer overlaps another one exactly if it overlaps a
// neighbour. Shares no code with the planner.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/BufferPlan/BufferPlan.h"
#include <algorithm>
#include <map>
#include <tuple>

using namespace commsched;

static std::string describeInterval(size_t id, const LiveInterval &interval, Bytes offset) {
  return "buffer " + std::to_string(id) + " [" + std::to_string(offset) + ", " +
         std::to_string(offset + interval.bytes) + ")";
}

std::string commsched::verifyBufferPlan(llvm::ArrayRef<LiveInterval> intervals, const BufferPlan &plan,
                                        Bytes alignment) {
  if (plan.offsets.size() != intervals.size())
    return "the plan has " + std::to_string(plan.offsets.size()) + " offsets for " + std::to_string(intervals.size()) +
           " buffers";
  // At one position what begins comes before what ends: both are live there.
  std::vector<std::tuple<int32_t, bool, size_t>> events;
  for (size_t id = 0; id < intervals.size(); ++id) {
    const LiveInterval &interval = intervals[id];
    if (interval.end < interval.begin || interval.bytes <= 0)
      continue;
    Bytes offset = plan.offsets[id];
    if (offset < 0 || offset % alignment != 0)
      return describeInterval(id, interval, offset) + " is not aligned to " + std::to_string(alignment);
    if (interval.bytes > plan.total - offset)
      return describeInterval(id, interval, offset) + " ends beyond the arena's " + std::to_string(plan.total) +
             " bytes";
    events.emplace_back(interval.begin, false, id);
    events.emplace_back(interval.end, true, id);
  }
  std::sort(events.begin(), events.end());
  std::map<Bytes, size_t> live;
  Bytes bytes = 0, most = 0;
  for (const auto &event : events) {
    int32_t position = std::get<0>(event);
    bool ends = std::get<1>(event);
    size_t id = std::get<2>(event);
    Bytes offset = plan.offsets[id], size = intervals[id].bytes;
    if (ends) {
      live.erase(offset);
      bytes -= size;
      continue;
    }
    auto next = live.lower_bound(offset);
    auto clash = [&](size_t other) {
      return describeInterval(id, intervals[id], offset) + " overlaps " +
             describeInterval(other, intervals[other], plan.offsets[other]) + " at position " +
             std::to_string(position);
    };
    if (next != live.end() && next->first < offset + size)
      return clash(next->second);
    if (next != live.begin()) {
      size_t before = std::prev(next)->second;
      if (plan.offsets[before] + intervals[before].bytes > offset)
        return clash(before);
    }
    live.emplace(offset, id);
    most = std::max(most, bytes += size);
  }
  if (most != plan.bound)
    return "the bound is " + std::to_string(plan.bound) + ", but at most " + std::to_string(most) +
           " bytes are live together";
  return "";
}
