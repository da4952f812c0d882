//===- OrderTree.cpp - An order that can be cut, rejoined and asked ---------------------------===//

#include "CommSched/Scheduling/OrderTree.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

OrderTree::OrderTree(llvm::ArrayRef<NodeId> order, llvm::ArrayRef<OrderTreeItem> items) : nodes(items.size()) {
  for (auto [index, item] : llvm::enumerate(items)) {
    TreeNode &node = nodes[index];
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
  nodes[node].left = build(order.take_front(middle));
  nodes[node].right = build(order.drop_front(middle + 1));
  pull(node);
  return node;
}

/// Only ever called with nothing pending.
void OrderTree::pull(NodeId id) {
  TreeNode &node = nodes[id];
  node.size = 1;
  node.most[0] = node.value[0];
  node.most[1] = node.value[1];
  node.workSum = node.work;
  node.tagsBelow = node.tags;
  for (NodeId child : {node.left, node.right}) {
    if (child == kNone)
      continue;
    TreeNode &below = nodes[child];
    below.parent = id;
    node.size += below.size;
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
  nodes[id].value[index] += bytes;
  nodes[id].most[index] += bytes;
  nodes[id].pending[index] += bytes;
}

void OrderTree::push(NodeId id) {
  TreeNode &node = nodes[id];
  for (Field field : {Field::Live, Field::Edge}) {
    Bytes &pending = node.pending[static_cast<unsigned>(field)];
    if (pending == 0)
      continue;
    apply(node.left, field, pending);
    apply(node.right, field, pending);
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
  if (int32_t before = sizeOf(nodes[node].left); count <= before) {
    split(nodes[node].left, count, left, below);
    nodes[node].left = below;
    right = node;
  } else {
    split(nodes[node].right, count - before - 1, below, right);
    nodes[node].right = below;
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
    NodeId below = merge(nodes[left].right, right);
    nodes[left].right = below;
    pull(left);
    return left;
  }
  push(right);
  NodeId below = merge(left, nodes[right].left);
  nodes[right].left = below;
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
  nodes[root].parent = kNone;
}

int32_t OrderTree::position(NodeId node) const {
  int32_t position = sizeOf(nodes[node].left);
  for (NodeId parent = nodes[node].parent; parent != kNone; node = parent, parent = nodes[node].parent)
    if (nodes[parent].right == node)
      position += sizeOf(nodes[parent].left) + 1;
  return position;
}

NodeId OrderTree::at(int32_t position) const {
  NodeId node = root;
  while (true) {
    int32_t before = sizeOf(nodes[node].left);
    if (position == before)
      return node;
    if (position < before) {
      node = nodes[node].left;
    } else {
      position -= before + 1;
      node = nodes[node].right;
    }
  }
}

Order OrderTree::order() const {
  Order order;
  order.reserve(nodes.size());
  llvm::SmallVector<NodeId, 64> path;
  for (NodeId node = root; node != kNone || !path.empty();) {
    for (; node != kNone; node = nodes[node].left)
      path.push_back(node);
    node = path.pop_back_val();
    order.push_back(node);
    node = nodes[node].right;
  }
  return order;
}

Bytes OrderTree::valueAt(int32_t position, Field field) const {
  unsigned index = static_cast<unsigned>(field);
  Bytes pending = 0;
  NodeId node = root;
  while (true) {
    int32_t before = sizeOf(nodes[node].left);
    if (position == before)
      return nodes[node].value[index] + pending;
    pending += nodes[node].pending[index];
    if (position < before) {
      node = nodes[node].left;
    } else {
      position -= before + 1;
      node = nodes[node].right;
    }
  }
}

void OrderTree::add(NodeId id, int32_t offset, int32_t first, int32_t last, Field field, Bytes bytes) {
  if (id == kNone || bytes == 0 || last <= offset || offset + nodes[id].size <= first)
    return;
  if (first <= offset && offset + nodes[id].size <= last)
    return apply(id, field, bytes);
  push(id);
  int32_t own = offset + sizeOf(nodes[id].left);
  if (first <= own && own < last)
    nodes[id].value[static_cast<unsigned>(field)] += bytes;
  add(nodes[id].left, offset, first, last, field, bytes);
  add(nodes[id].right, own + 1, first, last, field, bytes);
  pull(id);
}

Bytes OrderTree::maximum(NodeId id, int32_t offset, int32_t first, int32_t last) const {
  const TreeNode &node = nodes[id];
  if (first <= offset && offset + node.size <= last)
    return node.most[0];
  int32_t own = offset + sizeOf(node.left);
  Bytes most = INT64_MIN;
  if (first <= own && own < last)
    most = node.value[0];
  if (node.left != kNone && first < own)
    most = std::max(most, maximum(node.left, offset, first, last) + node.pending[0]);
  if (node.right != kNone && last > own + 1)
    most = std::max(most, maximum(node.right, own + 1, first, last) + node.pending[0]);
  return most;
}

int64_t OrderTree::prefixWork(int32_t position) const {
  int64_t sum = 0;
  for (NodeId node = root; node != kNone;) {
    int32_t before = sizeOf(nodes[node].left);
    if (position <= before) {
      node = nodes[node].left;
      continue;
    }
    sum += nodes[node].work + (nodes[node].left == kNone ? 0 : nodes[nodes[node].left].workSum);
    position -= before + 1;
    node = nodes[node].right;
  }
  return sum;
}

/// The largest number of leading nodes whose work adds up to no more than `amount`.
int32_t OrderTree::longestPrefixWithin(int64_t amount) const {
  int32_t count = 0;
  for (NodeId node = root; node != kNone;) {
    NodeId left = nodes[node].left;
    int64_t before = left == kNone ? 0 : nodes[left].workSum;
    if (before > amount) {
      node = left;
      continue;
    }
    amount -= before;
    count += sizeOf(left);
    if (nodes[node].work > amount)
      return count;
    amount -= nodes[node].work;
    ++count;
    node = nodes[node].right;
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
  const TreeNode &node = nodes[id];
  if (query.last <= offset || offset + node.size <= query.first ||
      !query.hit(node.most[0] + live, node.most[1] + edge, node.tagsBelow))
    return kNone;
  int32_t own = offset + sizeOf(node.left);
  auto below = [&](bool left) {
    return search(query, left ? node.left : node.right, left ? offset : own + 1, live + node.pending[0],
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
