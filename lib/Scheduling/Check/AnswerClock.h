//===- AnswerClock.h - The verifier's own clock of shared resources ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Counts time by the rules of Models.md, "Contention", for the AnswerVerifier. It shares no code with the
// ContentionClock that solvers plan with: it finds rates by sorting instead of by rounds, and it looks at all lanes
// whenever something ends.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_CHECK_ANSWERCLOCK_H
#define COMMSCHED_LIB_SCHEDULING_CHECK_ANSWERCLOCK_H

#include "CommSched/Support/Demand.h"
#include "CommSched/Support/Units.h"
#include <deque>
#include <vector>

namespace commsched {

/// Time, the work that lies on each lane, and the computation that runs. An operation takes O(lanes x resources) for
/// each activity that ends meanwhile.
class AnswerClock {
public:
  /// Lane 0 computes. Times end at `last`, ns, at which everything is over.
  AnswerClock(int32_t lanes, Ns last) : lanes(lanes), last(last) {}

  Ns now() const { return time; }
  /// Puts work behind what lies on a communication lane. Returns its number.
  size_t put(int32_t lane, Ns cost, const Demand &demand);
  /// Runs a computation to its end.
  void compute(Ns cost, const Demand &demand);
  void passUntil(Ns until);
  void passUntilDone(size_t work);
  void passUntilEmpty(int32_t lane);
  void passUntilAllEmpty();

private:
  struct Work {
    /// What is left, in millionths of a nanosecond.
    Wide left;
    Demand demand;
    int32_t lane;
    bool done;
  };

  void passUntilNextEnd(Ns until);
  std::vector<int64_t> ratesOf(const std::vector<size_t> &fronts) const;

  /// By lane: numbers of what has not ended; the computation is lane 0's.
  std::vector<std::deque<size_t>> lanes;
  std::vector<Work> works;
  Ns time = 0;
  Ns last;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_CHECK_ANSWERCLOCK_H
