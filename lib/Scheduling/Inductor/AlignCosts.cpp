//===- AlignCosts.cpp - Medians of the costs that ranks measured ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One selection for each column, and its extremes.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/AlignCosts.h"
#include <algorithm>

using namespace commsched;

std::vector<Ns> commsched::lowerMedians(llvm::ArrayRef<std::vector<Ns>> byRank) {
  std::vector<Ns> medians, column(byRank.size());
  if (byRank.empty())
    return medians;
  for (size_t index = 0; index < byRank.front().size(); ++index) {
    for (size_t rank = 0; rank < byRank.size(); ++rank)
      column[rank] = byRank[rank][index];
    auto middle = column.begin() + (column.size() - 1) / 2;
    std::nth_element(column.begin(), middle, column.end());
    medians.push_back(*middle);
  }
  return medians;
}

std::vector<AlignedCost> commsched::alignCosts(llvm::ArrayRef<std::vector<Ns>> byRank) {
  std::vector<AlignedCost> costs;
  for (Ns median : lowerMedians(byRank))
    costs.push_back({median, median, median});
  for (const std::vector<Ns> &row : byRank)
    for (size_t index = 0; index < row.size(); ++index) {
      costs[index].least = std::min(costs[index].least, row[index]);
      costs[index].most = std::max(costs[index].most, row[index]);
    }
  return costs;
}
