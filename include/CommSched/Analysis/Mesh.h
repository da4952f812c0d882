//===- Mesh.h - The mesh that the groups of a program are made of -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Programs are written for a mesh of ranks with named axes, and their groups are products of axes. The text of a
// program has the groups only. This file finds the axes again, and makes the groups of the same program on the same
// machine if the axes have another order. Placement.md describes both.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_MESH_H
#define COMMSCHED_ANALYSIS_MESH_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Machine/CollectiveCost.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>
#include <string>

namespace commsched {

/// One axis of a mesh.
struct MeshAxis {
  /// The name of the group that is this axis alone ("dp"), or "axis" and its index if there is none.
  std::string name;
  int64_t size = 1;
  /// The distance of neighbours on this axis, in ranks.
  int64_t stride = 1;
};

/// The coarsest mesh of which every group is a product of axes.
struct Mesh {
  /// The axis on which ranks vary slowest comes first. Sizes are at least 2, and their product is the number of ranks.
  llvm::SmallVector<MeshAxis> axes;

  int64_t numRanks() const;
};

/// Axes by their index in a Mesh, the slowest first: the order of a mesh on a machine, or the axes of one group in the
/// order of its places.
using AxisList = llvm::SmallVector<int64_t, 4>;

/// Finds the mesh of the groups of one or more programs. Groups of equal names have to be equal. Fails after an error
/// at a group that is not a product of axes, that does not fit to the axes of another group, or that has another number
/// of ranks. O(groups x ranks).
llvm::FailureOr<Mesh> findMesh(llvm::ArrayRef<comm::GroupOp> groups);

/// The axes of a group from which `mesh` was found. O(axes^2).
AxisList axesOf(comm::GroupOp group, const Mesh &mesh);

/// The replica groups of a group that has these axes, if the axes of the mesh have the order `order` on the machine.
/// Places within a group, and the numbers of the groups, stay what they are. O(axes).
comm::IotaAttr placeGroups(mlir::MLIRContext *context, const Mesh &mesh, llvm::ArrayRef<int64_t> axes,
                           llvm::ArrayRef<int64_t> order);

/// How many ranks of one unit of a machine's level, such as a node, each axis has if the axes have this order. Indexed
/// by axis. None if a unit does not end where a row of ranks ends, so that units would hold different parts of the
/// mesh. O(axes).
std::optional<llvm::SmallVector<int64_t>> axesInside(const Mesh &mesh, llvm::ArrayRef<int64_t> order,
                                                     int64_t ranksOfUnit);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_MESH_H
