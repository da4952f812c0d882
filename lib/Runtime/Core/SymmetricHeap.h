//===- SymmetricHeap.h - Offsets that all ranks agree on --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Which offset a symmetric buffer gets depends on nothing but the sequence of allocations and releases before it. Ranks
// that run one program make the same sequence, so they agree without talking.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_SYMMETRICHEAP_H
#define COMMSCHED_LIB_RUNTIME_CORE_SYMMETRICHEAP_H

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace commsched::runtime {
/// Memory in segments, at consecutive offsets. No range crosses segments.
class SymmetricHeap {
public:
  struct Segment {
    int64_t offset, bytes;
    char *base; ///< null until the caller sets it
  };
  static constexpr int64_t alignment = 256;
  static constexpr int64_t pageBytes = 4096; ///< segments begin at multiples of it, and no range can want more
  static constexpr int64_t leastSegmentBytes = int64_t(16) << 20;

  /// An offset for `bytes`, a multiple of `wanted` (a power of two, at most a page): the smallest free range that is
  /// sure to fit, the first of equals; a new segment where none is. Logarithmic. Negative if the sizes overflow.
  int64_t take(int64_t bytes, int64_t wanted = alignment);
  /// Frees an offset that take() returned. Logarithmic.
  void release(int64_t offset);

  /// The segment that holds the offset. Logarithmic.
  Segment &segmentOf(int64_t offset);
  char *addressOf(int64_t offset);
  std::vector<Segment> &getSegments() { return segments; }

private:
  void insertFree(int64_t offset, int64_t bytes);
  void eraseFree(std::map<int64_t, int64_t>::iterator range);

  std::vector<Segment> segments;
  std::map<int64_t, int64_t> taken, free;           ///< bytes by offset
  std::set<std::pair<int64_t, int64_t>> freeBySize; ///< (bytes, offset)
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_SYMMETRICHEAP_H
