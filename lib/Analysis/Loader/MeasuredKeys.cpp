//===- MeasuredKeys.cpp - Merge keys of collectives with a measured time ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/MeasuredKeys.h"
#include "CommSched/Machine/Rounding.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

namespace {

/// Largest ratio of the multiples of one key, in permille. Repeated measurements of equal collectives differ by less.
constexpr int64_t kSpreadPermille = 1250;

/// A start with its measured time and its modelled time, which is positive.
struct MeasuredStart {
  NodeId node;
  int32_t key;
  Ns measured, modelled;
};

/// Compares measured / modelled of `a` with that of `b`, times `permille`.
bool isAbove(const MeasuredStart &a, const MeasuredStart &b, int64_t permille = kPermille) {
  // Both factors are at most kMaxNs = 10^16, so the products fit in 128 bits.
  return Wide(a.measured) * b.modelled * kPermille > Wide(b.measured) * a.modelled * permille;
}

} // namespace

bool commsched::isMeasured(CollectiveOpInterface start) {
  auto attr = start->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
  return attr && attr.getTime();
}

MergeKey commsched::scaledKey(const MergeKey &key, Ns measured, Ns modelled) {
  auto scale = [=](Ns cost) { return saturate((Wide(cost) * measured + modelled - 1) / modelled); };
  MergeKey result = key;
  result.variants.clear();
  result.cost = [scale, cost = key.cost](Bytes bytes) { return scale(cost(bytes)); };
  result.groupCost = [scale, key](Bytes bytes, int32_t members) { return scale(key.coalescedCost(bytes, members)); };
  return result;
}

void commsched::separateMeasuredStarts(LoadedBlock &loaded) {
  Problem &problem = loaded.problem;
  std::vector<MeasuredStart> starts;
  for (NodeId id = 0; id < problem.size(); ++id) {
    Node &node = problem.nodes[id];
    if (node.mergeKey == kNone)
      continue;
    if (!isMeasured(mlir::cast<CollectiveOpInterface>(loaded.nodes[id])))
      continue;
    Ns modelled = problem.mergeKeys[node.mergeKey].cost(node.bytes);
    if (modelled > 0)
      starts.push_back({id, node.mergeKey, node.cost, modelled});
    else
      node.mergeKey = kNone;
  }
  llvm::stable_sort(starts, [](const MeasuredStart &a, const MeasuredStart &b) {
    return a.key != b.key ? a.key < b.key : isAbove(b, a);
  });
  for (size_t first = 0, last = 0; first < starts.size(); first = last) {
    while (last < starts.size() && starts[last].key == starts[first].key &&
           !isAbove(starts[last], starts[first], kSpreadPermille))
      ++last;
    const MeasuredStart &slowest = starts[last - 1];
    for (size_t index = first; index < last; ++index)
      problem.nodes[starts[index].node].mergeKey = static_cast<int32_t>(problem.mergeKeys.size());
    problem.mergeKeys.push_back(scaledKey(problem.mergeKeys[slowest.key], slowest.measured, slowest.modelled));
  }
}
