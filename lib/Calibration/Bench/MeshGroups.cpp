//===- MeshGroups.cpp - The groups of a job that are measured at the same time ----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Ranks are node-major, so the first rank of a group and the place of a rank in it give the rank.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/MeshGroups.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <numeric>

using namespace commsched;

RankGroups commsched::groupsOfShape(GroupShape shape, int64_t ranks, int64_t ranksPerNode) {
  int64_t node = std::min(ranksPerNode, ranks), local = shape.ranksPerNode;
  if (local * shape.nodes != shape.ranks || ranks % (node * shape.nodes) != 0 || node % local != 0) {
    std::vector<int64_t> first(shape.ranks);
    std::iota(first.begin(), first.end(), 0);
    return {first};
  }
  RankGroups groups;
  for (int64_t firstNode = 0; firstNode < ranks / node; firstNode += shape.nodes)
    for (int64_t firstLocal = 0; firstLocal < node; firstLocal += local) {
      groups.emplace_back();
      for (int64_t place = 0; place < shape.ranks; ++place)
        groups.back().push_back((firstNode + place / local) * node + firstLocal + place % local);
    }
  return groups;
}

RankGroups commsched::groupsAcross(llvm::ArrayRef<std::vector<int64_t>> groups) {
  if (groups.size() < 2)
    return {};
  RankGroups across(groups.front().size());
  for (const std::vector<int64_t> &group : groups)
    for (auto [place, rank] : llvm::enumerate(group))
      across[place].push_back(rank);
  return across;
}
