//===- Mesh.cpp - The mesh that the groups of a program are made of ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The ranks of a product of axes are a mixed-radix number: each of its digits has a size and a stride. The strides at
// which the digits of all groups begin and end are where one axis of the mesh ends and the next one begins.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Mesh.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SmallSet.h"
#include <algorithm>
#include <map>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// A digit of the ranks of a group: `size` values, `stride` ranks apart.
struct Digit {
  int64_t size, stride;
  int64_t end() const { return size * stride; }
};

/// A place at which an axis ends, and the group that says so.
struct Cut {
  int64_t stride;
  GroupOp group;
};

} // namespace

/// The digits of the first of the groups, the fastest one first. They are those of all groups if it is a product of
/// axes. None if its ranks have no digits. O(ranks of a group).
static std::optional<SmallVector<Digit>> digitsOf(ReplicaGroupsInterface groups) {
  SmallVector<Digit> digits;
  int64_t size = groups.getGroupSize(), first = groups.getRank(0, 0);
  for (int64_t step = 1; step < size; step = step * digits.back().size) {
    Digit digit = {1, groups.getRank(0, step) - first};
    while (digit.size * step < size && groups.getRank(0, digit.size * step) == first + digit.size * digit.stride)
      ++digit.size;
    if (digit.stride <= 0 || digit.size < 2 || size % (step * digit.size) != 0)
      return std::nullopt;
    digits.push_back(digit);
  }
  return digits;
}

/// Whether the ranks of every group are those that its digits make of its first rank, and the first rank has none of
/// these digits. O(ranks).
static bool isProduct(ReplicaGroupsInterface groups, ArrayRef<Digit> digits) {
  for (int64_t group = 0; group < groups.getNumGroups(); ++group) {
    int64_t first = groups.getRank(group, 0);
    if (llvm::any_of(digits, [&](const Digit &digit) { return first / digit.stride % digit.size != 0; }))
      return false;
    for (int64_t place = 0; place < groups.getGroupSize(); ++place) {
      int64_t rank = first, rest = place;
      for (const Digit &digit : digits) {
        rank += rest % digit.size * digit.stride;
        rest /= digit.size;
      }
      if (rank != groups.getRank(group, place))
        return false;
    }
  }
  return true;
}

static InFlightDiagnostic failAt(GroupOp group) {
  return group.emitError() << "group '@" << group.getSymName() << "' is not a product of mesh axes";
}

/// The digits of a group, or an error.
static FailureOr<SmallVector<Digit>> checkedDigits(GroupOp group) {
  std::optional<SmallVector<Digit>> digits = digitsOf(group.getGroups());
  if (!digits || !isProduct(group.getGroups(), *digits))
    return failAt(group) << ": its ranks are not evenly spaced blocks";
  return *digits;
}

/// Whether two partitions have the same groups, however they are written. O(ranks).
static bool isSame(ReplicaGroupsInterface first, ReplicaGroupsInterface second) {
  if (first == second)
    return true;
  int64_t numGroups = first.getNumGroups(), size = first.getGroupSize();
  if (numGroups != second.getNumGroups() || size != second.getGroupSize())
    return false;
  return llvm::all_of(llvm::seq<int64_t>(0, numGroups * size), [&](int64_t place) {
    return first.getRank(place / size, place % size) == second.getRank(place / size, place % size);
  });
}

int64_t Mesh::numRanks() const {
  int64_t ranks = 1;
  for (const MeshAxis &axis : axes)
    ranks *= axis.size;
  return ranks;
}

/// Names the axes after groups that are one axis.
static void nameAxes(Mesh &mesh, ArrayRef<GroupOp> groups) {
  for (auto [index, axis] : llvm::enumerate(mesh.axes))
    axis.name = "axis" + std::to_string(index);
  llvm::SmallSet<int64_t, 8> named;
  for (GroupOp group : groups)
    if (AxisList axes = axesOf(group, mesh); axes.size() == 1 && named.insert(axes.front()).second)
      mesh.axes[axes.front()].name = group.getSymName().str();
}

FailureOr<Mesh> commsched::findMesh(ArrayRef<GroupOp> groups) {
  std::map<StringRef, GroupOp> known;
  SmallVector<Cut> cuts;
  for (GroupOp group : groups) {
    ReplicaGroupsInterface partition = group.getGroups();
    int64_t ranks = partition.getNumGroups() * partition.getGroupSize();
    if (known.empty())
      cuts.append({{1, group}, {ranks, group}});
    auto [other, isNew] = known.try_emplace(group.getSymName(), group);
    if (!isSame(other->second.getGroups(), partition)) {
      InFlightDiagnostic error = group.emitError()
                                 << "group '@" << group.getSymName() << "' has other ranks than in another program";
      error.attachNote(other->second.getLoc()) << "the group there";
      return error;
    }
    if (ranks != cuts[1].stride) {
      InFlightDiagnostic error = group.emitError() << "group '@" << group.getSymName() << "': expected the "
                                                   << cuts[1].stride << " ranks of another group, got " << ranks;
      error.attachNote(cuts[1].group.getLoc()) << "the other group";
      return error;
    }
    if (!isNew)
      continue;
    FailureOr<SmallVector<Digit>> digits = checkedDigits(group);
    if (failed(digits))
      return failure();
    for (const Digit &digit : *digits)
      cuts.append({{digit.stride, group}, {digit.end(), group}});
  }
  llvm::stable_sort(cuts, [](const Cut &a, const Cut &b) { return a.stride < b.stride; });
  Mesh mesh;
  for (size_t next = 1; next < cuts.size(); ++next) {
    Cut low = cuts[next - 1], high = cuts[next];
    if (high.stride % low.stride != 0) {
      InFlightDiagnostic error = failAt(high.group) << ": one of its axes ends at a stride of " << high.stride
                                                    << ", which is not a multiple of " << low.stride;
      error.attachNote(low.group.getLoc()) << "an axis of this group ends at a stride of " << low.stride;
      return error;
    }
    if (high.stride > low.stride)
      mesh.axes.insert(mesh.axes.begin(), {"", high.stride / low.stride, low.stride});
  }
  nameAxes(mesh, groups);
  return mesh;
}

AxisList commsched::axesOf(GroupOp group, const Mesh &mesh) {
  AxisList axes;
  std::optional<SmallVector<Digit>> digits = digitsOf(group.getGroups());
  for (const Digit &digit : llvm::reverse(*digits))
    for (auto [index, axis] : llvm::enumerate(mesh.axes))
      if (axis.stride >= digit.stride && axis.stride < digit.end())
        axes.push_back(static_cast<int64_t>(index));
  return axes;
}

IotaAttr commsched::placeGroups(MLIRContext *context, const Mesh &mesh, ArrayRef<int64_t> axes,
                                ArrayRef<int64_t> order) {
  SmallVector<int64_t> dims, perm;
  int64_t size = 1;
  for (int64_t axis : order)
    dims.push_back(mesh.axes[axis].size);
  auto placeOf = [&](int64_t axis) { return llvm::find(order, axis) - order.begin(); };
  // The axes that number the groups come first, in the order of the mesh as it was.
  for (int64_t axis = 0; axis < static_cast<int64_t>(mesh.axes.size()); ++axis)
    if (!llvm::is_contained(axes, axis))
      perm.push_back(placeOf(axis));
  for (int64_t axis : axes) {
    perm.push_back(placeOf(axis));
    size *= mesh.axes[axis].size;
  }
  return IotaAttr::get(context, mesh.numRanks() / size, size, dims, perm);
}

std::optional<SmallVector<int64_t>> commsched::axesInside(const Mesh &mesh, ArrayRef<int64_t> order,
                                                          int64_t ranksOfUnit) {
  SmallVector<int64_t> inside(mesh.axes.size(), 1);
  int64_t left = std::min(ranksOfUnit, mesh.numRanks());
  for (int64_t axis : llvm::reverse(order)) {
    int64_t size = mesh.axes[axis].size, part = std::min(size, left);
    if (size % part != 0 || left % part != 0)
      return std::nullopt;
    inside[axis] = part;
    left /= part;
  }
  return inside;
}
