//===- BucketWriter.h - Carry out buckets and orders in IR ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What a solver decided on a Problem, done to the block that the Problem was loaded from. The rules by which a bucket
// becomes operations are those of Scheduling/Bucketing.h: the rewritten block loads as the expanded Problem, to the
// nanosecond and the byte. Whoever decides buckets uses it: comm-schedule's search, comm-bucket's greedy rule, or an
// embedder with buckets of its own, which does
//
//   LoadedBlock loaded = loadBlock(block, costs, {order, /*bucketing=*/true});
//   std::vector<Bucket> buckets = ...;                                      // starts by NodeId, see LoadedBlock::nodes
//   llvm::Expected<Schedule> schedule = mergeInOrder(loaded.problem, buckets);           // refuses illegal buckets
//   std::string wrong = verify(loaded.problem, *schedule, {});                           // empty
//   applySchedule(loaded, *schedule);
//
// A bucket of all-gathers whose members have different element types goes as bytes; no other kind may mix types when
// packed, as a reduction computes with its elements.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_REWRITES_BUCKETWRITER_H
#define COMMSCHED_TRANSFORMS_REWRITES_BUCKETWRITER_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Scheduling/Model/Schedule.h"

namespace commsched {

/// Puts the operations of a block into an order, the terminator last. `ops` are all of them but the terminator.
/// O(operations): one pass of moves, no question in between.
void applyOrder(mlir::Block &block, llvm::ArrayRef<mlir::Operation *> ops);

/// Gives each bucket a merge key of its own with the cost of the collective that it becomes: of bytes where a packed
/// bucket has members of several element types, of its first member otherwise. If members have measured times, the cost
/// is multiplied by the sum of the members' times over the sum of what the model says for them. For blocks loaded with
/// mixed types or without LoadOptions::separatesMeasured, before expandBuckets(). O(members).
void priceBuckets(LoadedBlock &loaded, llvm::ArrayRef<Bucket> buckets, const OperationCosts &costs);

/// Warns, at the operation that holds `block`, where the block as it is now does not take the time and the memory that
/// `pass` predicted: to the nanosecond and the byte. O(operations + edges).
void comparePrediction(mlir::Block &block, const OperationCosts &costs, CollectiveOrder order, Ns makespan, Bytes peak,
                       llvm::StringRef pass);

/// Carries out a schedule that verify() lets pass: its buckets, and its order. Starts, waits and fused casts of members
/// are erased; `loaded` is stale afterwards. O(operations).
void applySchedule(const LoadedBlock &loaded, const Schedule &schedule);

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_REWRITES_BUCKETWRITER_H
