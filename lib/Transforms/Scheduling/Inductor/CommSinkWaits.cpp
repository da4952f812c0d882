//===- CommSinkWaits.cpp - The pass comm-sink-waits -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Waits as late as possible: the second switch of OverlapListScheduler.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/OverlapListScheduler.h"
#include "Scheduling/ReorderingPass.h"

namespace commsched {
#define GEN_PASS_DEF_COMMSINKWAITS
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace commsched;

namespace {

struct CommSinkWaitsPass : ReorderingPass<CommSinkWaitsPass, commsched::impl::CommSinkWaitsBase> {
  using ReorderingPass::ReorderingPass;

  Schedule solve(const LoadedBlock &block, Bytes) const {
    return scheduleForOverlap(block.problem, identityOrder(block.problem), kSinkWaits);
  }
};

} // namespace
