//===- BoundOptions.h - Effort and limit of the lower bounds ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What all bounds have in common: how many ancestors they may track, and the limit that they may assume.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BOUNDS_BOUNDOPTIONS_H
#define COMMSCHED_SCHEDULING_BOUNDS_BOUNDOPTIONS_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "CommSched/Support/MemoryBudget.h"

namespace commsched {

/// Options of the lower bounds. Every choice gives valid bounds.
struct BoundOptions {
  /// Largest problem, in nodes, for which every ancestor of every node is tracked.
  NodeId exactNodes = 24000;
  /// Window size, in nodes, for larger problems. Ancestors are tracked within the current and the previous window
  /// (Bounds.md, Lemma 6).
  NodeId window = 3072;
  /// The peak limit that LowerBound::withLimit assumes, bytes.
  Bytes limit = kUnlimited;
  /// Names of arguments that are left out (BoundArguments.h), to measure what each is worth.
  std::vector<std::string> without;
};

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BOUNDS_BOUNDOPTIONS_H
