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

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_ALIGNCOSTS_H
