//===- BothCosts.cpp - A module played with the model's costs and with XLA's ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "BothCosts.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

Expected<BothCosts> commsched::hlo::playWithBothCosts(const HloModule &module, const CostModel &model,
                                                      const XlaEstimates &estimates) {
  HloOptions judge;
  judge.measureOnly = true;
  judge.estimates = &estimates;
  BothCosts result;
  for (bool byXla : {false, true})
    for (CostScale scale : kPlayedScales) {
      judge.judgedBy = {byXla ? kByPeer : kByModel, scale};
      Expected<HloResult> played = scheduleModule(module, model, judge);
      if (!played)
        return played.takeError();
      (byXla ? result.byPeer : result.byModel).push_back(played->entry().makespanAfter);
    }
  return std::move(result);
}
