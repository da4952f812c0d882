//===- BlockPass.h - The frame of every pass that schedules blocks ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The frame of every scheduling pass: it loads a block, validates it, solves, verifies (in release builds too), applies
// the schedule, checks traffic and prediction, and explains. A pass adds a BlockRule with its load options, solver and
// explanations. Functions are processed in parallel. Remarks and journal entries are buffered and emitted in the order
// of the functions, so that equal input gives equal output with any number of threads.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_SCHEDULING_BLOCKPASS_H
#define COMMSCHED_LIB_TRANSFORMS_SCHEDULING_BLOCKPASS_H

#include "CommSched/Analysis/AccessOrder.h"
#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Report/PassJournal.h"
#include "CommSched/Scheduling/Answer/Explain.h"
#include "CommSched/Scheduling/Answer/Schedule.h"
#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "mlir/Pass/AnalysisManager.h"
#include "mlir/Pass/Pass.h"
#include <functional>
#include <memory>

namespace commsched {

/// The peak of each block before the first of several consecutive reordering passes. Their memory budgets are fractions
/// of this peak, so that they do not add up. Reordering passes preserve this analysis; any other pass invalidates it.
class InputPeaks {
public:
  explicit InputPeaks(mlir::Operation *) {}
  bool isInvalidated(const mlir::AnalysisManager::PreservedAnalyses &preserved) const {
    return !preserved.isPreserved<InputPeaks>();
  }
  llvm::DenseMap<mlir::Block *, Bytes> peaks;
};

/// Buffers the remarks and journal entries of one function until all functions before it have emitted theirs.
class BlockVoice {
public:
  explicit BlockVoice(mlir::MLIRContext *context);

  /// Whether remarks are enabled, and whether a report collects the journal.
  bool hasRemarks() const { return listens; }
  bool hasJournal() const { return journal != nullptr; }
  /// Buffers a remark. `emit` must not refer to operations, since they may be erased before it is called.
  void say(std::function<void()> emit) {
    if (listens)
      remarks.push_back(std::move(emit));
  }
  void write(PassRecord record) {
    if (journal)
      records.push_back(std::move(record));
  }
  /// Emits the remarks and writes the journal. Called on the thread of the pass.
  void speak();

private:
  bool listens = false;
  PassJournal *journal = nullptr;
  std::vector<std::function<void()>> remarks;
  std::vector<PassRecord> records;
};

/// The state of one block in the frame.
struct BlockWork {
  LoadedBlock loaded;
  /// The peak as loaded, and before the first of several consecutive passes (InputPeaks), bytes.
  Bytes peak = 0, inputPeak = 0;
  Schedule schedule;
  /// What the nodes access, by an analysis that shares nothing with the dependences. Empty if the answer changes
  /// nothing and nobody collects a journal.
  BlockAccesses accesses;
  /// The solver's part of the journal record: counts of the search, and its log.
  PassRecord record;
};

/// What a pass adds to the frame. Several threads call it at once, for blocks of different functions.
class BlockRule {
public:
  virtual ~BlockRule() = default;

  /// How blocks are loaded; the frame adds LoadOptions::besideMessages.
  virtual LoadOptions loadOptions() const = 0;
  /// Fills in `work.schedule`. The nodes are in their given order. Fails after emitting an error; the frame reports a
  /// Schedule::defect.
  virtual llvm::LogicalResult solveBlock(BlockWork &work, BlockVoice &voice) const = 0;
  /// Explains each collective. The schedule is verified, but not applied yet. Called only if remarks or a journal are
  /// wanted.
  virtual void explainBlock(const BlockWork &work, BlockVoice &voice) const = 0;
  /// Reports the traffic before and after, once a schedule that changes the block has been applied.
  virtual void reportTraffic(mlir::Location, const Traffic &, const Traffic &, BlockVoice &) const {}
  /// Whether unchanged functions also get the signature of their schedule.
  virtual bool stampsUnchanged() const { return false; }
};

/// Schedules the blocks of the functions in `root`, or of `root` itself if it is a function or contains none, innermost
/// first. A block whose schedule is its given order is not changed. The claims of a schedule are compared with the
/// block as loaded again (comparePrediction). Returns whether anything changed. Fails with a diagnostic if a block
/// cannot be loaded or solved, or if an answer fails verification, which includes the order of accesses to memory
/// (AccessOrder.h); that block and the later ones of its function stay
/// unchanged. If an operation in `root` sends or receives, all blocks are beside messages. `inputPeaks` may be null.
/// O((N + E) log N) per block, apart from the rule.
llvm::FailureOr<bool> scheduleBlocks(mlir::Operation *root, llvm::StringRef passName, const CostModel &model,
                                     const BlockRule &rule, InputPeaks *inputPeaks);

/// The functions that passes work on in parallel, in their order: those in `root`, or `root` itself.
llvm::SmallVector<mlir::Operation *> findFunctions(mlir::Operation *root);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_SCHEDULING_BLOCKPASS_H
