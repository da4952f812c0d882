//===- Schedule.h - Schedules: an order, buckets, and their figures ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one type of an answer: which collectives are merged, the order in which everything runs, and what is claimed of
// it. The search of comm-schedule, comm-bucket's rule and every reordering rule return it; ScheduleVerifier.h checks
// it, Explain.h explains it, and Transforms carry it out.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_ANSWER_SCHEDULE_H
#define COMMSCHED_SCHEDULING_ANSWER_SCHEDULE_H

#include "CommSched/Scheduling/Answer/BothCosts.h"
#include "CommSched/Scheduling/Answer/CostScale.h"
#include "CommSched/Scheduling/Answer/LimitingFactor.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "CommSched/Support/MemoryBudget.h"
#include "CommSched/Support/Objective.h"
#include "llvm/Support/Compiler.h"
#include <optional>
#include <string>
#include <vector>

namespace commsched {

/// What a rule did for one start or wait, with what stopped it.
struct CollectiveRecord : Explanation {
  /// The start or wait that moved.
  NodeId node = kNone;
  /// How long its waits hold the compute lane, ns, in the order given and in the order returned.
  Ns initialExposed = 0, finalExposed = 0;
  /// By how many places it moved in its pass's direction, negative if it gave way to others, and how many nodes it took
  /// along.
  int32_t moves = 0, grouped = 0;

  Ns improvement() const { return initialExposed - finalExposed; }
};

/// What an answer says of itself; the verifier recounts it.
struct ScheduleClaims {
  Ns makespan = 0;
  Bytes peak = 0;
};

/// The way in which a collective is carried out.
struct VariantChoice {
  /// The start of the given problem; of a bucket, its first member.
  NodeId start = kNone;
  /// Index into Problem::variantNames.
  int32_t name = kNone;
};

/// An answer for one Problem.
struct Schedule {
  /// The merged collectives; empty if nothing is merged.
  std::vector<Bucket> buckets;
  /// The collectives that are not carried out as without a choice (Variants.h), ascending by start; empty if all are.
  std::vector<VariantChoice> variants;
  /// The problem with `buckets` and `variants` carried out. It may be left empty if there are neither.
  ExpandedProblem expanded;
  /// The nodes of carriedOut() in the order in which they run.
  Order order;
  std::optional<ScheduleClaims> claims;

  /// Of `order`, and of the order given; ns. See measure().
  Ns makespan = 0, inputMakespan = 0;
  Bytes peak = 0, inputPeak = 0;
  /// What the peak may reach, bytes; kUnlimited if memory is of no concern.
  Bytes limit = kUnlimited;
  /// The lowest peak of all orders, if it is above the limit and the search enumerated all of them, bytes.
  std::optional<Bytes> leastPeak;
  /// Steps of a search, and how many answers it found on the way, by each search the given order included.
  int64_t steps = 0;
  int32_t incumbents = 0;
  /// The least makespan of all orders within the limit that merge nothing, if the search enumerated all of them, ns.
  std::optional<Ns> leastOrder;
  /// The least makespan of all orders and buckets within the limit, if the search enumerated all of them, ns.
  std::optional<Ns> leastSchedule;
  /// The shortest order of the given problem that a search for the order alone found; empty if there was none.
  Order orderAlone;
  /// What was minimized: the objective that was asked for, or the makespan, if `whyMakespan` says why nothing was done
  /// for other scales.
  Objective objective = Objective::Makespan;
  std::string whyMakespan;
  /// At scales of the collectives' times, ascending; empty if `objective` is the makespan.
  std::vector<ScaledTimes> scales;
  /// regretPpm() of `scales`, if it is an upper bound.
  std::optional<int64_t> regretPpm;
  /// What a second opinion (ScheduleOptions::second) changed; none if there was none, or if nobody looked.
  std::optional<OpinionOutcome> opinion;
  /// The arena of a buffer plan, bytes, if the limit is about it. It is above `limit` if no answer was found that fits.
  std::optional<Bytes> arena;
  /// What a rule did, collective by collective, in the order in which it came to them.
  std::vector<CollectiveRecord> records;
  /// Not empty if this library contradicts itself: an answer that does not hold was dropped, or two counts of live
  /// bytes differ. `order` is one that holds.
  std::string defect;

  /// Whether the peak is within the limit. A search that starts from a peak above the limit returns the lowest peak
  /// that it reached.
  bool isWithinLimit() const { return peak <= limit; }
  /// The problem whose nodes `order` names.
  const Problem &carriedOut(const Problem &given LLVM_LIFETIME_BOUND) const {
    return isExpanded() ? expanded.problem : given;
  }
  bool isExpanded() const { return !expanded.image.empty(); }
  /// The node of carriedOut() that does the work of `node` of the given problem.
  NodeId imageOf(NodeId node) const { return isExpanded() ? expanded.image[node] : node; }
};

/// The answer that leaves everything as it is. O(N).
Schedule keepOrder(const Problem &problem);

/// The answer that merges `buckets` and otherwise keeps the given order. Fails where expandBuckets() does. O(N + E).
llvm::Expected<Schedule> mergeInOrder(const Problem &problem, std::vector<Bucket> buckets);

/// Fills in makespans and peaks, of the order given and of the answer's. O(N + touches); with contention as simulate().
void measure(const Problem &problem, Schedule &schedule);

/// Fills in the exposed times of `schedule.records` by playing both orders. O(N + lanes); with contention as
/// simulate().
void measureExposure(const Problem &problem, llvm::ArrayRef<NodeId> before, Schedule &schedule);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_ANSWER_SCHEDULE_H
