//===- CommSinkWaitsPreservingPeakMemory.cpp - The pass comm-sink-waits-preserving-peak-memory -===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Waits move right within a budget: Scheduling/PeakPreserving.
//
//===------------------------------------------------------------------------------------------===//

#include "Scheduling/ReorderingPass.h"

namespace commsched {
#define GEN_PASS_DEF_COMMSINKWAITSPRESERVINGPEAKMEMORY
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace commsched;

namespace {

struct CommSinkWaitsPreservingPeakMemoryPass
    : PeakPreservingPass<CommSinkWaitsPreservingPeakMemoryPass,
                         commsched::impl::CommSinkWaitsPreservingPeakMemoryBase> {
  using PeakPreservingPass::PeakPreservingPass;

  Schedule solve(const LoadedBlock &block, Bytes inputPeak) const {
    SinkWaitsPreservingPeakOptions options;
    fillOptions(block, inputPeak, options);
    options.swapWithCollectives = swapWithCollectives;
    return sinkWaitsPreservingPeakMemory(block.problem, identityOrder(block.problem), options);
  }
};

} // namespace
