//===- Placement.h - Assignment of mesh axes to links -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The order of the axes of a mesh decides which groups stay inside nodes and which ones share the network. For every
// order, a lower bound says how long the program takes at least, and comm-schedule how long it takes. Orders whose
// bound is above the best time are proven to be worse, and are not scheduled. Placement.md describes it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_SCHEDULING_PLACEMENT_H
#define COMMSCHED_TRANSFORMS_SCHEDULING_PLACEMENT_H

#include "CommSched/Analysis/Mesh.h"
#include "CommSched/Machine/CollectiveCost.h"
#include "CommSched/Support/CollectiveOrder.h"
#include "CommSched/Support/MemoryBudget.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <optional>
#include <string>
#include <vector>

namespace commsched {

/// What comm-schedule is told, for every order alike.
struct PlacementOptions {
  /// Machine profile: a name or a path; empty: that of the environment.
  std::string machine;
  double memoryBudgetRatio = 0;
  int64_t memoryLimitBytes = -1;
  CollectiveOrder collectiveOrder = CollectiveOrder::Free;
  bool bucketing = true;
  int64_t effort = -1;
};

/// Orders of the axes that put every group on the same links, so that they cost the same.
struct Placement {
  /// The first one is that of the program, if it is among them. The slowest axis comes first.
  std::vector<AxisList> orders;
  /// How many ranks of one unit of a level each axis has. Indexed by level (PlacementTable::levels), then by axis.
  std::vector<std::vector<int64_t>> inside;
  /// The placement of each group's ranks. Indexed by group.
  std::vector<GroupShape> shapes;
  /// Indexed by function: a lower bound on its makespan, ns, and what determines it. Empty if a function has
  /// collectives in inner blocks or calls.
  std::vector<Ns> bounds;
  std::vector<std::string> boundBy;
  /// The sum of `bounds`, ns; none if they are empty.
  std::optional<Ns> bound;
  /// The sum of the makespans of all functions, ns, and their largest peak, bytes. None if it was not scheduled.
  std::optional<Ns> makespan;
  Bytes peak = 0;
};

/// All orders of the axes of a program.
struct PlacementTable {
  std::string machine;
  /// The levels of the machine, nodes first: a name, and the ranks of one unit.
  std::vector<std::pair<std::string, int64_t>> levels;
  Mesh mesh;
  /// Names of the groups.
  std::vector<std::string> groups;
  /// The fastest one first, and those that were not scheduled last, by their bounds.
  std::vector<Placement> placements;
  /// The place of the program's own order in `placements`.
  size_t asGiven = 0;
  /// Orders that were left out because nodes would hold different parts of the mesh.
  int64_t unfit = 0;
  /// Collectives with a time in `comm.cost`, which no order changes.
  int64_t givenTimes = 0;
  /// What the machine profile leaves open; empty if it names resources.
  std::string assumption;

  const Placement &best() const { return placements.front(); }
  /// Whether a placement's bound is above the time of the best one.
  bool isProvenWorse(const Placement &placement) const {
    return placement.bound && *placement.bound > *best().makespan;
  }
  /// How many placements may be faster than the best one, because their bound is below its time.
  size_t candidatesLeft() const;

  llvm::json::Value toJSON() const;
  /// Prints the table, and the calls that make the best mesh in PyTorch and JAX.
  void print(llvm::raw_ostream &os) const;
};

/// Compares all orders of the axes of the mesh on which `programs` run one after the other, such as the forward and the
/// backward graph of a step. The programs do not change. Fails after an error if their groups are not products of axes,
/// if the ranks do not fill whole nodes, or if a program cannot be scheduled. At most kMostAxes axes. It takes a bound
/// for each placement, and comm-schedule for each one whose bound is not above the best time so far.
llvm::FailureOr<PlacementTable> comparePlacements(llvm::ArrayRef<mlir::ModuleOp> programs,
                                                  const PlacementOptions &options);

/// The largest number of axes: 120 orders.
inline constexpr size_t kMostAxes = 5;

/// Gives the groups of a program the ranks that they have if the axes of the mesh have this order. O(groups).
void applyPlacement(mlir::ModuleOp program, const Mesh &mesh, llvm::ArrayRef<int64_t> order);

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_SCHEDULING_PLACEMENT_H
