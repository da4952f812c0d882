//===- CollectiveRecord.h - What a pass did for each collective, and what stopped it ----------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The reordering passes answer with an order and one record per collective: how long it was exposed before and after,
// how far it moved, and the limiting factor, with numbers. Remarks and reports are written from these.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_MODEL_COLLECTIVERECORD_H
#define COMMSCHED_SCHEDULING_MODEL_COLLECTIVERECORD_H

#include "CommSched/Scheduling/Model/Problem.h"

namespace commsched {

/// Why a collective, or a wait, did not move any further.
enum class LimitingFactor : uint8_t {
  /// Nothing was tried.
  None,
  /// It stands at the block's end.
  BlockEnd,
  /// `blocker` is in the way: a dependence on a node that may not be taken along.
  DataDependence,
  /// `blocker` is a collective that it may not pass.
  CollectiveOrder,
  /// Passing `blocker` would make the peak `reached` bytes, above `limit`.
  PeakMemory,
  /// Compute already covers it, the overlap factor included.
  AlreadyHidden,
  /// Passing `blocker` would expose other collectives by `reached` ns more in total.
  ExposesOthers,
  /// The group would become larger than `limit` nodes.
  GroupLimit,
  /// The limit of `limit` collectives to move was reached before it.
  MoveLimit,
  /// Its moves would raise the makespan from `limit` to `reached` ns; they were taken back.
  Makespan,
  /// Its lane is busy with `blocker` until it begins.
  LaneBusy,
  /// Nothing but the order keeps it from an earlier beginning.
  Preference,
  /// It stands with its group.
  Grouped,
  /// Its group could not be kept together, or in turn: a node outside of the group depends on it and leads back to it.
  GroupDissolved,
  /// With its moves, and those of the others, the units of the block could not be kept together within the limits.
  Units,
  /// It passed `limit` nodes, which is as far as a single collective may be prefetched.
  PrefetchLimit,
  /// It begins with the block, and there is not enough to compute until it is needed.
  StartsAtOnce,
};

/// The name of a limiting factor, in words ("peak memory").
llvm::StringRef stringify(LimitingFactor factor);

struct CollectiveRecord {
  /// The start or wait that moved.
  NodeId node = kNone;
  /// How long its waits hold the compute lane, ns, in the order given and in the order returned.
  Ns initialExposed = 0, finalExposed = 0;
  /// By how many places it moved in its pass's direction, negative where it gave way to others, and how many nodes it
  /// took along.
  int32_t moves = 0, grouped = 0;
  LimitingFactor factor = LimitingFactor::None;
  NodeId blocker = kNone;
  int64_t reached = 0, limit = 0;

  Ns improvement() const { return initialExposed - finalExposed; }
};

/// An answer of a reordering pass.
struct ReorderResult {
  Order order;
  std::vector<CollectiveRecord> records;
  /// What the peak might reach, bytes; -1 where it was no concern.
  Bytes peakLimit = -1;
  /// What went wrong, or empty: then `order` is the given one. Only a memory recount can go wrong.
  std::string error;
};

/// Fills in the exposed times of `result.records`, by playing both orders. O(N + lanes).
void measureExposure(const Problem &problem, llvm::ArrayRef<NodeId> before, ReorderResult &result);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_MODEL_COLLECTIVERECORD_H
