//===- HloMemoryPlan.h - Rematerialization in programs of XLA ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// No order has fewer bytes than what one instruction needs to be live. What is live there may be made again instead:
// computed, or gathered. The plan is that of comm-plan-memory (MemoryPlan.md), and its answer is a module with clones.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_HLOMEMORYPLAN_H
#define COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_HLOMEMORYPLAN_H

#include "CommSched/Frontends/Hlo/Schedule/HloScheduler.h"
#include <optional>

namespace commsched::hlo {

/// A module whose entry makes some values again.
struct PlannedModule {
  /// The module; the order of its entry is within the limit.
  std::string bytes;
  /// What is made again: values, of which gathers, and their bytes.
  int32_t again = 0, gathers = 0;
  Bytes againBytes = 0;
};

/// Finds the values of the entry that have to be made again so that its peak is within `limit` bytes, at the least
/// time; nothing if an order alone is. Its collectives stay as they are, and its callees too. None if no plan was
/// found. Fails, in one line, if the module is not understood. As long as planMemory() with effort 0.
llvm::Expected<std::optional<PlannedModule>> planEntry(const HloModule &module, const CostModel &model, Bytes limit);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_HLOMEMORYPLAN_H
