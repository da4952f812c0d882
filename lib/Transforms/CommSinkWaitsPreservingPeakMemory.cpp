//===- CommSinkWaitsPreservingPeakMemory.cpp - The pass comm-sink-waits-preserving-peak-memory ===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// Waits move right within a budget: Scheduling/PeakPreserving.
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Passes.h"
#include "PeakPassOptions.h"

namespace commsched {
#define GEN_PASS_DEF_COMMSINKWAITSPRESERVINGPEAKMEMORY
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

namespace {

struct CommSinkWaitsPreservingPeakMemoryPass
    : public commsched::impl::CommSinkWaitsPreservingPeakMemoryBase<CommSinkWaitsPreservingPeakMemoryPass> {
  using CommSinkWaitsPreservingPeakMemoryBase::CommSinkWaitsPreservingPeakMemoryBase;
  // For PeakPassOptions.h.
  using CommSinkWaitsPreservingPeakMemoryBase::commTimePermille;
  using CommSinkWaitsPreservingPeakMemoryBase::computeTimePermille;
  using CommSinkWaitsPreservingPeakMemoryBase::extraOverlapPermille;
  using CommSinkWaitsPreservingPeakMemoryBase::groupLimit;
  using CommSinkWaitsPreservingPeakMemoryBase::memoryBudgetRatio;
  using CommSinkWaitsPreservingPeakMemoryBase::memoryLimitBytes;
  using CommSinkWaitsPreservingPeakMemoryBase::memoryRecompute;
  using CommSinkWaitsPreservingPeakMemoryBase::moveLimit;
  using CommSinkWaitsPreservingPeakMemoryBase::unsafeCollectivesReorder;
  using CommSinkWaitsPreservingPeakMemoryBase::useRuntimeEstimates;

  LogicalResult initialize(MLIRContext *context) final {
    return failure(failed(checkPeakOptions(context, *this)) ||
                   failed(reordering.initialize(context, machine, collectiveOrder)));
  }

  void runOnOperation() final {
    FailureOr<bool> changed =
        reorderBlocks(getOperation(), getArgument(), reordering, getAnalysis<InputPeaks>(),
                      [&](const LoadedBlock &block, Bytes inputPeak) {
                        SinkWaitsPreservingPeakOptions options;
                        fillPeakOptions(*this, block, inputPeak, options);
                        options.swapWithCollectives = swapWithCollectives;
                        return sinkWaitsPreservingPeakMemory(block.problem, identityOrder(block.problem), options);
                      });
    if (failed(changed))
      return signalPassFailure();
    markAnalysesPreserved<InputPeaks>();
    if (!*changed)
      markAllAnalysesPreserved();
  }

private:
  ReorderingContext reordering;
};

} // namespace
