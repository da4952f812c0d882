//===- ReorderingPass.h - Base class of the reordering passes ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A pass that gives blocks a new order differs from the others in its rule alone. What these passes add to the frame of
// BlockPass.h is here: one template for all of them, and one more for those with a memory budget.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_SCHEDULING_REORDERINGPASS_H
#define COMMSCHED_LIB_TRANSFORMS_SCHEDULING_REORDERINGPASS_H

#include "BlockPass.h"
#include "CommSched/Analysis/Costs/MatrixProducts.h"
#include "CommSched/Scheduling/Inductor/PeakPreserving.h"
#include "CommSched/Transforms/Passes.h"
#include "PassBase/MachinePass.h"

namespace commsched {

/// Keeps the units of the block together: rules see the outer dependences of units alone. If the units cannot be kept
/// together within the memory limit, or only slower than in both the given order and the rule's, the block keeps its
/// order. O((N + E) log N).
void settleReordering(BlockWork &work);

/// What a reordering pass says: a remark for each collective, and one for the block; journal rows. Category of the
/// remarks: the pass's name. Passed for what moved, missed for what is exposed and did not, analysis for the rest.
void explainReordering(llvm::StringRef passName, const BlockWork &work, BlockVoice &voice);

/// A pass over the generated `PassBase`, in a `Frame` (MachinePass.h). `Derived` has
///   Schedule solve(const LoadedBlock &block, Bytes inputPeak) const;
/// which answers for one block whose nodes stand in their given order; it is called from several threads at once. It
/// may have
///   void prepare(mlir::Operation *root) const;
/// which is called before any block is loaded.
template <typename Derived, template <typename> class PassBase, template <typename> class Frame = MachinePass>
class ReorderingPass : public Frame<PassBase<Derived>>, protected BlockRule {
  friend Derived;
  template <typename, template <typename> class> friend class PeakPreservingPass;
  ReorderingPass() = default;

public:
  using Frame<PassBase<Derived>>::Frame;

  void prepare(mlir::Operation *) const {}

private:
  void runWithModel() final {
    static_cast<const Derived *>(this)->prepare(this->getOperation());
    llvm::FailureOr<bool> changed = scheduleBlocks(this->getOperation(), this->getArgument(), *this->model, *this,
                                                   &this->template getAnalysis<InputPeaks>());
    if (failed(changed))
      return this->signalPassFailure();
    this->template markAnalysesPreserved<InputPeaks>();
    if (!*changed)
      this->markAllAnalysesPreserved();
  }

  LoadOptions loadOptions() const final {
    LoadOptions options;
    options.order = this->collectiveOrder;
    return options;
  }

  llvm::LogicalResult solveBlock(BlockWork &work, BlockVoice &) const final {
    work.schedule = static_cast<const Derived *>(this)->solve(work.loaded, work.inputPeak);
    if (work.schedule.defect.empty())
      settleReordering(work);
    return llvm::success();
  }

  void explainBlock(const BlockWork &work, BlockVoice &voice) const final {
    explainReordering(this->getArgument(), work, voice);
  }
};

/// A pass with the options of both peak-preserving passes (`peakOptions` in Passes.td).
template <typename Derived, template <typename> class PassBase>
class PeakPreservingPass : public ReorderingPass<Derived, PassBase, BudgetedPass> {
  friend Derived;
  PeakPreservingPass() = default;

public:
  using ReorderingPass<Derived, PassBase, BudgetedPass>::ReorderingPass;

protected:
  /// Fills in what both solvers take.
  void fillOptions(const LoadedBlock &block, Bytes inputPeak, PeakPreservingOptions &options) const {
    options.memory = this->memory;
    options.inputPeakBytes = inputPeak;
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
    OperationCosts costs(*this->model);
    MatrixProducts products(costs);
    options.gemms.resize(block.nodes.size());
    for (NodeId id = 0; id < block.nodes.size(); ++id)
      if (products.contains(block.nodes[id]))
        options.gemms.set(id);
  }

private:
  llvm::LogicalResult checkOptions(mlir::MLIRContext *context) final {
    constexpr int64_t kLargestPermille = 1'000'000;
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
