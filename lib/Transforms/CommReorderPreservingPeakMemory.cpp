//===- CommReorderPreservingPeakMemory.cpp - The pass comm-reorder-preserving-peak-memory ===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// Starts move left within a budget: Scheduling/PeakPreserving.
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Passes.h"
#include "PeakPassOptions.h"

namespace commsched {
#define GEN_PASS_DEF_COMMREORDERPRESERVINGPEAKMEMORY
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

namespace {

struct CommReorderPreservingPeakMemoryPass
    : public commsched::impl::CommReorderPreservingPeakMemoryBase<CommReorderPreservingPeakMemoryPass> {
  using CommReorderPreservingPeakMemoryBase::CommReorderPreservingPeakMemoryBase;
  // For PeakPassOptions.h.
  using CommReorderPreservingPeakMemoryBase::commTimePermille;
  using CommReorderPreservingPeakMemoryBase::computeTimePermille;
  using CommReorderPreservingPeakMemoryBase::extraOverlapPermille;
  using CommReorderPreservingPeakMemoryBase::groupLimit;
  using CommReorderPreservingPeakMemoryBase::memoryBudgetRatio;
  using CommReorderPreservingPeakMemoryBase::memoryLimitBytes;
  using CommReorderPreservingPeakMemoryBase::memoryRecompute;
  using CommReorderPreservingPeakMemoryBase::moveLimit;
  using CommReorderPreservingPeakMemoryBase::unsafeCollectivesReorder;
  using CommReorderPreservingPeakMemoryBase::useRuntimeEstimates;

  LogicalResult initialize(MLIRContext *context) final {
    return failure(failed(checkPeakOptions(context, *this)) ||
                   failed(reordering.initialize(context, machine, collectiveOrder)));
  }

  void runOnOperation() final {
    FailureOr<bool> changed =
        reorderBlocks(getOperation(), getArgument(), reordering, getAnalysis<InputPeaks>(),
                      [&](const LoadedBlock &block, Bytes inputPeak) {
                        ReorderPreservingPeakOptions options;
                        fillPeakOptions(*this, block, inputPeak, options);
                        options.groupWithCollectives = groupWithCollectives;
                        return reorderPreservingPeakMemory(block.problem, identityOrder(block.problem), options);
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
