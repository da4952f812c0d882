//===- ReplicaGroups.h - Groups of StableHLO's collectives ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A process of StableHLO has a replica and a partition. Its rank is replica * partitions + partition, the number that
// XLA calls the flattened or global device id. How a collective forms groups of processes depends on its kind, on its
// channel and on `use_global_device_ids` (StableHLO's specification, "Execution", "Collective operations").
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_STABLEHLO_REPLICAGROUPS_H
#define COMMSCHED_LIB_CONVERSION_STABLEHLO_REPLICAGROUPS_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include <map>
#include <vector>

namespace commsched::stablehlo {

/// Ranks, group after group.
using Groups = std::vector<std::vector<int64_t>>;

/// The processes of a program.
struct Processes {
  int64_t replicas = 1, partitions = 1;
  int64_t ranks() const { return replicas * partitions; }
};

/// The axes of a mesh, from outer to inner.
struct MeshAxes {
  std::vector<std::string> names;
  std::vector<int64_t> sizes;
};

/// The groups of a collective. Fails with a diagnostic if its `replica_groups` are not an array of numbers, name a
/// process that does not exist, leave one out, or have different sizes: a `comm.group` divides all ranks into groups of
/// one size.
llvm::FailureOr<Groups> readGroups(mlir::Operation *op, Processes processes);

/// The pairs of a permute, as ranks: source, target, source, target, and so on. Fails with a diagnostic if they are not
/// an array of numbers of processes.
llvm::FailureOr<std::vector<int64_t>> readPairs(mlir::Operation *op, Processes processes);

/// Makes the `comm.group`s of a module, each partition once. A partition along axes of the mesh has their names.
class GroupTable {
public:
  GroupTable(mlir::ModuleOp module, MeshAxes mesh) : module(module), mesh(std::move(mesh)) {}

  mlir::FlatSymbolRefAttr groupOf(const Groups &groups);

  /// Replaces pairs of ranks by pairs of places in the smallest groups along axes of the mesh in which every group has
  /// the same pairs, and returns that group. Without such axes, it is that of all ranks.
  mlir::FlatSymbolRefAttr localizePairs(std::vector<int64_t> &pairs, Processes processes);

private:
  /// The partition along axes of the mesh, which are numbered.
  Groups groupsAlong(llvm::ArrayRef<size_t> axes) const;

  mlir::ModuleOp module;
  MeshAxes mesh;
  std::map<Groups, comm::GroupOp> known;
};

} // namespace commsched::stablehlo

#endif // COMMSCHED_LIB_CONVERSION_STABLEHLO_REPLICAGROUPS_H
