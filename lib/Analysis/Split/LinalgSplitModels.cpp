//===- LinalgSplitModels.cpp - Splitting of linalg operations ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The indexing maps say everything: a parallel loop divides the work if it is a dimension of every result, and if each
// operand uses it as one dimension or not at all. TilingInterface could make the parts, but answers questions about
// dimensions only by building operations.
//
//===------------------------------------------------------------------------------------------===//

#include "SplitModels.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

/// Returns the dimension of an operand that loop `loop` runs over, kWholeOperand if none is, and none if the loop is
/// part of a larger expression or of several dimensions (a window, a diagonal).
static std::optional<int64_t> dimOfLoop(AffineMap map, unsigned loop) {
  int64_t found = kWholeOperand;
  for (auto [dim, expression] : llvm::enumerate(map.getResults())) {
    if (!expression.isFunctionOfDim(loop))
      continue;
    if (!isa<AffineDimExpr>(expression) || found != kWholeOperand)
      return std::nullopt;
    found = static_cast<int64_t>(dim);
  }
  return found;
}

/// Returns true if the body asks for the loop's index, which counts from the beginning of the whole operation.
static bool readsIndex(linalg::LinalgOp op, unsigned loop) {
  return op.getBlock()
      ->walk([&](linalg::IndexOp index) {
        return index.getDim() == loop ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

static SplitAxes linalgAxes(Operation *op) {
  auto structured = dyn_cast<linalg::LinalgOp>(op);
  if (!structured || !structured.hasPureTensorSemantics())
    return {};
  SplitAxes axes;
  for (auto [loop, type] : llvm::enumerate(structured.getIteratorTypesArray())) {
    bool isReduction = type == utils::IteratorType::reduction;
    if ((type != utils::IteratorType::parallel && !isReduction) || readsIndex(structured, loop))
      continue;
    SplitAxis axis = makeAxis(op);
    bool divides = true;
    for (OpOperand &operand : op->getOpOperands()) {
      std::optional<int64_t> dim = dimOfLoop(structured.getMatchingIndexingMap(&operand), loop);
      // A parallel loop runs over a dimension of every result, and a reduction over none.
      divides &= dim.has_value() && (!structured.isDpsInit(&operand) || (*dim == kWholeOperand) == isReduction);
      axis.operands[operand.getOperandNumber()] = dim.value_or(kWholeOperand);
      if (structured.isDpsInit(&operand))
        axis.results[structured.getTiedOpResult(&operand).getResultNumber()] =
            isReduction ? kPartialResult : dim.value_or(kWholeOperand);
    }
    if (divides)
      axes.push_back(std::move(axis));
  }
  return axes;
}

void commsched::detail::registerLinalgSplitModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, linalg::LinalgDialect *) {
    attachAxes<linalgAxes,
#define GET_OP_LIST
#include "mlir/Dialect/Linalg/IR/LinalgStructuredOps.cpp.inc"
               >(context);
  });
}
