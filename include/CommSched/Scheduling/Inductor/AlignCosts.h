//===- AlignCosts.h - Medians of the costs that ranks measured --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Ranks that measure costs get different numbers, but all ranks have to make the same decisions. The median, in
// integers, is the same on every rank.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_INDUCTOR_ALIGNCOSTS_H
#define COMMSCHED_SCHEDULING_INDUCTOR_ALIGNCOSTS_H

#include "CommSched/Support/Units.h"
#include "llvm/ADT/ArrayRef.h"
#include <vector>

namespace commsched {

/// Returns, indexed by column, the median of the column; the lower one of two for an even number of rows. Rows are
/// indexed by rank and have equal lengths. Empty without rows. O(rows * columns).
std::vector<Ns> lowerMedians(llvm::ArrayRef<std::vector<Ns>> byRank);

/// The cost of one operation on all ranks, ns.
struct AlignedCost {
  Ns median = 0, least = 0, most = 0;

  bool isEqualEverywhere() const { return least == most; }
  /// Whether the ranks are more than a tenth of the median apart.
  bool isSkewed() const { return most - least > median / 10; }
};

/// Returns, indexed by column, the lower median and the extremes of the column, as lowerMedians(). Costs are not
/// negative. O(rows * columns).
std::vector<AlignedCost> alignCosts(llvm::ArrayRef<std::vector<Ns>> byRank);

/// The operations that ranks align.
enum class AlignedOperations : uint8_t {
  /// Every operation that has a cost, collectives included.
  All,
  /// Those on the compute lane.
  Compute,
  /// Matrix products and similar operations, as PyTorch Inductor does.
  Products,
};

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_ALIGNCOSTS_H
