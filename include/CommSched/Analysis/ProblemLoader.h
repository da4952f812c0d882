//===- ProblemLoader.h - From a block of IR to a Problem --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The only way from IR to integers. Nodes come from the block's operations, buffers from their storage, edges from
// their dependences, and durations from the cost model.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_PROBLEMLOADER_H
#define COMMSCHED_ANALYSIS_PROBLEMLOADER_H

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Analysis/Dependence.h"
#include "CommSched/Scheduling/Time/Timeline.h"

namespace commsched {

/// The collectives of different element types that may be merged.
enum class MixedTypes : uint8_t {
  /// None.
  None,
  /// All-gathers of integers and floats, which can move as bytes.
  Gathers,
  /// All collectives: each input keeps its type (the coalesced form).
  All,
};

/// Options of the loader.
struct LoadOptions {
  CollectiveOrder order = CollectiveOrder::Free;
  /// True to load what bucketing needs: merge keys and costs.
  bool bucketing = false;
  /// The largest merged collective, bytes; negative: unlimited.
  Bytes bucketCap = -1;
  /// A merge key of mixed types has the costs of the first start's type; see priceBuckets().
  MixedTypes mixedTypes = MixedTypes::None;
  /// If true, starts with a measured time get merge keys of their own, with a curve that fits the measurements. If
  /// false, keys have the cost model's curves, and the caller must price each bucket; see priceBuckets().
  bool separatesMeasured = true;
  /// If true, demands stay where nothing in the block can be slowed down, as for the average of a region's demands.
  bool keepsIdleDemands = false;
  /// True if something outside of the block sends or receives; see computeDependences().
  bool besideMessages = false;
};

/// A block as a Problem, with facts about the loading.
struct LoadedBlock {
  explicit LoadedBlock(mlir::Block &block) : nodes(block) {}

  BlockNodes nodes;
  Problem problem;
  /// As loaded; see LoadOptions.
  bool besideMessages = false;
  /// Indexed by lane: the symbol of its group; null for the compute lane, and for a lane that several groups share.
  std::vector<mlir::FlatSymbolRefAttr> laneGroups;
  /// Numbers of values of dynamic size without a hint (they count as 0 bytes), and of operations of unknown cost.
  int64_t unknownSizes = 0, unknownCosts = 0;
  /// The values of unknown size. A future stands for its values in flight.
  std::vector<mlir::Value> unknownValues;
  /// Number of times and sizes that were cut, because their sums could overflow.
  int64_t cutValues = 0;
  /// Number of futures that arrive late (`comm.ready_ns`) on an unknown lane. That lane counts as free.
  int64_t unknownLanes = 0;
  /// Indexed by Node::group: the symbol of the group.
  std::vector<mlir::Attribute> groups;
  /// The defect of the problem (Problem::validate), after an error was emitted; or else empty.
  std::string defect;
};

/// Loads `block`. An operation with regions, and a call, is one node with the cost and the peak of its contents. If it
/// contains collectives, its cost is the makespan of the inner block, and it occupies their lanes (RegionWork). Emits
/// an error if the problem is not valid. O(operations + operands + edges), callees included.
LoadedBlock loadBlock(mlir::Block &block, const OperationCosts &costs, const LoadOptions &options = {});

/// Returns why a collective cannot be a member of a bucket, or an empty string if it can. A member is an all-gather,
/// reduce-scatter or all-reduce of one tensor of static size and whole bytes, along dimension 0, without a destination,
/// with exactly one wait, in the same block, and no other use. Such a collective gets a merge key if its storage is
/// known. O(1).
llvm::StringRef findMergeObstacle(comm::CollectiveOpInterface start);

/// The blocks that scheduling reorders: every block in `root`'s regions, nested ones included, that contains a start, a
/// wait or a hybrid. Innermost first. O(operations).
llvm::SmallVector<mlir::Block *> findSchedulableBlocks(mlir::Operation *root);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_PROBLEMLOADER_H
