//===- HloImport.h - A module of XLA as comm IR -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Prints the graph of a scheduled module as comm operations, so that every pass and report works on it. Collectives
// become those of the dialect; everything else is a comm.compute with its cost. Loops become scf.for.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_FRONTENDS_HLO_HLOIMPORT_H
#define COMMSCHED_FRONTENDS_HLO_HLOIMPORT_H

#include "CommSched/Frontends/Hlo/HloModule.h"
#include "CommSched/Machine/CostModel.h"

namespace commsched::hlo {

/// The text of an MLIR module with one function, the entry computation. Times are those of `model`. Fails, in one line,
/// if groups are malformed or loops nested more than kMaxNesting deep. O(size).
llvm::Expected<std::string> importAsComm(const HloModule &module, const CostModel &model);

/// XLA's programs nest two or three loops.
inline constexpr unsigned kMaxNesting = 32;

} // namespace commsched::hlo

#endif // COMMSCHED_FRONTENDS_HLO_HLOIMPORT_H
