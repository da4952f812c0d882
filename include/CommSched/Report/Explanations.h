//===- Explanations.h - Reasons for exposed collectives, in words -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Scheduling/Answer/Explain.h finds the reasons and LimitingFactor.h words them, both over integers. Here they meet a
// block: its packs, its slow-downs, and the names of its operations. The report's table and JSON, the timeline and the
// remarks of all passes take reasons from here.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_EXPLANATIONS_H
#define COMMSCHED_REPORT_EXPLANATIONS_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Scheduling/Answer/Explain.h"

namespace commsched {

/// Explains every start of `block` under `schedule`. `limit`: what the peak may reach, bytes; no limit if negative.
/// O((N + E + touches) log N).
std::vector<StartOutcome> explain(const LoadedBlock &block, const Schedule &schedule, Bytes limit);

/// Words an explanation, with the block's operations as blockers: "data dependence on mm_3". If `start` is given, and
/// depends on an operation only because nobody knows what that one does, it says so.
std::string describe(const LoadedBlock &block, const Explanation &explanation, NodeId start = kNone);

} // namespace commsched

#endif // COMMSCHED_REPORT_EXPLANATIONS_H
