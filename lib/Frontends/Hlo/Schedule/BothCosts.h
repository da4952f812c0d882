//===- BothCosts.h - A module played with the model's costs and with XLA's --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_BOTHCOSTS_H
#define COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_BOTHCOSTS_H

#include "CommSched/Frontends/Hlo/Schedule/HloScheduler.h"

namespace commsched::hlo {

/// What one run of a module takes in its own order, ns. Both are indexed like kPlayedScales (Robust.h), by which the
/// times of collectives are multiplied.
struct BothCosts {
  std::vector<Ns> byModel, byXla;

  /// The time by XLA's costs as they are.
  Ns asXlaPlanned() const;
  /// Returns true if this takes longer than `given` by more than kLossPermille by either costs at any scale.
  bool isSlowerThan(const BothCosts &given) const;
};

/// Plays a module. Fails, in one line, if it is not understood. Takes ten times what it takes to measure it.
llvm::Expected<BothCosts> playWithBothCosts(const HloModule &module, const CostModel &model,
                                            const XlaEstimates &estimates);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_BOTHCOSTS_H
