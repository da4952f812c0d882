//===- Search.h - The solver's search, private to it ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCH_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCH_H

#include "CommSched/Scheduling/Solver/Scheduler.h"
#include "Decoder.h"
#include "Portfolio.h"

namespace commsched {

/// Looks for short decodes under one limit.
class Search {
public:
  /// `given` has to fit `limit`; it is the first incumbent. Of `options` counts what an answer has to keep, and the
  /// slow-downs that it is timed with.
  Search(const ScheduleFacts &facts, const ScheduleOptions &options, Order given, Bytes limit);

  /// Decodes the portfolio and then climbs, until `effort` steps are spent or `bound` is reached.
  void run(int64_t effort, Ns bound);
  /// Takes over the answer of another search of the same problem and limit if it is shorter.
  void adopt(const Search &other);

  const DecodedSchedule &best() const { return incumbent; }
  const ExpandedProblem &expanded() const { return carriedOut; }
  const Order &order() const { return bestOrder; }
  /// With the slow-downs.
  Ns makespan() const { return bestMakespan; }
  Bytes peak() const { return incumbent.peak; }
  int64_t steps() const { return spent; }
  int32_t incumbents() const { return numIncumbents; }
  const std::string &defect() const { return firstDefect; }

private:
  /// Gives tests a way to accept(), which nothing wrong reaches otherwise.
  friend struct SearchTestAccess;

  /// A policy with the reference that it was decoded on, what it adds to the keys, and the makespan, with the
  /// slow-downs, that came out.
  struct Point {
    Policy policy;
    int32_t reference = 0;
    Ns makespan = 0;
    std::vector<Ns> bias;
  };

  bool exhausted() const { return spent >= budget || bestMakespan <= target; }
  bool isAnswered() const;
  void begin(const Policy &policy);
  void aim();
  Ns decode(Point &point, Ns cutoff);
  Ns timeOf(const DecodedSchedule &decoded);
  bool accept(const DecodedSchedule &decoded);
  bool settleUnits(DecodedSchedule &decoded);
  bool searchExactly(int64_t share);
  void addReference(const DecodedSchedule &decoded);
  void sweep(Point &point);
  void climb();
  void perturb(Point &point, Generator &random) const;

  const ScheduleFacts &facts;
  CollectiveOrder mode;
  const SlowDown &slowDown;
  Bytes limit;
  /// Whether the problem has units, which every answer keeps together.
  bool units;
  Decoder decoder;
  /// The given order, and the incumbent's without its buckets where that fits.
  std::vector<Reference> references;
  DecodedSchedule incumbent;
  /// Of the incumbent, with the slow-downs; DecodedSchedule::makespan is without.
  Ns bestMakespan = 0;
  ExpandedProblem carriedOut;
  Order bestOrder;
  std::vector<Point> points;
  int64_t spent = 0, budget = 0;
  Ns target = 0;
  int32_t numIncumbents = 0;
  std::string firstDefect;
};

/// The order of a decode on the problem as it was, with the members of a bucket one after the other.
Order withoutBuckets(const Problem &problem, const DecodedSchedule &decoded);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCH_H
