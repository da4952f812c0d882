//===- BothCosts.cpp - A module played with the model's costs and with XLA's ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "BothCosts.h"
#include "CommSched/Scheduling/Lenses/Robust.h"
#include "CommSched/Support/Arithmetic.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

/// The place of costs as they are among the scales.
static constexpr size_t kUnscaled = 1;
static_assert(kPlayedScales[kUnscaled] == kScaleOne);

Ns BothCosts::asXlaPlanned() const { return byXla[kUnscaled]; }

bool BothCosts::isSlowerThan(const BothCosts &given) const {
  auto isSlower = [](const std::vector<Ns> &times, const std::vector<Ns> &before) {
    return any_of(zip_equal(times, before), [](const auto &at) {
      return compareProducts(std::get<0>(at), kPermille, std::get<1>(at), kPermille + kLossPermille) > 0;
    });
  };
  return isSlower(byModel, given.byModel) || isSlower(byXla, given.byXla);
}

Expected<BothCosts> commsched::hlo::playWithBothCosts(const HloModule &module, const CostModel &model,
                                                      const XlaEstimates &estimates) {
  HloOptions judge;
  judge.measureOnly = true;
  judge.estimates = &estimates;
  BothCosts result;
  for (bool byXla : {false, true})
    for (CostScale scale : kPlayedScales) {
      judge.judgedBy = {byXla ? static_cast<int32_t>(kPermille) : 0, scale};
      Expected<HloResult> played = scheduleModule(module, model, judge);
      if (!played)
        return played.takeError();
      (byXla ? result.byXla : result.byModel).push_back(played->entry().makespanAfter);
    }
  return std::move(result);
}
