//===- HloPrices.h - Costs of the instructions of a module ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// For reports, and for whoever has times of instructions by name.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_FRONTENDS_HLO_GRAPH_HLOPRICES_H
#define COMMSCHED_FRONTENDS_HLO_GRAPH_HLOPRICES_H

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"
#include "CommSched/Machine/CostModel.h"
#include "CommSched/Machine/CostTimes.h"

namespace commsched::hlo {

/// An instruction that costs time where it runs, and its cost.
struct PricedInstruction {
  llvm::StringRef name;
  /// Its result, as getResultTypes() spells it.
  std::vector<std::string> results;
  Ns time = 0;
  CostKnowledge known = CostKnowledge::Model;
  bool isCollective = false;
  /// The arguments of the cost curve; set for collectives only.
  CollectiveKind kind = CollectiveKind::AllGather;
  GroupShape shape = {};
  ElementType element = ElementType::Other;
  Bytes bytes = 0;
};

/// The arrays of a result as the `ops` of a profile spell types: "64x256xbf16".
std::vector<std::string> getResultTypes(const HloShape &shape);

/// The kernels and collectives of all computations that run, each once, with their costs; not what waits, is free, or
/// runs other computations. Fails if a group is malformed. O(instructions).
llvm::Expected<std::vector<PricedInstruction>> priceInstructions(const HloModule &module, const CostModel &model);

} // namespace commsched::hlo

#endif // COMMSCHED_FRONTENDS_HLO_GRAPH_HLOPRICES_H
