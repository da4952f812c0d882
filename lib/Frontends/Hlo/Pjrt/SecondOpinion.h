//===- SecondOpinion.h - Schedules that XLA's own costs do not contradict ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// XLA's order was made with XLA's costs, ours is made with those of a machine profile, and either may be wrong. So a
// schedule is also played with XLA's costs, and one that is then slower than XLA's order is replaced: by one that was
// searched with XLA's costs or with the mean of both, or that keeps XLA's collectives.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_PJRT_SECONDOPINION_H
#define COMMSCHED_LIB_FRONTENDS_HLO_PJRT_SECONDOPINION_H

#include "CommSched/Frontends/Hlo/Pjrt/PjrtTransform.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace commsched::hlo {

/// Schedules a module with other settings.
using ScheduleModule = llvm::function_ref<TransformResult(const TransformOptions &)>;

/// Returns `first`, the answer of `schedule` to `options`, or what replaces it: the first answer to other settings that
/// at no scale of Robust.h, and neither by the model nor by `estimates`, is slower than the given module by more than
/// kLossPermille. If there is none, the module stays as it was. The report says what the answer takes by `estimates`.
/// Fails if an answer is not understood, which is a defect. Takes up to five further searches, and ten times the time
/// in which a module is measured for each.
llvm::Expected<TransformResult> replaceIfXlaDisagrees(const HloModule &module, const TransformOptions &options,
                                                      const XlaEstimates &estimates, TransformResult first,
                                                      ScheduleModule schedule);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_PJRT_SECONDOPINION_H
