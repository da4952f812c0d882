//===- LoopPipeline.h - Write a loop as a software pipeline -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_LOOPS_LOOPPIPELINE_H
#define COMMSCHED_LIB_TRANSFORMS_LOOPS_LOOPPIPELINE_H

#include "LoopStages.h"

namespace commsched {

/// Returns why a loop cannot be written with `numStages` stages: its trip count is unknown, or too small.
std::string findTripCountObstacle(mlir::scf::ForOp loop, unsigned numStages);

/// Writes a loop as a pipeline of stages: what runs before the first iteration, the loop, and what runs behind the last
/// one (`scf::pipelineForLoop`). The loop must have no obstacle. Operations that only name memory or compute numbers,
/// and that several stages read, are cloned, so that no value crosses iterations for their sake. Returns the new loop.
/// O(operations of the body times stages).
llvm::FailureOr<mlir::scf::ForOp> pipelineLoop(mlir::scf::ForOp loop, const LoopStages &stages);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_LOOPS_LOOPPIPELINE_H
