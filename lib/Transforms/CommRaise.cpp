//===- CommRaise.cpp - The pass comm-raise --------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// Starts as early as possible: OverlapListScheduler's first switch.
//
//===-----------------------------------------------------------------------------------------===//

#include "BlockReordering.h"
#include "CommSched/Scheduling/OverlapListScheduler.h"
#include "CommSched/Transforms/Passes.h"

namespace commsched {
#define GEN_PASS_DEF_COMMRAISE
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

namespace {

struct CommRaisePass : public commsched::impl::CommRaiseBase<CommRaisePass> {
  using CommRaiseBase::CommRaiseBase;

  LogicalResult initialize(MLIRContext *context) final {
    return reordering.initialize(context, machine, collectiveOrder);
  }

  void runOnOperation() final {
    FailureOr<bool> changed = reorderBlocks(
        getOperation(), getArgument(), reordering, getAnalysis<InputPeaks>(), [](const LoadedBlock &block, Bytes) {
          return scheduleForOverlap(block.problem, identityOrder(block.problem), kRaiseStarts);
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
