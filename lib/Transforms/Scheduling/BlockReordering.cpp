//===- BlockReordering.cpp - From a rule over integers to a pass over blocks ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Functions are solved in parallel; remarks and errors are kept back and come in the functions' order, so that equal
// input gives equal output whatever the threads do.
//
//===------------------------------------------------------------------------------------------===//

#include "BlockReordering.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Scheduling/Model/KeepTogether.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Scheduling/Model/ScheduleVerifier.h"
#include "CommSched/Scheduling/Model/Timeline.h"
#include "CommSched/Transforms/Rewrites/BucketWriter.h"
#include "CommSched/Transforms/Scheduling/SchedulingOptions.h"
#include "JournalRecords.h"
#include "ReorderingRemarks.h"
#include "mlir/IR/Threading.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace commsched;

LogicalResult ReorderingContext::initialize(MLIRContext *context, StringRef machine, CollectiveOrder order) {
  model = loadCostModel(context, machine);
  collectiveOrder = order;
  return success(model != nullptr);
}

SmallVector<Operation *> commsched::findFunctions(Operation *root) {
  SmallVector<Operation *> functions;
  if (!isa<FunctionOpInterface>(root))
    root->walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (op == root || !isa<FunctionOpInterface>(op) || !op->hasTrait<OpTrait::IsIsolatedFromAbove>())
        return WalkResult::advance();
      functions.push_back(op);
      return WalkResult::skip();
    });
  if (functions.empty())
    functions.push_back(root);
  return functions;
}

namespace {

/// What is known of one block in the end.
struct BlockOutcome {
  std::unique_ptr<LoadedBlock> loaded;
  Schedule result;
  Bytes inputPeak = 0;
  std::string error;
};

/// One function: its blocks are loaded, solved, verified and permuted, innermost first.
class FunctionWorker {
public:
  FunctionWorker(const ReorderingContext &context, const InputPeaks &known, BlockSolver solve)
      : context(context), known(known), solve(solve), costs(context.costs()) {}

  std::vector<BlockOutcome> run(Operation *function) {
    std::vector<BlockOutcome> outcomes;
    for (Block *block : findSchedulableBlocks(function)) {
      outcomes.push_back(solveBlock(*block));
      if (!outcomes.back().error.empty())
        break;
      apply(outcomes.back());
    }
    return outcomes;
  }

private:
  BlockOutcome solveBlock(Block &block) {
    BlockOutcome outcome;
    LoadOptions options;
    options.order = context.order();
    outcome.loaded = std::make_unique<LoadedBlock>(loadBlock(block, costs, options));
    const Problem &problem = outcome.loaded->problem;
    outcome.error = outcome.loaded->defect;
    if (!outcome.error.empty())
      return outcome;
    Bytes peak = peakOf(problem, identityOrder(problem));
    auto before = known.peaks.find(&block);
    outcome.inputPeak = before == known.peaks.end() ? peak : before->second;
    outcome.result = solve(*outcome.loaded, outcome.inputPeak);
    outcome.error = outcome.result.defect;
    if (!outcome.error.empty())
      return outcome;
    if (hasUnits(problem))
      settleUnits(problem, peak, outcome.result);
    ScheduleRequirements requirements;
    requirements.collectiveOrder = context.order();
    if (outcome.result.limit >= 0)
      requirements.peakLimit = std::max(outcome.result.limit, peak);
    outcome.error = verify(problem, outcome.result, requirements);
    return outcome;
  }

  /// Gathers units that the solver has torn apart: solvers see their outer dependences alone. Where that would pass the
  /// memory limit, or be slower than both the given order and the solver's, the block stays as it is.
  static void settleUnits(const Problem &problem, Bytes inputPeak, Schedule &result) {
    Order given = identityOrder(problem);
    Ns slowest = std::max(makespanOf(problem, given), makespanOf(problem, result.order));
    auto accept = [&](ArrayRef<NodeId> order) {
      return result.limit < 0 ||
             (peakOf(problem, order) <= std::max(result.limit, inputPeak) && makespanOf(problem, order) <= slowest);
    };
    std::optional<Order> settled = keepTogether(problem, result.order, accept);
    if (settled == result.order)
      return;
    result.order = settled ? std::move(*settled) : given;
    std::vector<int32_t> place(problem.size());
    for (auto [at, id] : llvm::enumerate(result.order))
      place[id] = static_cast<int32_t>(at);
    for (CollectiveRecord &record : result.records) {
      int32_t moved = place[record.node] - record.node;
      record.moves = problem.nodes[record.node].kind == NodeKind::Wait ? moved : -moved;
      if (!settled) {
        record.grouped = 0;
        record.factor = LimitingFactor::Units;
      }
    }
    measureExposure(problem, given, result);
  }

  static void apply(const BlockOutcome &outcome) {
    if (llvm::is_sorted(outcome.result.order))
      return;
    const BlockNodes &nodes = outcome.loaded->nodes;
    std::vector<Operation *> ops;
    for (NodeId id : outcome.result.order)
      ops.push_back(nodes[id]);
    applyOrder(nodes.getBlock(), ops);
  }

  const ReorderingContext &context;
  const InputPeaks &known;
  BlockSolver solve;
  OperationCosts costs;
};

} // namespace

/// Whether a function's cost is that of another one, which must not change meanwhile.
static bool callsFunctions(ArrayRef<Operation *> functions) {
  return llvm::any_of(functions, [](Operation *function) {
    return function->walk([](CallOpInterface) { return WalkResult::interrupt(); }).wasInterrupted();
  });
}

FailureOr<bool> commsched::reorderBlocks(Operation *root, StringRef passName, const ReorderingContext &context,
                                         InputPeaks &inputPeaks, BlockSolver solve) {
  SmallVector<Operation *> functions = findFunctions(root);
  std::vector<std::vector<BlockOutcome>> outcomes(functions.size());
  auto run = [&](size_t index) { outcomes[index] = FunctionWorker(context, inputPeaks, solve).run(functions[index]); };
  if (callsFunctions(functions))
    llvm::for_each(llvm::seq<size_t>(0, functions.size()), run);
  else
    parallelFor(root->getContext(), 0, functions.size(), run);
  bool changed = false;
  for (auto [function, ofFunction] : llvm::zip_equal(functions, outcomes)) {
    bool moved = false;
    for (const BlockOutcome &outcome : ofFunction) {
      Block &block = outcome.loaded->nodes.getBlock();
      if (!outcome.error.empty())
        return emitError(block.getParentOp()->getLoc())
               << passName << ": the new order does not verify: " << outcome.error;
      inputPeaks.peaks.try_emplace(&block, outcome.inputPeak);
      moved |= !llvm::is_sorted(outcome.result.order);
      emitRemarks(passName, *outcome.loaded, outcome.result);
      if (PassJournal *journal = journalOf(root->getContext()))
        journal->add(makeRecord(passName, *outcome.loaded, outcome.result));
    }
    if (moved && isa<FunctionOpInterface>(function))
      stampSignature(function);
    changed |= moved;
  }
  return changed;
}
