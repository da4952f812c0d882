//===- BlockNoise.h - Variation of the durations of a block -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Where IR meets Scheduling/Answer/Scenarios.h: the error bars of a block's operations, and keys that an operation
// keeps when the block is reordered and its collectives are merged.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_BLOCKNOISE_H
#define COMMSCHED_ANALYSIS_BLOCKNOISE_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Scheduling/Answer/Scenarios.h"

namespace commsched {

/// How the durations of `block` vary: within the error bar of the operation's cost if it has one, or else by the spread
/// of the options. Waits, views and the copies of buckets do not vary.
///
/// An operation's key follows from its location and from whether it is a collective; operations that share both are
/// told apart by their order in the block. A merged collective has the location, and so the key, of its first member.
/// O(N), apart from the costs.
Noise noiseOf(const LoadedBlock &block, const OperationCosts &costs, const NoiseOptions &options);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_BLOCKNOISE_H
