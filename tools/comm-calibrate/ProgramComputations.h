//===- ProgramComputations.h - The computations of a program ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TOOLS_COMMCALIBRATE_PROGRAMCOMPUTATIONS_H
#define COMMSCHED_TOOLS_COMMCALIBRATE_PROGRAMCOMPUTATIONS_H

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Execution/OperationKernel.h"
#include "Questions.h"
#include "mlir/IR/BuiltinOps.h"

namespace commsched {

/// Adds the computations of `module`: calls of the runtime as the lowering would make them, and what is compiled into
/// the program. Those that cannot run by themselves are added to `skipped`. `seen` has what was added before.
/// `compiler` outlives the questions. O(operations log operations).
void collectComputations(mlir::ModuleOp module, const OperationCosts &costs, OperationCompiler &compiler,
                         std::set<std::string> &seen, Questions &questions);

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMCALIBRATE_PROGRAMCOMPUTATIONS_H
