//===- AnswerEvents.cpp - An answer as events of the given problem ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Check/AnswerEvents.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

std::vector<AnswerEvent> commsched::eventsOf(const Schedule &schedule) {
  const ExpandedProblem &expanded = schedule.expanded;
  std::vector<AnswerEvent> events;
  for (NodeId node : schedule.order) {
    AnswerEvent event;
    if (!schedule.isExpanded()) {
      event.node = node;
      events.push_back(std::move(event));
      continue;
    }
    event.node = expanded.origin[node];
    event.bucket = event.node == kNone ? expanded.bucketOf[node] : kNone;
    if (event.bucket != kNone) {
      const BucketNodes &names = expanded.buckets[event.bucket];
      event.kind = node == names.pack    ? AnswerEvent::Pack
                   : node == names.start ? AnswerEvent::Start
                   : node == names.wait  ? AnswerEvent::Wait
                   : node == names.view  ? AnswerEvent::View
                                         : AnswerEvent::Unpack;
      for (auto [index, unpack] : llvm::enumerate(names.unpacks))
        if (unpack == node)
          event.members.push_back(schedule.buckets[event.bucket].members[index]);
      if (!event.members.empty())
        event.node = event.members.front();
    }
    events.push_back(std::move(event));
  }
  return events;
}
