//===- CommReorderPreservingPeakMemory.cpp - The pass comm-reorder-preserving-peak-memory -----===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Starts move left within a budget: Scheduling/PeakPreserving.
//
//===------------------------------------------------------------------------------------------===//

#include "Scheduling/ReorderingPass.h"

namespace commsched {
#define GEN_PASS_DEF_COMMREORDERPRESERVINGPEAKMEMORY
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace commsched;

namespace {

struct CommReorderPreservingPeakMemoryPass
    : PeakPreservingPass<CommReorderPreservingPeakMemoryPass, commsched::impl::CommReorderPreservingPeakMemoryBase> {
  using PeakPreservingPass::PeakPreservingPass;

  Schedule solve(const LoadedBlock &block, Bytes inputPeak) const {
    ReorderPreservingPeakOptions options;
    fillOptions(block, inputPeak, options);
    options.groupWithCollectives = groupWithCollectives;
    return reorderPreservingPeakMemory(block.problem, identityOrder(block.problem), options);
  }
};

} // namespace
