//===- AlignCosts.h - One cost out of several ranks' ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Ranks that measure costs measure different ones. The median, in integers, is the same on every rank.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_INDUCTOR_ALIGNCOSTS_H
#define COMMSCHED_SCHEDULING_INDUCTOR_ALIGNCOSTS_H

#include "CommSched/Support/Units.h"
#include "llvm/ADT/ArrayRef.h"
#include <vector>

namespace commsched {

/// The median of each column; of an even number of rows, the lower one. All rows have the same length. Empty without
/// rows. O(rows x columns).
std::vector<Ns> lowerMedians(llvm::ArrayRef<std::vector<Ns>> byRank);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_ALIGNCOSTS_H
