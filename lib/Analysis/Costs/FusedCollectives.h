//===- FusedCollectives.h - Collectives inside of other operations ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Operators that fuse a matrix product with a collective say by their name which collective it is, and by their
// operands and results what it moves. PyTorch writes them if it decomposes tensor parallelism.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_ANALYSIS_COSTS_FUSEDCOLLECTIVES_H
#define COMMSCHED_LIB_ANALYSIS_COSTS_FUSEDCOLLECTIVES_H

#include "CommSched/Support/CollectiveKind.h"
#include "mlir/IR/Value.h"
#include <optional>

namespace commsched::detail {

/// The collective that an operation fuses with its own work.
struct FusedCollective {
  CollectiveKind kind;
  /// What one rank contributes to an all-gather, or gets from a reduce-scatter: the collective's bytes over the ranks.
  mlir::Value piece;
};

/// The collective inside an operation with `comm.hybrid`, if its operator is known: PyTorch's products of
/// torch.distributed._symmetric_memory. O(1).
std::optional<FusedCollective> getFusedCollective(mlir::Operation *op);

} // namespace commsched::detail

#endif // COMMSCHED_LIB_ANALYSIS_COSTS_FUSEDCOLLECTIVES_H
