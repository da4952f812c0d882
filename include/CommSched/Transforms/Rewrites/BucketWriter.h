//===- BucketWriter.h - Carry out buckets and orders in IR ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Applies a solver's decision on a Problem to the block from which the Problem was loaded.
// Scheduling/Buckets/Bucketing.h has the rules by which a bucket becomes operations: the rewritten block loads as the
// expanded Problem, with equal nanoseconds and bytes. The users are comm-schedule's search, comm-bucket's greedy rule,
// and embedders with buckets of their own, which do
//
//   LoadedBlock loaded = loadBlock(block, costs, {order, /*bucketing=*/true});
//   std::vector<Bucket> buckets = ...;                                      // starts by NodeId, see LoadedBlock::nodes
//   llvm::Expected<Schedule> schedule = mergeInOrder(loaded.problem, buckets);           // refuses illegal buckets
//   std::string wrong = verify(loaded.problem, *schedule, {});                           // empty
//   applySchedule(loaded, *schedule);
//
// A packed bucket of all-gathers whose members have different element types moves as bytes. No other packed bucket may
// mix types, because a reduction computes with its elements.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_REWRITES_BUCKETWRITER_H
#define COMMSCHED_TRANSFORMS_REWRITES_BUCKETWRITER_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Scheduling/Answer/Schedule.h"

namespace commsched {

/// Reorders the operations of a block; the terminator stays last. `ops` are all operations except the terminator.
/// O(operations).
void applyOrder(mlir::Block &block, llvm::ArrayRef<mlir::Operation *> ops);

/// Gives each bucket a merge key of its own with the cost of the collective that it becomes: a collective of bytes if a
/// packed bucket has members of several element types, or else one like its first member. If members have measured
/// times, the cost is multiplied by the sum of the members' times over the sum of their modelled times. Call it before
/// expandBuckets(), for blocks loaded with mixed types or without LoadOptions::separatesMeasured. O(members).
void priceBuckets(LoadedBlock &loaded, llvm::ArrayRef<Bucket> buckets, const OperationCosts &costs);

/// Warns, at the operation that contains `block`, if the time or the memory of the block differs from the prediction of
/// `pass`, by any nanosecond or byte. O(operations + edges).
void comparePrediction(mlir::Block &block, const OperationCosts &costs, CollectiveOrder order, Ns makespan, Bytes peak,
                       llvm::StringRef pass);

/// Applies a schedule that verify() accepts: its buckets, and its order. Erases the starts, waits and fused casts of
/// the members; `loaded` is stale afterwards. O(operations).
void applySchedule(const LoadedBlock &loaded, const Schedule &schedule);

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_REWRITES_BUCKETWRITER_H
