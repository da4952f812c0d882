//===- HeapSweep.cpp - A heap played in time --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A simulated best-fit heap, as XLA's heap simulator has it.
//
//===------------------------------------------------------------------------------------------===//

#include "PlanInput.h"
#include "llvm/ADT/STLExtras.h"
#include <map>
#include <set>

using namespace commsched;

namespace {

/// A heap played in time: each buffer takes the tightest hole, or grows the arena.
class HeapSweep {
public:
  HeapSweep(const PlanInput &input, llvm::ArrayRef<int32_t> ids) : input(input), ids(ids) {}

  Bytes run(std::vector<Bytes> &offsets) {
    std::vector<int32_t> byEnd(ids);
    llvm::stable_sort(byEnd, [&](int32_t a, int32_t b) { return input.intervals[a].end < input.intervals[b].end; });
    size_t nextEnd = 0;
    for (int32_t id : ids) {
      for (; input.intervals[byEnd[nextEnd]].end < input.intervals[id].begin; ++nextEnd)
        release(offsets[byEnd[nextEnd]], input.sizes[byEnd[nextEnd]]);
      offsets[id] = take(input.sizes[id]);
    }
    return top;
  }

private:
  Bytes take(Bytes size) {
    auto hole = bySize.lower_bound({size, 0});
    if (hole == bySize.end()) {
      // Grow, from the hole at the end where there is one.
      Bytes offset = top;
      if (!holes.empty() && holes.rbegin()->first + holes.rbegin()->second == top) {
        offset = holes.rbegin()->first;
        eraseHole(std::prev(holes.end()));
      }
      top = offset + size;
      return offset;
    }
    auto [length, offset] = *hole;
    eraseHole(holes.find(offset));
    if (length > size)
      addHole(offset + size, length - size);
    return offset;
  }

  void release(Bytes offset, Bytes size) {
    auto next = holes.lower_bound(offset);
    if (next != holes.end() && next->first == offset + size) {
      size += next->second;
      next = eraseHole(next);
    }
    if (next != holes.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        size += before->second;
        eraseHole(before);
      }
    }
    addHole(offset, size);
  }

  void addHole(Bytes offset, Bytes size) {
    holes.emplace(offset, size);
    bySize.emplace(size, offset);
  }

  std::map<Bytes, Bytes>::iterator eraseHole(std::map<Bytes, Bytes>::iterator hole) {
    bySize.erase({hole->second, hole->first});
    return holes.erase(hole);
  }

  const PlanInput &input;
  llvm::ArrayRef<int32_t> ids;
  std::map<Bytes, Bytes> holes;
  std::set<std::pair<Bytes, Bytes>> bySize;
  Bytes top = 0;
};

} // namespace

Bytes commsched::sweepHeap(const PlanInput &input, llvm::ArrayRef<int32_t> ids, std::vector<Bytes> &offsets) {
  return HeapSweep(input, ids).run(offsets);
}
