//===- StablehloCosts.h - Costs of StableHLO's operations by name -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// StableHLO is not linked, so its operations cannot have CostOpInterface. They may be unregistered.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_ANALYSIS_COSTS_STABLEHLOCOSTS_H
#define COMMSCHED_LIB_ANALYSIS_COSTS_STABLEHLOCOSTS_H

#include "CommSched/Analysis/Costs/CostInterface.h"

namespace commsched::detail {

/// The work of an operation of StableHLO or CHLO, each as a kernel of its own: nobody knows yet what XLA fuses. None
/// for operations that the model does not know, and those of other dialects. O(operands), or O(operations in its
/// regions).
std::optional<OpWork> getStablehloWork(mlir::Operation *op);

} // namespace commsched::detail

#endif // COMMSCHED_LIB_ANALYSIS_COSTS_STABLEHLOCOSTS_H
