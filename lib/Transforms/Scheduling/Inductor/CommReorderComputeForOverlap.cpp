//===- CommReorderComputeForOverlap.cpp - The pass comm-reorder-compute-for-overlap -----------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Compute after every collective: OverlapListScheduler with all switches on.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/OverlapListScheduler.h"
#include "Scheduling/ReorderingPass.h"

namespace commsched {
#define GEN_PASS_DEF_COMMREORDERCOMPUTEFOROVERLAP
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace commsched;

namespace {

struct CommReorderComputeForOverlapPass
    : ReorderingPass<CommReorderComputeForOverlapPass, commsched::impl::CommReorderComputeForOverlapBase> {
  using ReorderingPass::ReorderingPass;

  Schedule solve(const LoadedBlock &block, Bytes) const {
    return scheduleForOverlap(block.problem, identityOrder(block.problem), kReorderComputeForOverlap);
  }
};

} // namespace
