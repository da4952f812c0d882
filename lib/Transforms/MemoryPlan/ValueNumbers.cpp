//===- ValueNumbers.cpp - Values of a block that are certainly equal --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "ValueNumbers.h"
#include "CommSched/Analysis/Casts.h"

using namespace mlir;
using namespace commsched;

ValueNumbers::ValueNumbers(const BlockValues &values, OpaqueOps opaque)
    : values(values), opaque(opaque), previous(values.nodes().size(), kNone) {
  const BlockNodes &nodes = values.nodes();
  // Indexed by hash: the last nodes of each set of equal ones.
  llvm::DenseMap<size_t, SmallVector<NodeId, 1>> known;
  for (NodeId id = 0; id < nodes.size(); ++id) {
    if (!mayBeEqual(nodes[id]))
      continue;
    SmallVector<NodeId, 1> &alike = known[static_cast<size_t>(hashOf(id)) >> 1];
    auto *equal = llvm::find_if(alike, [&](NodeId other) { return areEqual(other, id); });
    if (equal == alike.end()) {
      alike.push_back(id);
      continue;
    }
    previous[id] = std::exchange(*equal, id);
    for (auto [value, other] : llvm::zip_equal(nodes[id]->getResults(), nodes[previous[id]]->getResults()))
      leaders[value] = leaderOf(other);
  }
}

bool ValueNumbers::mayBeEqual(Operation *op) const {
  if (!isRepeatable(op))
    return false;
  return !isa<comm::ComputeOp>(op) || isElementTypeCast(op) ||
         (opaque == OpaqueOps::ByLocation && !isa<UnknownLoc>(op->getLoc()));
}

llvm::hash_code ValueNumbers::hashOf(NodeId id) const {
  auto hashOperand = [&](Value value) {
    return llvm::hash_combine(hash_value(leaderOf(value)), values.versionOf(value, id));
  };
  return OperationEquivalence::computeHash(values.nodes()[id], hashOperand, OperationEquivalence::ignoreHashValue,
                                           OperationEquivalence::IgnoreLocations);
}

bool ValueNumbers::areEqual(NodeId a, NodeId b) const {
  Operation *first = values.nodes()[a], *second = values.nodes()[b];
  if (isa<comm::ComputeOp>(first) && !isElementTypeCast(first) && first->getLoc() != second->getLoc())
    return false;
  for (auto [left, right] : llvm::zip(valuesReadBy(first), valuesReadBy(second)))
    if (values.versionOf(left, a) != values.versionOf(right, b))
      return false;
  // Indexed by a value of a region of the first: the one of the second in its place.
  llvm::DenseMap<Value, Value> inside;
  auto check = [&](Value left, Value right) {
    return success(leaderOf(left) == leaderOf(right) || inside.lookup(left) == right);
  };
  auto mark = [&](Value left, Value right) { inside[left] = right; };
  return OperationEquivalence::isEquivalentTo(first, second, check, mark, OperationEquivalence::IgnoreLocations);
}
