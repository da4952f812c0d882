//===- PeakPassOptions.h - Options of the peak-preserving passes -------------------*- C++ -*-===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// The two passes have the same options but for one; here they are checked and handed to the solvers.
//
//===-----------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_PEAKPASSOPTIONS_H
#define COMMSCHED_LIB_TRANSFORMS_PEAKPASSOPTIONS_H

#include "BlockReordering.h"
#include "CommSched/Scheduling/PeakPreserving.h"
#include <cmath>

namespace commsched {

/// Checks what a user may get wrong. Fails with one diagnostic.
template <typename Pass> llvm::LogicalResult checkPeakOptions(mlir::MLIRContext *context, const Pass &pass) {
  auto refuse = [&](llvm::StringRef what) {
    return mlir::emitError(mlir::UnknownLoc::get(context)) << Pass::getArgumentName() << ": " << what;
  };
  constexpr double kLargestRatio = 1e6;
  if (!(pass.memoryBudgetRatio >= 0) || pass.memoryBudgetRatio > kLargestRatio)
    return refuse("memory-budget-ratio has to be between 0 and 1000000");
  constexpr int64_t kLargestPermille = 1'000'000;
  for (int64_t permille :
       {int64_t(pass.extraOverlapPermille), int64_t(pass.commTimePermille), int64_t(pass.computeTimePermille)})
    if (permille < 0 || permille > kLargestPermille)
      return refuse("a permille option has to be between 0 and 1000000");
  if (pass.groupLimit < 0)
    return refuse("group-limit-nodes is negative");
  return llvm::success();
}

/// Fills in what both solvers take.
template <typename Pass>
void fillPeakOptions(const Pass &pass, const LoadedBlock &block, Bytes inputPeak, PeakPreservingOptions &options) {
  constexpr double kMillion = 1e6;
  options.peakBudgetPpm = std::llround(pass.memoryBudgetRatio * kMillion);
  options.inputPeakBytes = inputPeak;
  options.peakLimitBytes = pass.memoryLimitBytes;
  options.useEstimates = pass.useRuntimeEstimates;
  options.extraOverlapPermille = pass.extraOverlapPermille;
  options.commTimePermille = pass.commTimePermille;
  options.computeTimePermille = pass.computeTimePermille;
  options.unsafeCollectivesReorder = pass.unsafeCollectivesReorder;
  options.moveLimit = pass.moveLimit;
  options.groupLimitNodes = pass.groupLimit;
  options.memoryRecompute = pass.memoryRecompute;
  if (options.useEstimates)
    return;
  options.gemms.resize(block.nodes.size());
  for (NodeId id = 0; id < block.nodes.size(); ++id)
    if (isGemmLike(block.nodes[id]))
      options.gemms.set(id);
}

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_PEAKPASSOPTIONS_H
