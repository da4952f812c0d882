//===- SymmetricHeap.cpp - Offsets that all ranks agree on ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A best-fit heap over offsets.
//
//===------------------------------------------------------------------------------------------===//

#include "SymmetricHeap.h"
#include <algorithm>
#include <iterator>

using namespace commsched::runtime;

void SymmetricHeap::insertFree(int64_t offset, int64_t bytes) {
  free.emplace(offset, bytes);
  freeBySize.emplace(bytes, offset);
}

void SymmetricHeap::eraseFree(std::map<int64_t, int64_t>::iterator range) {
  freeBySize.erase({range->second, range->first});
  free.erase(range);
}

int64_t SymmetricHeap::take(int64_t bytes, int64_t wanted) {
  wanted = std::clamp(wanted, alignment, pageBytes);
  int64_t end = segments.empty() ? 0 : segments.back().offset + segments.back().bytes;
  if (bytes > INT64_MAX - 3 * pageBytes - leastSegmentBytes - end)
    return -1;
  bytes = (std::max<int64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  int64_t room = bytes + wanted - alignment;
  auto fit = freeBySize.lower_bound({room, 0});
  if (fit == freeBySize.end()) {
    segments.push_back({end, (std::max(room, leastSegmentBytes) + pageBytes - 1) / pageBytes * pageBytes, nullptr});
    insertFree(end, segments.back().bytes);
    fit = freeBySize.lower_bound({room, 0});
  }
  auto [size, begin] = *fit;
  eraseFree(free.find(begin));
  int64_t offset = (begin + wanted - 1) / wanted * wanted;
  if (offset > begin)
    insertFree(begin, offset - begin);
  if (int64_t rest = begin + size - offset - bytes; rest > 0)
    insertFree(offset + bytes, rest);
  taken.emplace(offset, bytes);
  return offset;
}

void SymmetricHeap::release(int64_t offset) {
  auto range = taken.find(offset);
  int64_t bytes = range->second;
  taken.erase(range);
  const Segment &segment = segmentOf(offset);
  auto next = free.find(offset + bytes);
  if (next != free.end() && next->first < segment.offset + segment.bytes) {
    bytes += next->second;
    eraseFree(next);
  }
  auto after = free.lower_bound(offset);
  if (after != free.begin())
    if (auto before = std::prev(after); before->first >= segment.offset && before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      eraseFree(before);
    }
  insertFree(offset, bytes);
}

SymmetricHeap::Segment &SymmetricHeap::segmentOf(int64_t offset) {
  auto after = std::upper_bound(segments.begin(), segments.end(), offset,
                                [](int64_t value, const Segment &segment) { return value < segment.offset; });
  return *std::prev(after);
}

char *SymmetricHeap::addressOf(int64_t offset) {
  Segment &segment = segmentOf(offset);
  return segment.base + (offset - segment.offset);
}
