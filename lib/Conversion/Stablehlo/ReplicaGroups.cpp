//===- ReplicaGroups.cpp - Groups of StableHLO's collectives ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See ReplicaGroups.h.
//
//===------------------------------------------------------------------------------------------===//

#include "ReplicaGroups.h"
#include "StablehloNames.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::stablehlo;

namespace {
/// How the numbers of `replica_groups` name processes, in the words of the specification.
enum class Grouping { CrossReplica, CrossPartition, CrossReplicaAndPartition, FlattenedIds };
} // namespace

static Grouping groupingOf(Operation *op) {
  bool hasChannel = readChannel(op) > 0;
  if (isNamed(op, {"all_to_all", "collective_broadcast", "collective_permute"}))
    return hasChannel ? Grouping::CrossPartition : Grouping::CrossReplica;
  if (!hasChannel)
    return Grouping::CrossReplica;
  return op->hasAttr("use_global_device_ids") ? Grouping::FlattenedIds : Grouping::CrossReplicaAndPartition;
}

/// The processes that a list of numbers means: one group, or one for each replica or partition that the numbers do not
/// name.
static void addGroups(Groups &groups, ArrayRef<int64_t> ids, Grouping grouping, Processes processes) {
  switch (grouping) {
  case Grouping::FlattenedIds:
    groups.push_back(ids.vec());
    return;
  case Grouping::CrossReplica:
    for (int64_t partition = 0; partition < processes.partitions; ++partition) {
      std::vector<int64_t> &group = groups.emplace_back();
      for (int64_t replica : ids)
        group.push_back(replica * processes.partitions + partition);
    }
    return;
  case Grouping::CrossPartition:
    for (int64_t replica = 0; replica < processes.replicas; ++replica) {
      std::vector<int64_t> &group = groups.emplace_back();
      for (int64_t partition : ids)
        group.push_back(replica * processes.partitions + partition);
    }
    return;
  case Grouping::CrossReplicaAndPartition:
    std::vector<int64_t> &group = groups.emplace_back();
    for (int64_t partition = 0; partition < processes.partitions; ++partition)
      for (int64_t replica : ids)
        group.push_back(replica * processes.partitions + partition);
    return;
  }
}

/// How many numbers there are that `replica_groups` may contain.
static int64_t countIds(Grouping grouping, Processes processes) {
  switch (grouping) {
  case Grouping::FlattenedIds:
    return processes.ranks();
  case Grouping::CrossPartition:
    return processes.partitions;
  case Grouping::CrossReplica:
  case Grouping::CrossReplicaAndPartition:
    return processes.replicas;
  }
  return 0;
}

/// A matrix of numbers. Fails with a diagnostic.
static FailureOr<DenseIntElementsAttr> readMatrix(Operation *op, StringRef name) {
  Attribute attribute = op->getAttr(name);
  auto matrix = dyn_cast_if_present<DenseIntElementsAttr>(attribute);
  if (matrix && matrix.getType().getRank() == 2)
    return matrix;
  InFlightDiagnostic diagnostic = op->emitOpError() << "expected '" << name << "' to be a matrix of numbers, got ";
  if (attribute)
    diagnostic << attribute;
  else
    diagnostic << "none";
  return diagnostic;
}

FailureOr<Groups> commsched::stablehlo::readGroups(Operation *op, Processes processes) {
  FailureOr<DenseIntElementsAttr> matrix = readMatrix(op, "replica_groups");
  if (failed(matrix))
    return failure();
  Grouping grouping = groupingOf(op);
  const int64_t numIds = countIds(grouping, processes);
  Groups groups;
  llvm::SmallBitVector named(numIds);
  auto values = matrix->getValues<APInt>();
  int64_t rows = matrix->getType().getDimSize(0), columns = matrix->getType().getDimSize(1);
  for (int64_t row = 0; row < rows; ++row) {
    SmallVector<int64_t> ids;
    for (int64_t column = 0; column < columns; ++column) {
      int64_t id = values[row * columns + column].getSExtValue();
      if (id == -1) // Fills the rows of groups that are smaller than others.
        continue;
      if (id < 0 || id >= numIds || named.test(id))
        return op->emitOpError() << "expected 'replica_groups' to name numbers below " << numIds << ", each once, got "
                                 << id;
      named.set(id);
      ids.push_back(id);
    }
    if (!ids.empty())
      addGroups(groups, ids, grouping, processes);
  }
  // No group at all means one of all.
  if (groups.empty()) {
    addGroups(groups, llvm::to_vector(llvm::seq<int64_t>(0, numIds)), grouping, processes);
    named.set();
  }
  if (int missing = named.find_first_unset(); missing >= 0)
    return op->emitOpError() << "expected 'replica_groups' to name every number below " << numIds
                             << ", because a comm.group divides all ranks, got none with " << missing;
  for (const std::vector<int64_t> &group : groups)
    if (group.size() != groups.front().size())
      return op->emitOpError() << "expected groups of one size, because a comm.group has only such, got "
                               << groups.front().size() << " and " << group.size() << " ranks";
  return groups;
}

FailureOr<std::vector<int64_t>> commsched::stablehlo::readPairs(Operation *op, Processes processes) {
  FailureOr<DenseIntElementsAttr> matrix = readMatrix(op, "source_target_pairs");
  if (failed(matrix))
    return failure();
  Grouping grouping = groupingOf(op);
  const int64_t numIds = countIds(grouping, processes);
  SmallVector<int64_t> ids;
  for (const APInt &value : matrix->getValues<APInt>()) {
    int64_t id = value.getSExtValue();
    if (id < 0 || id >= numIds)
      return op->emitOpError() << "expected 'source_target_pairs' to name numbers below " << numIds << ", got " << id;
    ids.push_back(id);
  }
  std::vector<int64_t> pairs;
  for (size_t at = 0; at + 1 < ids.size(); at += 2) {
    Groups both;
    addGroups(both, {ids[at], ids[at + 1]}, grouping, processes);
    for (const std::vector<int64_t> &pair : both)
      pairs.insert(pairs.end(), pair.begin(), pair.end());
  }
  return pairs;
}

//===-----------------------------------------------------------------------------------------===//
// GroupTable
//===-----------------------------------------------------------------------------------------===//

Groups GroupTable::groupsAlong(ArrayRef<size_t> axes) const {
  int64_t ranks = 1, size = 1;
  for (int64_t length : mesh.sizes)
    ranks *= length;
  for (size_t axis : axes)
    size *= mesh.sizes[axis];
  Groups groups;
  std::map<std::vector<int64_t>, size_t> indexOf;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<int64_t> coordinates(mesh.sizes.size());
    int64_t rest = rank;
    for (size_t axis = mesh.sizes.size(); axis-- > 0; rest /= mesh.sizes[axis])
      coordinates[axis] = rest % mesh.sizes[axis];
    int64_t place = 0;
    for (size_t axis : axes) {
      place = place * mesh.sizes[axis] + coordinates[axis];
      coordinates[axis] = 0;
    }
    auto [at, isNew] = indexOf.try_emplace(coordinates, groups.size());
    if (isNew)
      groups.emplace_back(size);
    groups[at->second][place] = rank;
  }
  return groups;
}

/// Meshes have few axes; all subsets of more are too many to look at.
static constexpr size_t kMostAxes = 8;

FlatSymbolRefAttr GroupTable::groupOf(const Groups &groups) {
  GroupOp &group = known[groups];
  if (group)
    return FlatSymbolRefAttr::get(group);
  MLIRContext *context = module.getContext();
  std::string name = "ranks";
  SmallVector<int64_t> ranks;
  for (const std::vector<int64_t> &members : groups)
    ranks.append(members.begin(), members.end());
  auto size = static_cast<int64_t>(groups.front().size());
  Attribute partition = RanksAttr::get(context, ranks, size);
  size_t axes = mesh.sizes.size();
  for (size_t subset = 1; axes <= kMostAxes && subset < (size_t(1) << axes); ++subset) {
    SmallVector<size_t> along;
    SmallVector<int64_t> order;
    for (size_t axis = 0; axis < axes; ++axis)
      if (subset >> axis & 1)
        along.push_back(axis);
      else
        order.push_back(static_cast<int64_t>(axis));
    if (groupsAlong(along) != groups)
      continue;
    name.clear();
    for (size_t axis : along) {
      name += (name.empty() ? "" : "_") + mesh.names[axis];
      order.push_back(static_cast<int64_t>(axis));
    }
    partition = IotaAttr::get(context, static_cast<int64_t>(groups.size()), size, mesh.sizes, order);
    break;
  }
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  group = GroupOp::create(builder, module.getLoc(), name, /*sym_visibility=*/nullptr, partition);
  group->remove();
  SymbolTable(module).insert(group, module.getBody()->begin());
  return FlatSymbolRefAttr::get(group);
}

/// The pairs as places, if every group has the same; none otherwise.
static std::optional<std::vector<int64_t>> pairsWithin(const Groups &groups, ArrayRef<int64_t> pairs) {
  llvm::DenseMap<int64_t, std::pair<size_t, int64_t>> placeOf;
  for (auto [index, group] : llvm::enumerate(groups))
    for (auto [place, rank] : llvm::enumerate(group))
      placeOf[rank] = {index, static_cast<int64_t>(place)};
  std::vector<std::map<int64_t, int64_t>> targets(groups.size());
  for (size_t at = 0; at + 1 < pairs.size(); at += 2) {
    auto [fromGroup, from] = placeOf[pairs[at]];
    auto [toGroup, to] = placeOf[pairs[at + 1]];
    if (fromGroup != toGroup)
      return std::nullopt;
    targets[fromGroup][from] = to;
  }
  std::vector<int64_t> places;
  for (auto [from, to] : targets.front()) {
    places.push_back(from);
    places.push_back(to);
  }
  bool areEqual = llvm::all_of(targets, [&](const auto &other) { return other == targets.front(); });
  return areEqual ? std::optional(places) : std::nullopt;
}

FlatSymbolRefAttr GroupTable::localizePairs(std::vector<int64_t> &pairs, Processes processes) {
  size_t axes = mesh.sizes.size();
  Groups all(1);
  for (int64_t rank = 0; rank < processes.ranks(); ++rank)
    all.front().push_back(rank);
  std::optional<std::pair<Groups, std::vector<int64_t>>> best;
  for (size_t subset = 1; axes <= kMostAxes && subset < (size_t(1) << axes); ++subset) {
    SmallVector<size_t> along;
    for (size_t axis = 0; axis < axes; ++axis)
      if (subset >> axis & 1)
        along.push_back(axis);
    Groups groups = groupsAlong(along);
    std::optional<std::vector<int64_t>> places = pairsWithin(groups, pairs);
    if (places && (!best || groups.front().size() < best->first.front().size()))
      best.emplace(std::move(groups), std::move(*places));
  }
  if (!best)
    return groupOf(all);
  pairs = best->second;
  return groupOf(best->first);
}
