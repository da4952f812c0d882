//===- AnswerVerifier.h - Independent checker of answers --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The second half of ScheduleVerifier.h. The OrderVerifier checks the order of an expanded problem against that
// problem's own edges: an edge that the expansion lost is lost to it, too. This verifier replays the problem as it was
// given. A bucket's pack, start, wait and unpacks are events of its members; each edge, the order of collectives, live
// bytes and clocks are checked on events. It shares no code with the expansion, the models or the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_CHECK_ANSWERVERIFIER_H
#define COMMSCHED_LIB_SCHEDULING_CHECK_ANSWERVERIFIER_H

#include "CommSched/Scheduling/Check/AnswerEvents.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include <string>

namespace commsched {

/// Describes the first violation, or returns an empty string: every node of the given problem happens exactly once,
/// itself or in its bucket; buckets have the form that Bucketing.h describes; every edge of the given problem is kept
/// (of a member's start by the pack and the start, of its wait by the unpack); collectives, messages and pinned nodes
/// keep their order; live bytes and clocks, counted from Bucketing.h's rules, are within the limit and equal to the
/// claims, if there are any; each of `variants` is one that its start, or its bucket and all members of it, have. O((N
/// + E + touches) log N).
std::string verifyAnswer(const Problem &given, llvm::ArrayRef<Bucket> buckets, llvm::ArrayRef<VariantChoice> variants,
                         llvm::ArrayRef<AnswerEvent> events, const ScheduleRequirements &requirements,
                         const std::optional<ScheduleClaims> &claims);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_CHECK_ANSWERVERIFIER_H
