//===- ReorderingPass.h - The frame of a reordering pass --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A pass that gives blocks a new order differs from the others in its solver alone. The frame around the solver is
// here: one template for all such passes, and one more for those with a memory budget.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_SCHEDULING_REORDERINGPASS_H
#define COMMSCHED_LIB_TRANSFORMS_SCHEDULING_REORDERINGPASS_H

#include "BlockReordering.h"
#include "CommSched/Analysis/Costs/MatrixProducts.h"
#include "CommSched/Scheduling/Inductor/PeakPreserving.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Scheduling/SchedulingOptions.h"

namespace commsched {

/// A pass over the generated `PassBase`. `Derived` has
///   Schedule solve(const LoadedBlock &block, Bytes inputPeak) const;
/// which answers for one block whose nodes stand in their given order; it is called from several threads at once. It
/// may have
///   void prepare(mlir::Operation *root) const;
/// which is called before any block is loaded.
template <typename Derived, template <typename> class PassBase> class ReorderingPass : public PassBase<Derived> {
  friend Derived;
  template <typename, template <typename> class> friend class PeakPreservingPass;
  ReorderingPass() = default;

public:
  using PassBase<Derived>::PassBase;

  llvm::LogicalResult initialize(mlir::MLIRContext *context) override {
    return reordering.initialize(context, this->machine, this->collectiveOrder);
  }

  void prepare(mlir::Operation *) const {}

  void runOnOperation() final {
    static_cast<const Derived *>(this)->prepare(this->getOperation());
    auto solve = [this](const LoadedBlock &block, Bytes inputPeak) {
      return static_cast<const Derived *>(this)->solve(block, inputPeak);
    };
    llvm::FailureOr<bool> changed = reorderBlocks(this->getOperation(), this->getArgument(), reordering,
                                                  this->template getAnalysis<InputPeaks>(), solve);
    if (failed(changed))
      return this->signalPassFailure();
    this->template markAnalysesPreserved<InputPeaks>();
    if (!*changed)
      this->markAllAnalysesPreserved();
  }

private:
  ReorderingContext reordering;
};

/// A pass with the options of both peak-preserving passes (`peakOptions` in Passes.td).
template <typename Derived, template <typename> class PassBase>
class PeakPreservingPass : public ReorderingPass<Derived, PassBase> {
  friend Derived;
  PeakPreservingPass() = default;

public:
  using ReorderingPass<Derived, PassBase>::ReorderingPass;

  llvm::LogicalResult initialize(mlir::MLIRContext *context) final {
    return llvm::failure(failed(checkOptions(context)) ||
                         failed(ReorderingPass<Derived, PassBase>::initialize(context)));
  }

protected:
  /// Fills in what both solvers take.
  void fillOptions(const LoadedBlock &block, Bytes inputPeak, PeakPreservingOptions &options) const {
    options.peakBudgetPpm = toPpm(this->memoryBudgetRatio);
    options.inputPeakBytes = inputPeak;
    options.peakLimitBytes = this->memoryLimitBytes;
    options.useEstimates = this->useRuntimeEstimates;
    options.extraOverlapPermille = this->extraOverlapPermille;
    options.commTimePermille = this->commTimePermille;
    options.computeTimePermille = this->computeTimePermille;
    options.unsafeCollectivesReorder = this->unsafeCollectivesReorder;
    options.moveLimit = this->moveLimit;
    options.prefetchLimitNodes = this->prefetchLimit;
    options.groupLimitNodes = this->groupLimit;
    options.memoryRecompute = this->memoryRecompute;
    if (options.useEstimates)
      return;
    OperationCosts costs(this->reordering.costs());
    MatrixProducts products(costs);
    options.gemms.resize(block.nodes.size());
    for (NodeId id = 0; id < block.nodes.size(); ++id)
      if (products.contains(block.nodes[id]))
        options.gemms.set(id);
  }

private:
  /// Checks what a user may get wrong. Fails with one diagnostic.
  llvm::LogicalResult checkOptions(mlir::MLIRContext *context) const {
    constexpr int64_t kLargestPermille = 1'000'000;
    if (failed(checkMemoryBudget(context, this->memoryBudgetRatio, this->memoryLimitBytes)))
      return llvm::failure();
    auto refuse = [&](llvm::StringRef option, int64_t value, llvm::StringRef expected) {
      return emitError(mlir::UnknownLoc::get(context)) << option << "=" << value << ": expected " << expected;
    };
    for (const auto *option : {&this->extraOverlapPermille, &this->commTimePermille, &this->computeTimePermille})
      if (int64_t value = *option; value < 0 || value > kLargestPermille)
        return refuse(option->getArgStr(), value, "thousandths from 0 to 1000000");
    if (this->groupLimit < 0)
      return refuse(this->groupLimit.getArgStr(), this->groupLimit, "a number of operations");
    if (this->prefetchLimit < -1)
      return refuse(this->prefetchLimit.getArgStr(), this->prefetchLimit, "a number of operations, or -1 for any");
    if (this->moveLimit < -1)
      return refuse(this->moveLimit.getArgStr(), this->moveLimit, "a number of collectives, or -1 for all");
    return llvm::success();
  }
};

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_SCHEDULING_REORDERINGPASS_H
