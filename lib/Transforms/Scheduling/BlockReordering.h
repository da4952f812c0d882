//===- BlockReordering.h - From a rule over integers to a pass over blocks --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Load a block, solve, verify (always), apply one permutation, say why: what every reordering pass does, with the
// solver as its one difference.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_SCHEDULING_BLOCKREORDERING_H
#define COMMSCHED_LIB_TRANSFORMS_SCHEDULING_BLOCKREORDERING_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Scheduling/Model/Schedule.h"
#include "mlir/Pass/AnalysisManager.h"
#include "mlir/Pass/Pass.h"
#include <memory>

namespace commsched {

/// The peak that each block had before the first of several reordering passes in a row came to it: what their memory
/// budgets are fractions of, so that they do not add up. Every reordering pass preserves it; any other pass makes what
/// it leaves behind a new input.
class InputPeaks {
public:
  explicit InputPeaks(mlir::Operation *) {}
  bool isInvalidated(const mlir::AnalysisManager::PreservedAnalyses &preserved) const {
    return !preserved.isPreserved<InputPeaks>();
  }
  llvm::DenseMap<mlir::Block *, Bytes> peaks;
};

/// What a pass needs before it comes to a block.
class ReorderingContext {
public:
  /// Loads the profile. Fails with a diagnostic.
  llvm::LogicalResult initialize(mlir::MLIRContext *context, llvm::StringRef machine, CollectiveOrder collectiveOrder);

  const CostModel &costs() const { return *model; }
  CollectiveOrder order() const { return collectiveOrder; }

private:
  std::shared_ptr<const CostModel> model;
  CollectiveOrder collectiveOrder = CollectiveOrder::Free;
};

/// Answers for one loaded block whose nodes stand in their given order. `inputPeak` as in InputPeaks. Called from
/// several threads at once.
using BlockSolver = llvm::function_ref<Schedule(const LoadedBlock &block, Bytes inputPeak)>;

/// Reorders the blocks of the functions in `root`, or of `root` itself if it is one or holds none. A block whose order
/// stays is not touched. Returns whether anything changed; fails, with a diagnostic, where an answer does not verify:
/// that block and those behind it in its function are left as they were.
llvm::FailureOr<bool> reorderBlocks(mlir::Operation *root, llvm::StringRef passName, const ReorderingContext &context,
                                    InputPeaks &inputPeaks, BlockSolver solve);

/// The functions that passes work on in parallel, in their order: those in `root`, or `root` itself.
llvm::SmallVector<mlir::Operation *> findFunctions(mlir::Operation *root);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_SCHEDULING_BLOCKREORDERING_H
