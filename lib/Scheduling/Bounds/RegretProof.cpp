//===- RegretProof.cpp - Proof of a regret ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Bounds/RegretProof.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

/// Whether sums of times stay small enough for makespans and bounds if all times are multiplied by `factor`. Beside the
/// nodes' times, bounds add charges of buckets, of which a node has at most three, each at most as large as its cost.
static bool isSmallEnough(const Problem &problem, int64_t factor) {
  constexpr int64_t kChargesPerNode = 4;
  Wide total = 0;
  for (const Node &node : problem.nodes)
    total += Wide(node.cost) + node.ready + node.issue;
  for (Ns busy : problem.busyUntil)
    total += busy;
  return total < kMaxTotalNs / kChargesPerNode / factor;
}

std::optional<RegretProof> commsched::proveRegret(const RegretQuestion &question, llvm::ArrayRef<CostScale> scales) {
  const int64_t largest = std::max<int64_t>(scales.back(), kPermille);
  if (question.carriedOut.hasContention() || !isSmallEnough(question.problem, largest) ||
      !isSmallEnough(question.carriedOut, largest))
    return std::nullopt;
  RegretProof proof;
  std::vector<ScaledTimes> times;
  for (CostScale scale : scales) {
    const Ns makespan = makespanOf(scaleExactly(question.carriedOut, scale), question.order);
    if (scale == kScaleOne) {
      times.push_back({scale, makespan, 0, question.boundAsPlanned * kPermille});
      continue;
    }
    BoundWitness witness = proveBound(scaleExactly(question.problem, scale), question.bound, question.bucketing);
    times.push_back({scale, makespan, 0, witness.makespan});
    proof.scales.push_back({scale, makespan, std::move(witness)});
  }
  std::optional<int64_t> regret = regretPpm(times);
  if (!regret)
    return std::nullopt;
  proof.regretPpm = *regret;
  return proof;
}
