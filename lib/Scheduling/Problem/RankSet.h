//===- RankSet.h - A set of small integers with fast successor queries ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The ready lists of the list scheduler: members are ranks in a fixed priority order, and what is asked for is "the
// smallest" and "the next after this one". A tree of 64-bit words answers in one step for every factor of 64.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_PROBLEM_RANKSET_H
#define COMMSCHED_LIB_SCHEDULING_PROBLEM_RANKSET_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/bit.h"
#include <cstdint>
#include <vector>

namespace commsched {

/// A subset of 0..size-1.
class RankSet {
public:
  explicit RankSet(int32_t size = 0) { reset(size); }

  /// Makes it the empty subset of 0..size-1. O(size / 64).
  void reset(int32_t size) {
    levels.clear();
    int32_t words = size;
    do {
      words = (words + 63) / 64;
      levels.emplace_back(words > 0 ? words : 1, 0);
    } while (words > 1);
  }

  bool empty() const { return levels.back().front() == 0; }

  bool contains(int32_t rank) const { return levels.front()[rank / 64] >> (rank % 64) & 1; }

  void insert(int32_t rank) {
    for (std::vector<uint64_t> &words : levels) {
      words[rank / 64] |= uint64_t(1) << (rank % 64);
      rank /= 64;
    }
  }

  void erase(int32_t rank) {
    for (std::vector<uint64_t> &words : levels) {
      words[rank / 64] &= ~(uint64_t(1) << (rank % 64));
      if (words[rank / 64] != 0)
        return;
      rank /= 64;
    }
  }

  /// The smallest member that is at least `rank`, or -1.
  int32_t next(int32_t rank) const {
    for (size_t level = 0; level < levels.size(); ++level) {
      size_t word = rank / 64;
      if (word >= levels[level].size())
        return -1;
      uint64_t rest = levels[level][word] >> (rank % 64) << (rank % 64);
      if (rest != 0)
        return descend(level, static_cast<int32_t>(word * 64 + llvm::countr_zero(rest)));
      rank = static_cast<int32_t>(word) + 1;
    }
    return -1;
  }

  /// The smallest member, or -1.
  int32_t first() const { return next(0); }

private:
  /// The smallest member below bit `index` of a level.
  int32_t descend(size_t level, int32_t index) const {
    while (level-- > 0)
      index = index * 64 + static_cast<int32_t>(llvm::countr_zero(levels[level][index]));
    return index;
  }

  /// levels[0] has one bit a member, each further level one bit for each word of the one below that is not 0.
  llvm::SmallVector<std::vector<uint64_t>, 4> levels;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_PROBLEM_RANKSET_H
