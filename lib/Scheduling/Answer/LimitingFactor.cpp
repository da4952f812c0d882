//===- LimitingFactor.cpp - Limiting factors of collectives -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The names of limiting factors, and the sentences that reports and remarks print.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/LimitingFactor.h"
#include "CommSched/Scheduling/Answer/Explain.h"
#include "CommSched/Support/Count.h"
#include "CommSched/Support/Format.h"

using namespace commsched;

llvm::StringRef commsched::stringify(LimitingFactor factor) {
  static constexpr llvm::StringLiteral names[] = {
      "none",           "end of the block", "data dependence", "collective order", "peak memory",
      "already hidden", "others' exposure", "group limit",     "move limit",       "makespan",
      "lane busy",      "order alone",      "its group",       "group dissolved",  "units",
      "prefetch limit", "starts at once"};
  static_assert(std::size(names) == static_cast<size_t>(LimitingFactor::StartsAtOnce) + 1, "every factor has a name");
  return names[static_cast<unsigned>(factor)];
}

std::string commsched::describe(const Explanation &explanation,
                                llvm::function_ref<std::string(NodeId blocker)> nameOf) {
  std::string text = stringify(explanation.factor).str();
  auto passing = [&] { return explanation.blocker == kNone ? "" : "passing " + nameOf(explanation.blocker) + " "; };
  switch (explanation.factor) {
  case LimitingFactor::DataDependence:
  case LimitingFactor::CollectiveOrder:
    return text + " on " + nameOf(explanation.blocker) + (explanation.reached == kNotAlone ? ", among others" : "");
  case LimitingFactor::PeakMemory:
    return text + ": " + passing() + "would reach " + formatBytes(explanation.reached) + ", limit " +
           formatBytes(explanation.limit);
  case LimitingFactor::ExposesOthers:
    return text + ": " + passing() + "would expose " + formatNs(explanation.reached) +
           " more, as the options scale costs";
  case LimitingFactor::GroupLimit:
  case LimitingFactor::PrefetchLimit:
    return text + ": " + formatCount(explanation.limit, "operation");
  case LimitingFactor::MoveLimit:
    return text + ": " + formatCount(explanation.limit, "collective");
  case LimitingFactor::Makespan:
    return text + ": would be " + formatNs(explanation.reached) + ", is " + formatNs(explanation.limit);
  case LimitingFactor::Units:
    return text + ": the order does not keep them together within the limits";
  case LimitingFactor::GroupDissolved:
    return text + ": a dependence leads out of its group and back";
  case LimitingFactor::LaneBusy:
    return "its lane is busy with " + nameOf(explanation.blocker) +
           (explanation.reached == kNotAlone ? ", among others" : "");
  case LimitingFactor::StartsAtOnce:
    return text + "; nothing to compute until it is needed";
  case LimitingFactor::Preference:
    return text + ": no constraint prevents a shorter order";
  case LimitingFactor::None:
  case LimitingFactor::BlockEnd:
  case LimitingFactor::AlreadyHidden:
  case LimitingFactor::Grouped:
    return text;
  }
  return text;
}

llvm::StringRef commsched::remedyFor(LimitingFactor factor) {
  switch (factor) {
  case LimitingFactor::DataDependence:
    return "give that operation less work, or split it so that the collective can begin earlier";
  case LimitingFactor::StartsAtOnce:
    return "begin it in the previous step, or put independent work in front of its reader";
  case LimitingFactor::LaneBusy:
    return "merge the collectives of this group ('bucketing'), or use another group";
  case LimitingFactor::PeakMemory:
    return "'memory-budget-ratio' or 'memory-limit-bytes'";
  case LimitingFactor::CollectiveOrder:
    return "'collective-order=free', if all ranks run the same program";
  case LimitingFactor::Preference:
    return "comm-schedule, if it has not run, or else a larger 'effort'";
  case LimitingFactor::Makespan:
    return "what limits the other collectives";
  default:
    return "";
  }
}
