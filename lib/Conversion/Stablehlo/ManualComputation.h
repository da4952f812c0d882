//===- ManualComputation.h - From whole tensors to the tensors of a rank ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A function of JAX works on whole tensors. Within `sdy.manual_computation`, which is what `jax.shard_map` becomes, the
// tensors are those of one process.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_STABLEHLO_MANUALCOMPUTATION_H
#define COMMSCHED_LIB_CONVERSION_STABLEHLO_MANUALCOMPUTATION_H

#include "ReplicaGroups.h"

namespace commsched::stablehlo {

/// Replaces every `sdy.manual_computation` by its body, so that the functions around them work on the tensors of one
/// process: arguments and results get the types that the bodies have. Fails with a diagnostic if a function also
/// computes on whole tensors, which only XLA's partitioner can divide, or if a manual computation leaves an axis of the
/// mesh to it.
llvm::LogicalResult inlineManualComputations(mlir::ModuleOp module);

/// The axes of the only mesh of a module, or of the one whose axes a manual computation names; empty if there is none.
MeshAxes readMesh(mlir::ModuleOp module);

} // namespace commsched::stablehlo

#endif // COMMSCHED_LIB_CONVERSION_STABLEHLO_MANUALCOMPUTATION_H
