//===- ArithSplitModels.cpp - Splitting of arith and math operations --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Elementwise operations divide along every dimension.
//
//===------------------------------------------------------------------------------------------===//

#include "SplitModels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

static SplitAxes mappableAxes(Operation *op) {
  return OpTrait::hasElementwiseMappableTraits(op) ? elementwiseAxes(op) : SplitAxes();
}

void commsched::detail::registerArithSplitModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *) {
    attachAxes<mappableAxes,
#define GET_OP_LIST
#include "mlir/Dialect/Arith/IR/ArithOps.cpp.inc"
               >(context);
  });
  registry.addExtension(+[](MLIRContext *context, math::MathDialect *) {
    attachAxes<mappableAxes,
#define GET_OP_LIST
#include "mlir/Dialect/Math/IR/MathOps.cpp.inc"
               >(context);
  });
}
