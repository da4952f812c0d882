//===- Casts.h - Operations that only convert elements ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A kernel that packs a bucket can convert elements as it copies them. A cast in front of a collective then needs no
// kernel of its own.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_CASTS_H
#define COMMSCHED_ANALYSIS_CASTS_H

#include "mlir/IR/Operation.h"

namespace commsched {

/// Returns true if `op` only converts the elements of one ranked tensor to another floating-point type: a cast of
/// arith, a conversion of StableHLO, or a `comm.compute` without effects that has the name of a framework's cast.
bool convertsElements(mlir::Operation *op);

/// Returns true if `op` does so, and its tensor has a static shape.
bool isElementTypeCast(mlir::Operation *op);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_CASTS_H
