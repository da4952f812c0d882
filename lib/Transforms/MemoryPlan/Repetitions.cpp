//===- Repetitions.cpp - Operations that make values again ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Clones are chosen from the last operation of the block to the first, so that all readers of a value are known, clones
// included, when its turn comes.
//
//===------------------------------------------------------------------------------------------===//

#include "Repetitions.h"
#include "ValueNumbers.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace commsched;

//===-----------------------------------------------------------------------------------------===//
// Repetitions of the program
//===-----------------------------------------------------------------------------------------===//

/// The members of `again` that have an equal member in `first`; empty if one that writes or starts has none.
static RepeatedOps pairMembers(const BlockValues &values, const ValueNumbers &numbers, const RepeatableValue &first,
                               const RepeatableValue &again) {
  RepeatedOps result;
  result.isGiven = true;
  const BlockNodes &nodes = values.nodes();
  for (NodeId member : again.members) {
    NodeId other = numbers.previousOf(member);
    while (other != kNone && !llvm::is_contained(first.members, other))
      other = numbers.previousOf(other);
    if (other != kNone && other < again.base) {
      result.first.push_back(nodes[other]);
      result.again.push_back(nodes[member]);
    } else if (isa<comm::WaitOp>(nodes[member]) || values.versionOf(nodes[member]->getResult(0), member + 1) !=
                                                       values.versionOf(nodes[member]->getResult(0), member)) {
      return {};
    }
  }
  auto byPlace = [&](Operation *a, Operation *b) { return a->isBeforeInBlock(b); };
  return llvm::is_sorted(result.first, byPlace) ? result : RepeatedOps();
}

std::vector<RepeatedOps> commsched::findRepetitions(Block &block) {
  BlockValues values(block);
  ValueNumbers numbers(values, OpaqueOps::Differ);
  std::vector<RepeatedOps> result;
  llvm::DenseMap<NodeId, const RepeatableValue *> ofBase;
  for (const RepeatableValue &value : values.values()) {
    ofBase[value.base] = &value;
    NodeId other = numbers.previousOf(value.base);
    if (other == kNone || !ofBase.contains(other))
      continue;
    RepeatedOps pair = pairMembers(values, numbers, *ofBase[other], value);
    if (!pair.again.empty())
      result.push_back(std::move(pair));
  }
  return result;
}

//===-----------------------------------------------------------------------------------------===//
// Clones
//===-----------------------------------------------------------------------------------------===//

namespace {

/// Chooses and makes the clones of one block.
class CloneWriter {
public:
  CloneWriter(Block &block, const CloneLimits &limits) : values(block), nodes(values.nodes()), limits(limits) {
    before.push_back(0);
    for (Ns time : limits.computeTimes)
      before.push_back(before.back() + time);
    plans.resize(values.values().size());
    lateReads.resize(values.values().size());
  }

  std::vector<RepeatedOps> run() {
    for (int32_t index = static_cast<int32_t>(plans.size()) - 1; index >= 0; --index)
      choose(index);
    write();
    redirectReaders();
    return std::move(result);
  }

private:
  /// A clone that reads a value.
  struct LateRead {
    NodeId at;
    Value value;
  };

  struct Plan {
    /// The clones are made in front of this node; kNone for none.
    NodeId at = kNone;
    SmallVector<NodeId, 4> cloned;
  };

  Ns between(NodeId a, NodeId b) const { return b > a ? before[b] - before[a + 1] : 0; }

  Bytes bytesOf(const RepeatableValue &value) const {
    Bytes bytes = 0;
    for (StorageId id : value.classes)
      bytes += values.bytesOf(id);
    return bytes;
  }

  /// The first reader behind the widest gap, or kNone if no gap is wide enough. What makes the value is no reader.
  NodeId findLateReader(const RepeatableValue &value, ArrayRef<LateRead> reads) const {
    SmallVector<NodeId> readers;
    for (NodeId user : value.users)
      if (!isPartOf(value, user))
        readers.push_back(user);
    for (const LateRead &read : reads)
      readers.push_back(read.at);
    llvm::sort(readers);
    NodeId best = kNone;
    Ns widest = 0;
    for (size_t i = 1; i < readers.size(); ++i)
      if (Ns gap = between(readers[i - 1], readers[i]); gap > widest) {
        widest = gap;
        best = readers[i];
      }
    return widest >= limits.leastGap ? best : kNone;
  }

  /// Whether a node makes the value: its base, waits, writers. Views count as readers.
  bool isPartOf(const RepeatableValue &value, NodeId user) const {
    if (user == value.base || isa<comm::WaitOp>(nodes[user]))
      return llvm::binary_search(value.members, user);
    return llvm::binary_search(value.members, user) && writes(user);
  }

  bool writes(NodeId member) const {
    Value result = nodes[member]->getResult(0);
    return values.versionOf(result, member) != values.versionOf(result, member + 1);
  }

  void choose(int32_t index) {
    const RepeatableValue &value = values.values()[index];
    if (bytesOf(value) < limits.leastBytes)
      return;
    NodeId at = findLateReader(value, lateReads[index]);
    if (at == kNone)
      return;
    Plan plan{at, findCloned(value, index, at)};
    if (plan.cloned.empty() || !mayClone(value, plan))
      return;
    for (NodeId member : plan.cloned)
      for (Value read : valuesReadBy(nodes[member]))
        if (int32_t other = values.indexOf(read); other != kNone && other != index)
          lateReads[other].push_back({at, read});
    plans[index] = std::move(plan);
  }

  /// The members in front of `at` that make the value, and the views of it that are read at `at` or later.
  SmallVector<NodeId, 4> findCloned(const RepeatableValue &value, int32_t index, NodeId at) const {
    llvm::SmallDenseSet<Value> wanted;
    for (const LateRead &read : lateReads[index])
      if (read.at >= at)
        wanted.insert(read.value);
    SmallVector<NodeId, 4> cloned;
    for (NodeId member : llvm::reverse(value.members)) {
      if (member >= at) {
        if (isPartOf(value, member))
          return {};
        continue;
      }
      bool isWanted = llvm::any_of(nodes[member]->getResults(), [&](Value result) {
        return wanted.contains(result) ||
               llvm::any_of(result.getUsers(), [&](Operation *user) { return nodes.find(user) >= at; });
      });
      if (!isWanted && !isPartOf(value, member))
        continue;
      cloned.push_back(member);
      wanted.insert_range(nodes[member]->getOperands());
    }
    std::reverse(cloned.begin(), cloned.end());
    return cloned;
  }

  bool mayClone(const RepeatableValue &value, const Plan &plan) const {
    return llvm::all_of(plan.cloned, [&](NodeId member) {
      return isRepeatable(nodes[member]) && llvm::all_of(valuesReadBy(nodes[member]), [&](Value read) {
               int32_t index = values.indexOf(read);
               bool isOwn = index != kNone && values.values()[index].base == value.base;
               return isOwn || values.canReadAgain(read, member, plan.at);
             });
    });
  }

  /// Makes the clones, in the order of their places and of their originals.
  void write() {
    struct Clone {
      NodeId at, member;
      int32_t index;
    };
    std::vector<Clone> clones;
    for (auto [index, plan] : llvm::enumerate(plans))
      for (NodeId member : plan.cloned)
        clones.push_back({plan.at, member, static_cast<int32_t>(index)});
    llvm::sort(clones,
               [](const Clone &a, const Clone &b) { return std::tie(a.at, a.member) < std::tie(b.at, b.member); });
    // Indexed by value of the block: its index in `result`.
    std::vector<int32_t> resultOf(plans.size(), kNone);
    for (const Clone &clone : clones) {
      Operation *original = nodes[clone.member];
      IRMapping mapping;
      for (Value read : valuesReadBy(original))
        if (Value other = cloneOf(read, clone.at, original))
          mapping.map(read, other);
      OpBuilder builder(nodes[clone.at]);
      Operation *copy = builder.clone(*original, mapping);
      for (auto [value, other] : llvm::zip_equal(original->getResults(), copy->getResults()))
        clonedValues[value] = other;
      if (resultOf[clone.index] == kNone) {
        resultOf[clone.index] = static_cast<int32_t>(result.size());
        result.emplace_back();
      }
      result[resultOf[clone.index]].first.push_back(original);
      result[resultOf[clone.index]].again.push_back(copy);
    }
  }

  /// What a clone at `at` reads in place of `value`; null for the value itself.
  Value cloneOf(Value value, NodeId at, Operation *reader) const {
    int32_t index = values.indexOf(value);
    if (index == kNone || plans[index].at == kNone || plans[index].at > at)
      return {};
    return clonedValues.lookup(value);
  }

  /// Lets the late readers read the clones.
  void redirectReaders() {
    for (auto [value, copy] : clonedValues) {
      NodeId at = plans[values.indexOf(value)].at;
      value.replaceUsesWithIf(copy, [&](OpOperand &use) {
        // Clones are no nodes; they have what they are to read.
        NodeId user = nodes.find(use.getOwner());
        return user != kNone && user >= at;
      });
    }
  }

  BlockValues values;
  const BlockNodes &nodes;
  const CloneLimits &limits;
  /// Indexed by node: the computation before it, ns.
  std::vector<Ns> before;
  /// Indexed as BlockValues::values().
  std::vector<Plan> plans;
  std::vector<SmallVector<LateRead, 2>> lateReads;
  /// Indexed by value of an original: the clone's.
  llvm::MapVector<Value, Value> clonedValues;
  std::vector<RepeatedOps> result;
};

} // namespace

std::vector<RepeatedOps> commsched::cloneForLateReaders(Block &block, const CloneLimits &limits) {
  return CloneWriter(block, limits).run();
}

void commsched::eraseRepetitions(ArrayRef<const RepeatedOps *> repetitions) {
  SmallVector<const RepeatedOps *> latestFirst(repetitions);
  llvm::sort(latestFirst, [](const RepeatedOps *a, const RepeatedOps *b) {
    return b->again.front()->isBeforeInBlock(a->again.front());
  });
  for (const RepeatedOps *repetition : latestFirst)
    for (auto [first, again] : llvm::zip_equal(repetition->first, repetition->again))
      again->replaceAllUsesWith(first);
  for (const RepeatedOps *repetition : latestFirst)
    for (Operation *op : llvm::reverse(repetition->again))
      op->erase();
}
