//===- OrderTree.cpp - A balanced tree over an order ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Split and merge with pending additions that are pushed down, and searches that skip subtrees by their maxima, sums
// and tags.
//
//===------------------------------------------------------------------------------------------===//

#include "OrderTree.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

OrderTree::OrderTree(llvm::ArrayRef<NodeId> order, llvm::ArrayRef<OrderTreeItem> items)
    : links(items.size()), values(items.size()) {
  for (auto [index, item] : llvm::enumerate(items)) {
    Values &node = values[index];
    node.value[0] = node.most[0] = item.live;
    node.value[1] = node.most[1] = item.edge;
    node.work = node.workSum = item.work;
    node.tags = node.tagsBelow = item.tags;
  }
  root = build(order);
}

NodeId OrderTree::build(llvm::ArrayRef<NodeId> order) {
  if (order.empty())
    return kNone;
  size_t middle = order.size() / 2;
  NodeId node = order[middle];
  links[node].left = build(order.take_front(middle));
  links[node].right = build(order.drop_front(middle + 1));
  pull(node);
  return node;
}

/// Requires that no addition is pending.
void OrderTree::pull(NodeId id) {
  Links &link = links[id];
  Values &node = values[id];
  link.size = 1;
  node.most[0] = node.value[0];
  node.most[1] = node.value[1];
  node.workSum = node.work;
  node.tagsBelow = node.tags;
  for (NodeId child : {link.left, link.right}) {
    if (child == kNone)
      continue;
    links[child].parent = id;
    link.size += links[child].size;
    const Values &below = values[child];
    node.most[0] = std::max(node.most[0], below.most[0]);
    node.most[1] = std::max(node.most[1], below.most[1]);
    node.workSum += below.workSum;
    node.tagsBelow |= below.tagsBelow;
  }
}

void OrderTree::apply(NodeId id, Field field, Bytes bytes) {
  if (id == kNone)
    return;
  unsigned index = static_cast<unsigned>(field);
  values[id].value[index] += bytes;
  values[id].most[index] += bytes;
  values[id].pending[index] += bytes;
}

void OrderTree::push(NodeId id) {
  Values &node = values[id];
  for (Field field : {Field::Live, Field::Edge}) {
    Bytes &pending = node.pending[static_cast<unsigned>(field)];
    if (pending == 0)
      continue;
    apply(links[id].left, field, pending);
    apply(links[id].right, field, pending);
    pending = 0;
  }
}

uint32_t OrderTree::random(uint32_t bound) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<uint32_t>((state >> 32) * bound >> 32);
}

void OrderTree::split(NodeId node, int32_t count, NodeId &left, NodeId &right) {
  if (node == kNone) {
    left = right = kNone;
    return;
  }
  push(node);
  NodeId below;
  if (int32_t before = sizeOf(links[node].left); count <= before) {
    split(links[node].left, count, left, below);
    links[node].left = below;
    right = node;
  } else {
    split(links[node].right, count - before - 1, below, right);
    links[node].right = below;
    left = node;
  }
  pull(node);
}

NodeId OrderTree::merge(NodeId left, NodeId right) {
  if (left == kNone || right == kNone)
    return left == kNone ? right : left;
  // Each node is as likely to be the root of its subtree as any other, so that the depth stays logarithmic.
  uint32_t leftSize = sizeOf(left);
  if (random(leftSize + sizeOf(right)) < leftSize) {
    push(left);
    NodeId below = merge(links[left].right, right);
    links[left].right = below;
    pull(left);
    return left;
  }
  push(right);
  NodeId below = merge(left, links[right].left);
  links[right].left = below;
  pull(right);
  return right;
}

void OrderTree::rotate(int32_t first, int32_t middle, int32_t last) {
  if (first == middle || middle == last)
    return;
  NodeId before, front, back, after, rest;
  split(root, first, before, rest);
  split(rest, middle - first, front, rest);
  split(rest, last - middle, back, after);
  root = merge(merge(before, back), merge(front, after));
  links[root].parent = kNone;
}

int32_t OrderTree::position(NodeId node) const {
  int32_t position = sizeOf(links[node].left);
  for (NodeId parent = links[node].parent; parent != kNone; node = parent, parent = links[node].parent)
    if (links[parent].right == node)
      position += sizeOf(links[parent].left) + 1;
  return position;
}

NodeId OrderTree::at(int32_t position) const {
  NodeId node = root;
  while (true) {
    int32_t before = sizeOf(links[node].left);
    if (position == before)
      return node;
    if (position < before) {
      node = links[node].left;
    } else {
      position -= before + 1;
      node = links[node].right;
    }
  }
}

Order OrderTree::order() const {
  Order order;
  order.reserve(links.size());
  llvm::SmallVector<NodeId, 64> path;
  for (NodeId node = root; node != kNone || !path.empty();) {
    for (; node != kNone; node = links[node].left)
      path.push_back(node);
    node = path.pop_back_val();
    order.push_back(node);
    node = links[node].right;
  }
  return order;
}

Bytes OrderTree::valueAt(int32_t position, Field field) const {
  unsigned index = static_cast<unsigned>(field);
  Bytes pending = 0;
  NodeId node = root;
  while (true) {
    int32_t before = sizeOf(links[node].left);
    if (position == before)
      return values[node].value[index] + pending;
    pending += values[node].pending[index];
    if (position < before) {
      node = links[node].left;
    } else {
      position -= before + 1;
      node = links[node].right;
    }
  }
}

void OrderTree::add(NodeId id, int32_t offset, int32_t first, int32_t last, Field field, Bytes bytes) {
  if (id == kNone || bytes == 0 || last <= offset || offset + links[id].size <= first)
    return;
  if (first <= offset && offset + links[id].size <= last)
    return apply(id, field, bytes);
  push(id);
  int32_t own = offset + sizeOf(links[id].left);
  if (first <= own && own < last)
    values[id].value[static_cast<unsigned>(field)] += bytes;
  add(links[id].left, offset, first, last, field, bytes);
  add(links[id].right, own + 1, first, last, field, bytes);
  pull(id);
}

Bytes OrderTree::maximum(NodeId id, int32_t offset, int32_t first, int32_t last) const {
  const Values &node = values[id];
  const Links &link = links[id];
  if (first <= offset && offset + link.size <= last)
    return node.most[0];
  int32_t own = offset + sizeOf(link.left);
  Bytes most = INT64_MIN;
  if (first <= own && own < last)
    most = node.value[0];
  if (link.left != kNone && first < own)
    most = std::max(most, maximum(link.left, offset, first, last) + node.pending[0]);
  if (link.right != kNone && last > own + 1)
    most = std::max(most, maximum(link.right, own + 1, first, last) + node.pending[0]);
  return most;
}

int64_t OrderTree::prefixWork(int32_t position) const {
  int64_t sum = 0;
  for (NodeId node = root; node != kNone;) {
    int32_t before = sizeOf(links[node].left);
    if (position <= before) {
      node = links[node].left;
      continue;
    }
    sum += values[node].work + (links[node].left == kNone ? 0 : values[links[node].left].workSum);
    position -= before + 1;
    node = links[node].right;
  }
  return sum;
}

/// The largest number of leading nodes whose work adds up to no more than `amount`.
int32_t OrderTree::longestPrefixWithin(int64_t amount) const {
  int32_t count = 0;
  for (NodeId node = root; node != kNone;) {
    NodeId left = links[node].left;
    int64_t before = left == kNone ? 0 : values[left].workSum;
    if (before > amount) {
      node = left;
      continue;
    }
    amount -= before;
    count += sizeOf(left);
    if (values[node].work > amount)
      return count;
    amount -= values[node].work;
    ++count;
    node = links[node].right;
  }
  return count;
}

int32_t OrderTree::firstWithWork(int32_t first, int32_t last, int64_t amount) const {
  int32_t position = longestPrefixWithin(prefixWork(first) + amount);
  position = std::max(position, first);
  return position < last ? position : kNone;
}

int32_t OrderTree::lastWithWork(int32_t first, int32_t last, int64_t amount) const {
  int64_t before = prefixWork(last) - amount - 1;
  if (before < 0)
    return kNone;
  int32_t position = std::min(longestPrefixWithin(before), last - 1);
  return position >= first ? position : kNone;
}

/// A search for the nearest position, from the left or from the right, that is above a limit or bears a tag.
struct OrderTree::Query {
  int32_t first, last;
  Bytes liveLimit, edgeLimit;
  uint8_t tags;
  bool fromLeft;

  bool hit(Bytes live, Bytes edge, uint8_t nodeTags) const {
    return tags != 0 ? (nodeTags & tags) != 0 : live > liveLimit || edge > edgeLimit;
  }
};

int32_t OrderTree::search(const Query &query, NodeId id, int32_t offset, Bytes live, Bytes edge) const {
  if (id == kNone)
    return kNone;
  const Values &node = values[id];
  const Links &link = links[id];
  if (query.last <= offset || offset + link.size <= query.first ||
      !query.hit(node.most[0] + live, node.most[1] + edge, node.tagsBelow))
    return kNone;
  int32_t own = offset + sizeOf(link.left);
  auto below = [&](bool left) {
    return search(query, left ? link.left : link.right, left ? offset : own + 1, live + node.pending[0],
                  edge + node.pending[1]);
  };
  if (int32_t found = below(query.fromLeft); found != kNone)
    return found;
  if (query.first <= own && own < query.last && query.hit(node.value[0] + live, node.value[1] + edge, node.tags))
    return own;
  return below(!query.fromLeft);
}

int32_t OrderTree::firstAbove(int32_t first, int32_t last, Bytes liveLimit, Bytes edgeLimit) const {
  return search({first, last, liveLimit, edgeLimit, 0, true}, root, 0, 0, 0);
}
int32_t OrderTree::lastAbove(int32_t first, int32_t last, Bytes liveLimit, Bytes edgeLimit) const {
  return search({first, last, liveLimit, edgeLimit, 0, false}, root, 0, 0, 0);
}
int32_t OrderTree::firstTagged(int32_t first, int32_t last, uint8_t tags) const {
  return search({first, last, 0, 0, tags, true}, root, 0, 0, 0);
}
int32_t OrderTree::lastTagged(int32_t first, int32_t last, uint8_t tags) const {
  return search({first, last, 0, 0, tags, false}, root, 0, 0, 0);
}
