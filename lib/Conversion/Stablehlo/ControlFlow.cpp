//===- ControlFlow.cpp - Loops and branches of StableHLO --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See ControlFlow.h.
//
//===------------------------------------------------------------------------------------------===//

#include "ControlFlow.h"
#include "StablehloNames.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::stablehlo;

/// The number that a value is, if it is a constant without dimensions.
static std::optional<int64_t> constantOf(Value value) {
  Operation *op = value.getDefiningOp();
  auto splat = op && isNamed(op, {"constant"}) ? dyn_cast_if_present<SplatElementsAttr>(op->getAttr("value"))
                                               : SplatElementsAttr();
  if (!splat || !splat.getElementType().isIntOrIndex())
    return std::nullopt;
  APInt number = splat.getSplatValue<APInt>();
  return splat.getElementType().isUnsignedInteger() ? static_cast<int64_t>(number.getZExtValue())
                                                    : number.getSExtValue();
}

namespace {
/// What a loop counts.
struct Count {
  int64_t from, to, step;
};
} // namespace

/// The count of a loop whose condition is "value k is less than a constant" and whose body adds a constant to value k.
static std::optional<Count> countOf(Operation *loop) {
  Block &condition = loop->getRegion(0).front(), &body = loop->getRegion(1).front();
  Operation *compare = condition.back().getOperand(0).getDefiningOp();
  if (!compare || !isNamed(compare, {"compare"}) || compare->getBlock() != &condition ||
      !StringRef(textOf(compare->getAttr("comparison_direction"))).contains("LT"))
    return std::nullopt;
  auto counter = dyn_cast<BlockArgument>(compare->getOperand(0));
  if (!counter || counter.getOwner() != &condition)
    return std::nullopt;
  unsigned position = counter.getArgNumber();
  Value next = body.back().getOperand(position);
  Operation *add = next.getDefiningOp();
  if (!add || !isNamed(add, {"add"}) || add->getOperand(0) != body.getArgument(position))
    return std::nullopt;
  std::optional<int64_t> from = constantOf(loop->getOperand(position)), to = constantOf(compare->getOperand(1)),
                         step = constantOf(add->getOperand(1));
  if (!from || !to || !step || *step <= 0)
    return std::nullopt;
  return Count{*from, *to, *step};
}

/// Moves the contents of a block behind those of another, for these arguments. Returns what its terminator returned.
static SmallVector<Value> moveContents(IRRewriter &rewriter, Block &from, Block *to, ValueRange arguments) {
  Operation *end = &from.back();
  rewriter.mergeBlocks(&from, to, arguments);
  SmallVector<Value> returned(end->getOperands());
  rewriter.eraseOp(end);
  return returned;
}

/// The element of a tensor without dimensions.
static Value elementOf(IRRewriter &rewriter, Location loc, Value tensor) {
  return tensor::ExtractOp::create(rewriter, loc, tensor, ValueRange());
}

static void convertWhile(IRRewriter &rewriter, Operation *op) {
  Location loc = op->getLoc();
  rewriter.setInsertionPoint(op);
  if (std::optional<Count> count = countOf(op)) {
    auto constant = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(rewriter, loc, value); };
    Value from = constant(count->from), to = constant(count->to), step = constant(count->step);
    auto loop = scf::ForOp::create(rewriter, loc, from, to, step, op->getOperands());
    if (!loop.getBody()->empty())
      rewriter.eraseOp(loop.getBody()->getTerminator());
    SmallVector<Value> next =
        moveContents(rewriter, op->getRegion(1).front(), loop.getBody(), loop.getRegionIterArgs());
    rewriter.setInsertionPointToEnd(loop.getBody());
    scf::YieldOp::create(rewriter, loc, next);
    rewriter.replaceOp(op, loop.getResults());
    return;
  }
  auto loop = scf::WhileOp::create(rewriter, loc, op->getResultTypes(), op->getOperands());
  SmallVector<Location> locations(op->getNumOperands(), loc);
  Block *before = rewriter.createBlock(&loop.getBefore(), {}, op->getOperandTypes(), locations);
  SmallVector<Value> decides = moveContents(rewriter, op->getRegion(0).front(), before, before->getArguments());
  rewriter.setInsertionPointToEnd(before);
  scf::ConditionOp::create(rewriter, loc, elementOf(rewriter, loc, decides[0]), before->getArguments());
  Block *after = rewriter.createBlock(&loop.getAfter(), {}, op->getOperandTypes(), locations);
  SmallVector<Value> next = moveContents(rewriter, op->getRegion(1).front(), after, after->getArguments());
  rewriter.setInsertionPointToEnd(after);
  scf::YieldOp::create(rewriter, loc, next);
  rewriter.replaceOp(op, loop.getResults());
}

/// Moves a branch of StableHLO into an empty region.
static void moveBranch(IRRewriter &rewriter, Region &from, Region &to) {
  Location loc = from.getLoc();
  Block *block = to.empty() ? rewriter.createBlock(&to) : &to.front();
  SmallVector<Value> returned = moveContents(rewriter, from.front(), block, {});
  rewriter.setInsertionPointToEnd(block);
  scf::YieldOp::create(rewriter, loc, returned);
}

static void convertIf(IRRewriter &rewriter, Operation *op) {
  rewriter.setInsertionPoint(op);
  Value condition = elementOf(rewriter, op->getLoc(), op->getOperand(0));
  auto branches = scf::IfOp::create(rewriter, op->getLoc(), op->getResultTypes(), condition, /*addThenBlock=*/true,
                                    /*addElseBlock=*/true);
  for (auto [from, to] : llvm::zip_equal(op->getRegions(), branches->getRegions())) {
    to.front().clear();
    moveBranch(rewriter, from, to);
  }
  rewriter.replaceOp(op, branches.getResults());
}

/// The last branch runs for every number that is not one of the others.
static void convertCase(IRRewriter &rewriter, Operation *op) {
  Location loc = op->getLoc();
  rewriter.setInsertionPoint(op);
  Value number = elementOf(rewriter, loc, op->getOperand(0));
  number = arith::IndexCastOp::create(rewriter, loc, rewriter.getIndexType(), number);
  auto last = static_cast<int64_t>(op->getNumRegions()) - 1;
  auto branches = scf::IndexSwitchOp::create(rewriter, loc, op->getResultTypes(), number,
                                             llvm::to_vector(llvm::seq<int64_t>(0, last)), last);
  for (int64_t branch = 0; branch < last; ++branch)
    moveBranch(rewriter, op->getRegion(branch), branches.getCaseRegions()[branch]);
  moveBranch(rewriter, op->getRegion(last), branches.getDefaultRegion());
  rewriter.replaceOp(op, branches.getResults());
}

/// Whether the regions have the form that StableHLO defines.
static LogicalResult checkRegions(Operation *op) {
  bool isLoop = isNamed(op, {"while"});
  bool isGood = isLoop ? op->getNumRegions() == 2 : op->getNumOperands() == 1 && op->getNumRegions() > 0;
  if (isNamed(op, {"if"}))
    isGood &= op->getNumRegions() == 2;
  for (Region &region : op->getRegions()) {
    isGood = isGood && region.hasOneBlock() && !region.front().empty() && isNamed(&region.front().back(), {"return"});
    isGood = isGood && region.front().getNumArguments() == (isLoop ? op->getNumOperands() : 0);
  }
  if (isGood && isLoop)
    isGood = op->getRegion(0).front().back().getNumOperands() == 1 &&
             op->getRegion(1).front().back().getNumOperands() == op->getNumOperands();
  if (isGood)
    return success();
  return op->emitOpError() << "expected regions of one block each, which ends with stablehlo.return";
}

LogicalResult commsched::stablehlo::convertControlFlow(ModuleOp module) {
  SmallVector<Operation *> operations;
  module.walk([&](Operation *op) {
    if (isNamed(op, {"while", "if", "case"}))
      operations.push_back(op);
  });
  IRRewriter rewriter(module.getContext());
  for (Operation *op : operations) {
    if (failed(checkRegions(op)))
      return failure();
    if (isNamed(op, {"while"}))
      convertWhile(rewriter, op);
    else if (isNamed(op, {"if"}))
      convertIf(rewriter, op);
    else
      convertCase(rewriter, op);
  }
  return success();
}
