//===- CostTimes.cpp - Share of time with a known cost, by source -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/CostTimes.h"
#include "CommSched/Machine/MachineModel.h"
#include "CommSched/Machine/Rounding.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace commsched;
using namespace commsched::detail;

llvm::StringRef commsched::stringify(CostKnowledge knowledge) {
  static constexpr llvm::StringLiteral kNames[kNumCostKnowledges] = {"given", "measured", "curve", "model", "unknown"};
  return kNames[static_cast<unsigned>(knowledge)];
}

CostKnowledge commsched::knowledgeOf(CostOrigin origin) {
  switch (origin) {
  case CostOrigin::Given:
    return CostKnowledge::Given;
  case CostOrigin::Measured:
    return CostKnowledge::Measured;
  case CostOrigin::Scaled:
    return CostKnowledge::Curve;
  case CostOrigin::Analytic:
    return CostKnowledge::Model;
  case CostOrigin::Guessed:
    return CostKnowledge::Unknown;
  }
  return CostKnowledge::Unknown;
}

CostKnowledge commsched::knowledgeOf(CostOrigin origin, const MachineModel &machine, CollectiveKind kind,
                                     GroupShape shape, llvm::StringRef group, Bytes bytes) {
  if (origin != CostOrigin::Measured)
    return knowledgeOf(origin);
  bool isPoint = llvm::any_of(machine.collectives, [&](const CollectiveTable &table) {
    bool isOfGroup = table.group.empty() ? table.ranks == shape.ranks && table.nodes == shape.nodes
                                         : llvm::StringRef(table.group) == group;
    return table.kind == kind && isOfGroup &&
           llvm::any_of(table.points, [&](const MeasuredPoint &point) { return point.bytes == bytes; });
  });
  return isPoint ? CostKnowledge::Measured : CostKnowledge::Curve;
}

void CostTimes::add(CostKnowledge knowledge, Ns time) {
  Ns &sum = times[static_cast<unsigned>(knowledge)];
  sum = addNs(sum, std::max<Ns>(0, time));
}

int64_t CostTimes::permilleOf(CostKnowledge knowledge) const {
  Wide all = 0;
  for (Ns time : times)
    all += time;
  return all == 0 ? 0 : static_cast<int64_t>((static_cast<Wide>(of(knowledge)) * kPermille + all / 2) / all);
}

std::string CostTimes::describe() const {
  std::string text;
  for (unsigned index = 0; index < kNumCostKnowledges; ++index) {
    auto knowledge = static_cast<CostKnowledge>(index);
    if (of(knowledge) == 0)
      continue;
    text += llvm::formatv("{0}{1:F1} % {2}", text.empty() ? "" : ", ", static_cast<double>(permilleOf(knowledge)) / 10,
                          stringify(knowledge))
                .str();
  }
  return text;
}

llvm::json::Object CostTimes::toJSON() const {
  llvm::json::Object object;
  for (unsigned index = 0; index < kNumCostKnowledges; ++index)
    object[stringify(static_cast<CostKnowledge>(index))] = times[index];
  return object;
}
