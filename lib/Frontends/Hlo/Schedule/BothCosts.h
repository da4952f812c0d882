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
#include "CommSched/Scheduling/Answer/BothCosts.h"

namespace commsched::hlo {

/// Plays one run of a module in its own order. Fails, in one line, if it is not understood. Takes ten times what it
/// takes to measure it.
llvm::Expected<BothCosts> playWithBothCosts(const HloModule &module, const CostModel &model,
                                            const XlaEstimates &estimates);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_BOTHCOSTS_H
