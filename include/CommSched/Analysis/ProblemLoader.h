//===- ProblemLoader.h - From a block of IR to a Problem --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one way from IR to integers: nodes from the block's operations, buffers from their storage, edges from their
// dependences, durations from the cost model.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_PROBLEMLOADER_H
#define COMMSCHED_ANALYSIS_PROBLEMLOADER_H

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Analysis/Dependence.h"
#include "CommSched/Scheduling/Model/Timeline.h"
#include "CommSched/Support/BucketCaps.h"

namespace commsched {

/// Which collectives of different element types may be merged.
enum class MixedTypes : uint8_t {
  /// None.
  None,
  /// All-gathers of integers and floats: they can go as bytes.
  Gathers,
  /// All: each input keeps its type (the coalesced form).
  All,
};

/// What the loader is asked for.
struct LoadOptions {
  CollectiveOrder order = CollectiveOrder::Free;
  /// Whether to fill in what bucketing needs.
  bool bucketing = false;
  /// The largest merged collectives.
  BucketCaps caps = {};
  /// A merge key of mixed types has the cost of the first start's type: see priceBuckets().
  MixedTypes mixedTypes = MixedTypes::None;
  /// Whether starts with a measured time get merge keys of their own, with a curve that fits the measurements. Without,
  /// keys have the cost model's curves, and buckets have to be priced one by one: see priceBuckets().
  bool separatesMeasured = true;
};

/// A block as a Problem, and what has to be said about the loading.
struct LoadedBlock {
  explicit LoadedBlock(mlir::Block &block) : nodes(block) {}

  BlockNodes nodes;
  Problem problem;
  /// Of each lane: the group's symbol; null for the compute lane, and for a lane that all groups share.
  std::vector<mlir::FlatSymbolRefAttr> laneGroups;
  /// The machine's slow-downs, for simulate() and ScheduleOptions::slowDown.
  SlowDown slowDown;
  /// Values of dynamic size that follows from no hint (they count as 0 bytes), and operations whose cost nothing tells.
  int64_t unknownSizes = 0, unknownCosts = 0;
  /// The values of unknown size; futures for what is in flight.
  std::vector<mlir::Value> unknownValues;
  /// Times and sizes that were cut, because sums of them could overflow.
  int64_t cutValues = 0;
  /// Futures that came in late (`comm.ready_ns`) and whose lane is not known: it is taken as free.
  int64_t unknownLanes = 0;
  /// By Node::group: the group's symbol.
  std::vector<mlir::Attribute> groups;
  /// What is wrong with the problem (Problem::validate); an error was emitted. Empty otherwise.
  std::string defect;
};

/// Loads `block`. Operations with regions, and calls, are one node with the cost and the peak of what is inside; if
/// there are collectives inside, that is the makespan of the inner block, and the node occupies their lanes
/// (RegionWork). Emits an error if the problem is not valid. O(operations + operands + edges), callees included.
LoadedBlock loadBlock(mlir::Block &block, const OperationCosts &costs, const LoadOptions &options = {});

/// Why a collective does not have the form that a bucket takes, empty where it does: an all-gather, reduce-scatter or
/// all-reduce of one tensor of static size, of whole bytes, along dimension 0, without a destination, with one wait in
/// the same block and no other use. Such collectives get a merge key where their storage is known. O(1).
llvm::StringRef findMergeObstacle(comm::CollectiveOpInterface start);

/// What scheduling may move blocks of: every block, nested ones included, of `root`'s regions that holds a start, a
/// wait or a hybrid, innermost first. O(operations).
llvm::SmallVector<mlir::Block *> findSchedulableBlocks(mlir::Operation *root);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_PROBLEMLOADER_H
