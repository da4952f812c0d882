//===- LoopPipeline.cpp - Write a loop as a software pipeline ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "LoopPipeline.h"
#include "CommSched/Analysis/Storage.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/Transforms/Transforms.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/FoldUtils.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;
using namespace commsched;

std::string commsched::findTripCountObstacle(scf::ForOp loop, unsigned numStages) {
  std::optional<llvm::APInt> trips = loop.getStaticTripCount();
  if (!trips)
    return "its number of iterations is not known";
  if (trips->ult(numStages))
    return "it has " + std::to_string(trips->getZExtValue()) + " iterations, fewer than the " +
           std::to_string(numStages) + " stages";
  return "";
}

namespace {

/// Indexed by operation of the body.
using StageMap = llvm::DenseMap<Operation *, unsigned>;

/// Whether an operation does nothing but name memory or compute numbers.
bool isFree(Operation *op) {
  if (op->getNumRegions() > 0 || !isMemoryEffectFree(op))
    return false;
  return llvm::all_of(op->getResults(), [](OpResult result) {
    return !isa<ShapedType>(result.getType()) || getAliasedValue(result) != nullptr;
  });
}

/// The operation of the body that is `op` or contains it.
Operation *inBody(Operation *op, scf::ForOp loop) { return loop.getBody()->findAncestorOpInBlock(*op); }

/// Gives each later stage that reads a free operation a clone of its own. From the last operation to the first, so that
/// the operands of a clone are cloned after it.
void cloneFreeOperations(scf::ForOp loop, StageMap &stages, SmallVector<Operation *> &order) {
  for (Operation *op : llvm::to_vector(llvm::reverse(order))) {
    if (!isFree(op))
      continue;
    llvm::SmallDenseMap<unsigned, Operation *> clones;
    for (OpOperand &use : llvm::make_early_inc_range(op->getUses())) {
      Operation *user = inBody(use.getOwner(), loop);
      auto stage = stages.find(user);
      if (stage == stages.end() || stage->second == stages.lookup(op))
        continue;
      unsigned wanted = stage->second;
      Operation *&clone = clones[wanted];
      if (!clone) {
        clone = OpBuilder(op->getContext()).clone(*op);
        op->getBlock()->getOperations().insertAfter(op->getIterator(), clone);
      }
      stages[clone] = wanted;
      use.set(clone->getResult(cast<OpResult>(use.get()).getResultNumber()));
    }
  }
  order.clear();
  for (Operation &op : loop.getBody()->without_terminator())
    order.push_back(&op);
}

/// Folds the arithmetic on constant bounds that the pipeliner makes, and erases the constants that nobody needs then.
class BoundFolder : public RewriterBase::Listener {
public:
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint previous) final {
    if (!previous.isSet() && op->getNumResults() == 1 && op->getResult(0).getType().isIntOrIndex() &&
        op->getDialect() && op->getDialect()->getNamespace() == "arith")
      made.push_back(op);
  }

  void foldIn(Operation *around) {
    if (made.empty())
      return;
    OperationFolder folder(made.front()->getContext());
    for (Operation *op : made)
      if (isOpTriviallyDead(op))
        op->erase();
      else
        (void)folder.tryToFold(op);
    around->walk([](arith::ConstantOp constant) {
      if (constant->use_empty())
        constant->erase();
    });
  }

private:
  SmallVector<Operation *> made;
};

} // namespace

FailureOr<scf::ForOp> commsched::pipelineLoop(scf::ForOp loop, const LoopStages &stages) {
  StageMap stageOf;
  SmallVector<Operation *> order;
  for (auto [op, stage] : llvm::zip(*loop.getBody(), stages.of)) {
    stageOf[&op] = stage;
    order.push_back(&op);
  }
  cloneFreeOperations(loop, stageOf, order);
  // What is left of the oldest iteration comes first, so that beside messages the starts and waits of two iterations
  // keep their order.
  llvm::stable_sort(order, [&](Operation *a, Operation *b) { return stageOf.lookup(a) > stageOf.lookup(b); });
  scf::PipeliningOption options;
  options.getScheduleFn = [&](scf::ForOp, std::vector<std::pair<Operation *, unsigned>> &schedule) {
    for (Operation *op : order)
      schedule.emplace_back(op, stageOf.lookup(op));
  };
  BoundFolder folder;
  IRRewriter rewriter(loop.getContext(), &folder);
  rewriter.setInsertionPoint(loop);
  Operation *function = loop->getParentOfType<FunctionOpInterface>();
  FailureOr<scf::ForOp> pipelined = scf::pipelineForLoop(rewriter, loop, options);
  folder.foldIn(function);
  return pipelined;
}
