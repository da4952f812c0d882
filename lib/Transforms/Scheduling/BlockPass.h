//===- BlockPass.h - The frame of every pass that schedules blocks ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Load a block, validate it, solve, verify (always), apply, check traffic and prediction, explain: what every
// scheduling pass does. A pass adds a BlockRule: how blocks are loaded, who solves, and what is said. Functions are
// worked on in parallel; remarks and journal entries are kept back and come in the functions' order, so that equal
// input gives equal output whatever the threads do.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_SCHEDULING_BLOCKPASS_H
#define COMMSCHED_LIB_TRANSFORMS_SCHEDULING_BLOCKPASS_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Report/PassJournal.h"
#include "CommSched/Scheduling/Model/Explain.h"
#include "CommSched/Scheduling/Model/Schedule.h"
#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "mlir/Pass/AnalysisManager.h"
#include "mlir/Pass/Pass.h"
#include <functional>
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

/// Keeps back what a pass says of one function's blocks until it is that function's turn.
class BlockVoice {
public:
  explicit BlockVoice(mlir::MLIRContext *context);

  /// Whether anybody listens to remarks, and whether a report collects the journal.
  bool hasRemarks() const { return listens; }
  bool hasJournal() const { return journal != nullptr; }
  /// Keeps a remark. `emit` must not refer to operations: they may be gone by then.
  void say(std::function<void()> emit) {
    if (listens)
      remarks.push_back(std::move(emit));
  }
  void write(PassRecord record) {
    if (journal)
      records.push_back(std::move(record));
  }
  /// Emits the remarks and writes the journal. On the pass's own thread.
  void speak();

private:
  bool listens = false;
  PassJournal *journal = nullptr;
  std::vector<std::function<void()>> remarks;
  std::vector<PassRecord> records;
};

/// One block on its way through the frame.
struct BlockWork {
  LoadedBlock loaded;
  /// The peak as it was loaded, and before the first of several passes in a row (InputPeaks), bytes.
  Bytes peak = 0, inputPeak = 0;
  Schedule schedule;
  /// What the solver has to tell the journal: the search's counts and its log.
  PassRecord record;
};

/// What a pass adds to the frame. Called from several threads at once, for blocks of different functions.
class BlockRule {
public:
  virtual ~BlockRule() = default;

  virtual LoadOptions loadOptions() const = 0;
  /// Fills in `work.schedule`. The nodes stand in their given order. Fails after an error of its own; a
  /// Schedule::defect is reported by the frame.
  virtual llvm::LogicalResult solveBlock(BlockWork &work, BlockVoice &voice) const = 0;
  /// Says what became of each collective. The schedule is verified and not yet applied. Called if there is anybody to
  /// tell.
  virtual void explainBlock(const BlockWork &work, BlockVoice &voice) const = 0;
  /// Says what the block's collectives move, after a schedule that changed something was applied.
  virtual void reportTraffic(mlir::Location, const Traffic &, const Traffic &, BlockVoice &) const {}
  /// Whether functions get the signature of their schedule if nothing changed, too.
  virtual bool stampsUnchanged() const { return false; }
};

/// Schedules the blocks of the functions in `root`, or of `root` itself if it is one or holds none, innermost first. A
/// block whose schedule is its given order is not touched. What a schedule claims is compared with what the block comes
/// to when it is loaded again (comparePrediction). Returns whether anything changed; fails, with a diagnostic, if a
/// block cannot be loaded or solved, or if an answer does not verify: that block and those behind it in its function
/// are left as they were. `inputPeaks` may be null. Apart from the rule O((N + E) log N) for each block.
llvm::FailureOr<bool> scheduleBlocks(mlir::Operation *root, llvm::StringRef passName, const CostModel &model,
                                     const BlockRule &rule, InputPeaks *inputPeaks);

/// The functions that passes work on in parallel, in their order: those in `root`, or `root` itself.
llvm::SmallVector<mlir::Operation *> findFunctions(mlir::Operation *root);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_SCHEDULING_BLOCKPASS_H
