//===- Compared.h - One value per rank, compared among all ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What ranks combine to find out whether they agree: whatever their number, two values are enough to say who does not.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_COMPARED_H
#define COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_COMPARED_H

#include <cstdint>

namespace commsched::runtime {
/// The result of comparing one value per rank: the value of the lowest rank, and of the first rank whose value differs.
template <typename T> struct Compared {
  T first = {}, other = {};
  int32_t firstRank = -1, otherRank = -1; ///< otherRank is -1 if all values are equal
  Compared() = default;
  Compared(const T &value, int32_t rank) : first(value), firstRank(rank) {}
  /// Appends the ranks of `higher` after those of this object.
  template <typename Same> void add(const Compared &higher, Same same) {
    if (otherRank >= 0)
      return;
    bool isAlike = same(first, higher.first);
    other = isAlike ? higher.other : higher.first;
    otherRank = isAlike ? higher.otherRank : higher.firstRank;
  }
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_COMPARED_H
