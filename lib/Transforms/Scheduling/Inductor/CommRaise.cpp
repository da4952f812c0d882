//===- CommRaise.cpp - The pass comm-raise ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Starts as early as possible: the first switch of OverlapListScheduler.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/OverlapListScheduler.h"
#include "Scheduling/ReorderingPass.h"

namespace commsched {
#define GEN_PASS_DEF_COMMRAISE
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace commsched;

namespace {

struct CommRaisePass : ReorderingPass<CommRaisePass, commsched::impl::CommRaiseBase> {
  using ReorderingPass::ReorderingPass;

  Schedule solve(const LoadedBlock &block, Bytes) const {
    return scheduleForOverlap(block.problem, identityOrder(block.problem), kRaiseStarts);
  }
};

} // namespace
