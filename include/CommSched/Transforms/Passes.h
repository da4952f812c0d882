//===- Passes.h - The project's passes --------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Constructors, option structs and registration of all passes of this folder; generated from Passes.td.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_PASSES_H
#define COMMSCHED_TRANSFORMS_PASSES_H

#include "CommSched/Analysis/Environment.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "CommSched/Scheduling/Inductor/AlignCosts.h"
#include "CommSched/Scheduling/Inductor/MultiStream.h"
#include "CommSched/Support/ByteCount.h"
#include "CommSched/Support/CollectiveOrder.h"
#include "CommSched/Support/MemoryBudget.h"
#include "CommSched/Support/Numerics.h"
#include "CommSched/Support/Objective.h"
#include "CommSched/Transforms/CheckedOptions.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace commsched {

/// What comm-plan-memory decides whatever it costs, for tests.
enum class ForcedPlan : uint8_t { None, Keep, Again, Mixed };

#define GEN_PASS_DECL
#include "CommSched/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "CommSched/Transforms/Passes.h.inc"

/// comm-align-costs over an embedder's ranks instead of profile files. `machine` gives this rank's own costs.
std::unique_ptr<mlir::Pass> createCommAlignCosts(std::string machine, GatherCosts gather,
                                                 AlignedOperations operations = AlignedOperations::All);

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_PASSES_H
