//===- EntryProblem.h - The entry of a module of XLA as a problem -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_ENTRYPROBLEM_H
#define COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_ENTRYPROBLEM_H

#include "CommSched/Machine/CostModel.h"
#include "Hlo/Graph/HloGraph.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace commsched::hlo {

/// Calls `visit` with the graph and the problem of the entry, whose callees run in their given orders. No collectives
/// may be merged in it. Fails, in one line, if the module is not understood.
llvm::Error visitEntry(const HloModule &module, const CostModel &model,
                       llvm::function_ref<void(const HloGraph &, const Problem &)> visit);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_ENTRYPROBLEM_H
