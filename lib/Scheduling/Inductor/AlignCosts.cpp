//===- AlignCosts.cpp - Medians of the costs that ranks measured ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One selection for each column.
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
