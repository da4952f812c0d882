//===- Casts.h - Which operations only convert elements ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A kernel that packs a bucket can convert elements on the way, so that a cast in front of a collective disappears in
// it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_CASTS_H
#define COMMSCHED_ANALYSIS_CASTS_H

#include "mlir/IR/Operation.h"

namespace commsched {

/// Whether `op` converts the elements of one ranked tensor of static shape to another floating-point type and does
/// nothing else: arith's casts, or a `comm.compute` of a framework's cast (by name) without effects.
bool isElementTypeCast(mlir::Operation *op);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_CASTS_H
