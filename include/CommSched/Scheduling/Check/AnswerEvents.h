//===- AnswerEvents.h - An answer as events of the given problem -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A schedule's order names nodes of an expanded problem. Whoever checks an answer wants to know what happens to the
// nodes of the problem as it was given: they run by themselves, or in the pack, start, wait and unpack of a bucket.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_CHECK_ANSWEREVENTS_H
#define COMMSCHED_SCHEDULING_CHECK_ANSWEREVENTS_H

#include "CommSched/Scheduling/Answer/Schedule.h"

namespace commsched {

/// One event of an answer.
struct AnswerEvent {
  enum Kind : uint8_t { Run, Pack, Start, Wait, Unpack, View };
  Kind kind = Run;
  /// Run: the node of the given problem. Unpack: the first member whose output it defines. Others: kNone.
  NodeId node = kNone;
  /// The bucket of all events but Run.
  int32_t bucket = kNone;
  /// Unpack: the members (starts) whose outputs it defines.
  llvm::SmallVector<NodeId, 1> members;
};

/// The events of a schedule, read off the names of its expanded problem, if it has one. O(N).
std::vector<AnswerEvent> eventsOf(const Schedule &schedule);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_CHECK_ANSWEREVENTS_H
