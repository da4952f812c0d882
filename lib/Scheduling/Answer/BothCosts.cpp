//===- BothCosts.cpp - Answers played with the model's costs and with somebody else's ---------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/BothCosts.h"
#include "CommSched/Scheduling/Answer/Schedule.h"
#include "CommSched/Support/Arithmetic.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

/// The place of costs as they are among the scales.
static constexpr size_t kUnscaled = 1;
static_assert(kPlayedScales[kUnscaled] == kScaleOne);

Ns BothCosts::asPeerPlanned() const { return byPeer[kUnscaled]; }

bool BothCosts::isSlowerThan(const BothCosts &given) const {
  auto isSlower = [](const std::vector<Ns> &times, const std::vector<Ns> &before) {
    return llvm::any_of(llvm::zip_equal(times, before), [](const auto &at) {
      return compareProducts(std::get<0>(at), kPermille, std::get<1>(at), kPermille + kLossPermille) > 0;
    });
  };
  return isSlower(byModel, given.byModel) || isSlower(byPeer, given.byPeer);
}

Problem commsched::mixCosts(const Problem &byModel, const Problem &byPeer, PeerShare share) {
  Problem mixed = byPeer;
  for (auto [node, model] : llvm::zip_equal(mixed.nodes, byModel.nodes))
    node.cost = mixTimes(model.cost, node.cost, share);
  for (auto [index, model] : llvm::enumerate(byModel.mergeKeys)) {
    MergeKey &key = mixed.mergeKeys[index];
    key.cost = [model = model.cost, peer = key.cost, share](Bytes bytes) {
      return mixTimes(model(bytes), peer(bytes), share);
    };
    key.groupCost = [model = model, peer = byPeer.mergeKeys[index], share](Bytes bytes, int32_t members) {
      return mixTimes(model.coalescedCost(bytes, members), peer.coalescedCost(bytes, members), share);
    };
  }
  return mixed;
}

BothCosts commsched::playWithBothCosts(const Problem &problem, const Problem &byPeer, const Schedule &schedule) {
  BothCosts times;
  times.byModel = playAtScales(schedule.carriedOut(problem), schedule.order, kPlayedScales);
  if (!schedule.isExpanded()) {
    times.byPeer = playAtScales(byPeer, schedule.order, kPlayedScales);
    return times;
  }
  // The buckets were carried out before, and costs decide nothing of their shape.
  times.byPeer =
      playAtScales(llvm::cantFail(expandBuckets(byPeer, schedule.buckets)).problem, schedule.order, kPlayedScales);
  return times;
}
