//===- Clock.cpp - Vector clocks of streams ---------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which operations have certainly happened before another one, or before what the host does now.
//
//===------------------------------------------------------------------------------------------===//

#include "Machine.h"
#include <algorithm>

namespace emulator {
Clock join(const Clock &a, const Clock &b) {
  if (!a || a == b)
    return b;
  if (!b)
    return a;
  auto result = std::make_shared<ClockEntries>();
  result->reserve(a->size() + b->size());
  auto i = a->begin(), j = b->begin();
  while (i != a->end() || j != b->end()) {
    if (j == b->end() || (i != a->end() && i->first < j->first))
      result->push_back(*i++);
    else if (i == a->end() || j->first < i->first)
      result->push_back(*j++);
    else {
      result->emplace_back(i->first, std::max(i->second, j->second));
      ++i, ++j;
    }
  }
  return result;
}

bool isIn(const Clock &clock, uint32_t stream, uint64_t number) {
  if (!clock)
    return false;
  auto at = std::lower_bound(clock->begin(), clock->end(), std::make_pair(stream, uint64_t(0)));
  return at != clock->end() && at->first == stream && at->second >= number;
}
} // namespace emulator
