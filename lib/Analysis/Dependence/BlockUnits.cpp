//===- BlockUnits.cpp - Units: operations that stay adjacent ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Dependence.h"
#include <map>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

BlockUnits commsched::findUnits(const BlockNodes &nodes) {
  BlockUnits units;
  units.of.assign(nodes.size(), kNone);
  int32_t numUnits = 0;
  IntegerAttr previous;
  // Indexed by number, which may be any: the latest unit with this number.
  std::map<int64_t, int32_t> latest;
  for (NodeId id = 0; id < nodes.size(); ++id) {
    auto number = nodes[id]->getAttrOfType<IntegerAttr>(CommDialect::kUnitAttrName);
    if (!number) {
      previous = nullptr;
      continue;
    }
    if (number != previous)
      latest[number.getInt()] = numUnits++;
    previous = number;
    units.of[id] = numUnits - 1;
    if (auto after = nodes[id]->getAttrOfType<IntegerAttr>(CommDialect::kAfterUnitAttrName))
      if (auto it = latest.find(after.getInt()); it != latest.end() && it->second != numUnits - 1)
        units.turns.emplace_back(it->second, numUnits - 1);
  }
  return units;
}
