//===- MemoryTree.cpp - Range add and range maximum over positions ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A segment tree with additions that stay at the highest node whose range they cover, so nothing is pushed down.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Memory/MemoryTree.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cassert>
#include <utility>

using namespace commsched;

MemoryTree::MemoryTree(int32_t size) : MemoryTree(std::vector<Bytes>(size, 0)) {}

MemoryTree::MemoryTree(llvm::ArrayRef<Bytes> values) : count(static_cast<int32_t>(values.size())) {
  while (leaves < count)
    leaves *= 2;
  maxima.assign(2 * leaves, kEmpty);
  added.assign(leaves, 0);
  std::copy(values.begin(), values.end(), maxima.begin() + leaves);
  for (int32_t node = leaves - 1; node > 0; --node)
    pull(node);
}

bool MemoryTree::pull(uint32_t node) {
  Bytes before = maxima[node];
  maxima[node] = std::max(maxima[2 * node], maxima[2 * node + 1]) + added[node];
  return maxima[node] != before;
}

void MemoryTree::add(int32_t first, int32_t last, Bytes bytes) {
  if (first >= last || bytes == 0)
    return;
  assert(first >= 0 && last <= count && "positions out of range");
  const auto leaves = static_cast<uint32_t>(this->leaves);
  auto apply = [&](uint32_t node) {
    maxima[node] += bytes;
    if (node < leaves)
      added[node] += bytes;
  };
  // One climb: [l, r) is what remains to be covered at this level, and `low` and `high` are the ancestors of the border
  // leaves. Only those have children that changed without them.
  uint32_t l = first + leaves, r = last + leaves, low = l, high = r - 1;
  while (l < r) {
    if (l & 1)
      apply(l++);
    if (r & 1)
      apply(--r);
    l /= 2, r /= 2, low /= 2, high /= 2;
    if (low > 0)
      pull(low);
    if (high != low)
      pull(high);
  }
  // All is covered, so the climb ends where the maxima do not change.
  for (bool changed = true; changed && low > 1;) {
    low /= 2, high /= 2;
    changed = pull(low);
    if (high != low)
      changed |= pull(high);
  }
}

Bytes MemoryTree::max(int32_t first, int32_t last) const {
  if (first >= last)
    return kEmpty;
  assert(first >= 0 && last <= count && "positions out of range");
  // The best of the nodes that were taken on either side, with the additions of the ancestors passed so far.
  Bytes bestLeft = kEmpty, bestRight = kEmpty;
  int32_t l = first + leaves, r = last + leaves;
  while (l < r) {
    if (l & 1)
      bestLeft = std::max(bestLeft, maxima[l++]);
    if (r & 1)
      bestRight = std::max(bestRight, maxima[--r]);
    l /= 2, r /= 2;
    // l - 1 and r are the ancestors of what was taken so far.
    if (bestLeft != kEmpty)
      bestLeft += added[l - 1];
    if (bestRight != kEmpty)
      bestRight += added[r];
  }
  for (int32_t up = (l - 1) / 2; bestLeft != kEmpty && up > 0; up /= 2)
    bestLeft += added[up];
  for (int32_t up = r / 2; bestRight != kEmpty && up > 0; up /= 2)
    bestRight += added[up];
  return std::max(bestLeft, bestRight);
}

Bytes MemoryTree::value(int32_t position) const {
  int32_t node = position + leaves;
  Bytes result = maxima[node];
  while (node /= 2)
    result += added[node];
  return result;
}

int32_t MemoryTree::argmax() const {
  if (count == 0)
    return -1;
  int32_t node = 1;
  while (node < leaves)
    node = maxima[2 * node] >= maxima[2 * node + 1] ? 2 * node : 2 * node + 1;
  return node - leaves;
}

int32_t MemoryTree::descend(int32_t first, int32_t last, Bytes limit, bool fromLeft) const {
  if (first >= last)
    return -1;
  assert(first >= 0 && last <= count && "positions out of range");
  // The nodes that make up the range, from left to right.
  llvm::SmallVector<int32_t, 64> fromLeftSide, fromRightSide;
  for (int32_t l = first + leaves, r = last + leaves; l < r; l /= 2, r /= 2) {
    if (l & 1)
      fromLeftSide.push_back(l++);
    if (r & 1)
      fromRightSide.push_back(--r);
  }
  fromLeftSide.append(fromRightSide.rbegin(), fromRightSide.rend());
  if (!fromLeft)
    std::reverse(fromLeftSide.begin(), fromLeftSide.end());
  for (int32_t node : fromLeftSide) {
    Bytes above = 0;
    for (int32_t up = node / 2; up > 0; up /= 2)
      above += added[up];
    if (maxima[node] + above <= limit)
      continue;
    while (node < leaves) {
      above += added[node];
      int32_t near = 2 * node + (fromLeft ? 0 : 1);
      node = maxima[near] + above > limit ? near : near ^ 1;
    }
    return node - leaves;
  }
  return -1;
}

int32_t MemoryTree::firstAbove(int32_t first, int32_t last, Bytes limit) const {
  return descend(first, last, limit, /*fromLeft=*/true);
}

int32_t MemoryTree::lastAbove(int32_t first, int32_t last, Bytes limit) const {
  return descend(first, last, limit, /*fromLeft=*/false);
}

llvm::MutableArrayRef<Bytes> MemoryTree::open(int32_t first, int32_t last) {
  assert(0 <= first && first < last && last <= count && "positions out of range");
  // The ancestors of the range are a range on each level, each half as long as the one below. From the root on, they
  // hand what they add down to their children.
  const int32_t low = first + leaves, high = last - 1 + leaves;
  for (int32_t shift = depth(); shift > 0; --shift)
    for (int32_t node = low >> shift; node <= high >> shift; ++node) {
      const Bytes more = std::exchange(added[node], 0);
      if (more == 0)
        continue;
      for (int32_t child : {2 * node, 2 * node + 1}) {
        maxima[child] += more;
        if (child < leaves)
          added[child] += more;
      }
    }
  return llvm::MutableArrayRef<Bytes>(maxima).slice(low, last - first);
}

void MemoryTree::refresh(int32_t first, int32_t last) {
  const int32_t low = first + leaves, high = last - 1 + leaves;
  for (int32_t shift = 1; shift <= depth(); ++shift)
    for (int32_t node = low >> shift; node <= high >> shift; ++node)
      maxima[node] = std::max(maxima[2 * node], maxima[2 * node + 1]);
}

void MemoryTree::assign(int32_t first, llvm::ArrayRef<Bytes> values) {
  if (values.empty())
    return;
  const int32_t last = first + static_cast<int32_t>(values.size());
  llvm::copy(values, open(first, last).begin());
  refresh(first, last);
}

std::vector<Bytes> MemoryTree::values() const {
  std::vector<Bytes> sums(maxima.size(), 0);
  for (int32_t node = 1; node < leaves; ++node)
    sums[2 * node] = sums[2 * node + 1] = sums[node] + added[node];
  std::vector<Bytes> result(count);
  for (int32_t position = 0; position < count; ++position)
    result[position] = maxima[leaves + position] + sums[leaves + position];
  return result;
}
