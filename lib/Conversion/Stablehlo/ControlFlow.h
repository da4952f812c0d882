//===- ControlFlow.h - Loops and branches of StableHLO ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The regions of an unregistered operation may do anything with what they are given. Upstream's scf dialect says what
// loops and branches do, so analyses see through them.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_STABLEHLO_CONTROLFLOW_H
#define COMMSCHED_LIB_CONVERSION_STABLEHLO_CONTROLFLOW_H

#include "mlir/IR/BuiltinOps.h"

namespace commsched::stablehlo {

/// Replaces `stablehlo.while`, `stablehlo.if` and `stablehlo.case` by operations of the scf dialect. A loop that counts
/// from one constant to another, as those of `jax.lax.scan` and `fori_loop` do, becomes an `scf.for`, so that its trips
/// are known. Fails with a diagnostic if a region has not the form that StableHLO defines.
llvm::LogicalResult convertControlFlow(mlir::ModuleOp module);

} // namespace commsched::stablehlo

#endif // COMMSCHED_LIB_CONVERSION_STABLEHLO_CONTROLFLOW_H
