//===- ForeignOperations.h - Operations of other dialects in a pipeline -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_PIPELINES_FOREIGNOPERATIONS_H
#define COMMSCHED_LIB_TRANSFORMS_PIPELINES_FOREIGNOPERATIONS_H

#include "mlir/Pass/Pass.h"
#include "llvm/ADT/ArrayRef.h"
#include <string>

namespace commsched {

/// A pass of modules that adds the names of dialects and operations to the module's `comm.no_effects` (Effects.h), and
/// warns of collectives of the shard dialect and of StableHLO, which are not scheduled before they are converted.
/// O(operations).
std::unique_ptr<mlir::Pass> createForeignOperationsPass(llvm::ArrayRef<std::string> assumedPure);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_PIPELINES_FOREIGNOPERATIONS_H
