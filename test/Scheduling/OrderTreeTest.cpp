//===- OrderTreeTest.cpp - Tests of the order that can be cut and asked -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "Inductor/OrderTree.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::test;

namespace {

/// The same operations on plain vectors.
struct PlainOrder {
  Order order;
  std::vector<OrderTreeItem> items;

  const OrderTreeItem &at(int32_t position) const { return items[order[position]]; }
  template <typename Hit> int32_t search(int32_t first, int32_t last, bool fromLeft, Hit hit) const {
    for (int32_t step = 0; step < last - first; ++step) {
      int32_t position = fromLeft ? first + step : last - 1 - step;
      if (hit(position))
        return position;
    }
    return kNone;
  }
  int64_t work(int32_t first, int32_t last) const {
    int64_t sum = 0;
    for (; first < last; ++first)
      sum += at(first).work;
    return sum;
  }
};

/// Asks everything about one random range.
void compare(const OrderTree &tree, const PlainOrder &plain, Random &random) {
  int32_t size = tree.size();
  int32_t first = static_cast<int32_t>(random.below(size));
  int32_t last = static_cast<int32_t>(random.between(first + 1, size));
  int32_t probe = static_cast<int32_t>(random.below(size));
  EXPECT_EQ(tree.at(probe), plain.order[probe]);
  EXPECT_EQ(tree.position(plain.order[probe]), probe);
  EXPECT_EQ(tree.live(probe), plain.at(probe).live);
  EXPECT_EQ(tree.edge(probe), plain.at(probe).edge);
  Bytes most = INT64_MIN;
  for (int32_t at = first; at < last; ++at)
    most = std::max(most, plain.at(at).live);
  EXPECT_EQ(tree.maxLive(first, last), most);
  EXPECT_EQ(tree.work(first, last), plain.work(first, last));
  Bytes live = random.between(0, 120), edge = random.between(0, 120);
  auto above = [&](int32_t at) { return plain.at(at).live > live || plain.at(at).edge > edge; };
  EXPECT_EQ(tree.firstAbove(first, last, live, edge), plain.search(first, last, true, above));
  EXPECT_EQ(tree.lastAbove(first, last, live, edge), plain.search(first, last, false, above));
  uint8_t tags = static_cast<uint8_t>(random.between(1, 7));
  auto tagged = [&](int32_t at) { return (plain.at(at).tags & tags) != 0; };
  EXPECT_EQ(tree.firstTagged(first, last, tags), plain.search(first, last, true, tagged));
  EXPECT_EQ(tree.lastTagged(first, last, tags), plain.search(first, last, false, tagged));
  int64_t amount = random.between(0, 40);
  EXPECT_EQ(tree.firstWithWork(first, last, amount),
            plain.search(first, last, true, [&](int32_t at) { return plain.work(first, at + 1) > amount; }));
  EXPECT_EQ(tree.lastWithWork(first, last, amount),
            plain.search(first, last, false, [&](int32_t at) { return plain.work(at, last) > amount; }));
}

// Every answer is that of plain vectors, over random sequences of additions and swaps of segments.
TEST(OrderTree, AgreesWithPlainVectors) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    int32_t size = static_cast<int32_t>(random.between(1, 60));
    PlainOrder plain;
    for (NodeId id = 0; id < size; ++id) {
      plain.order.push_back(id);
      plain.items.push_back({random.between(0, 100), random.between(0, 100), random.below(3) * random.below(10),
                             static_cast<uint8_t>(random.percent(30) ? 1 << random.below(3) : 0)});
    }
    OrderTree tree(plain.order, plain.items);
    for (int step = 0; step < 60; ++step) {
      int32_t cuts[3];
      for (int32_t &cut : cuts)
        cut = static_cast<int32_t>(random.between(0, size));
      std::sort(std::begin(cuts), std::end(cuts));
      if (random.percent(50)) {
        tree.rotate(cuts[0], cuts[1], cuts[2]);
        std::rotate(plain.order.begin() + cuts[0], plain.order.begin() + cuts[1], plain.order.begin() + cuts[2]);
      } else {
        Bytes bytes = random.between(-20, 20);
        bool live = random.percent(50);
        live ? tree.addLive(cuts[0], cuts[2], bytes) : tree.addEdge(cuts[0], cuts[2], bytes);
        for (int32_t at = cuts[0]; at < cuts[2]; ++at)
          (live ? plain.items[plain.order[at]].live : plain.items[plain.order[at]].edge) += bytes;
      }
      EXPECT_EQ(tree.order(), plain.order);
      compare(tree, plain, random);
      if (HasFailure())
        return;
    }
  }
}

} // namespace
