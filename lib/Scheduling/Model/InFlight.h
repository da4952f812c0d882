//===- InFlight.h - Collectives in flight and their slow-downs --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Collectives in flight are kept as disjoint intervals, so that slow-downs cost O(log F) per node.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_MODEL_INFLIGHT_H
#define COMMSCHED_LIB_SCHEDULING_MODEL_INFLIGHT_H

#include "CommSched/Scheduling/Model/Timeline.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <map>

namespace commsched {

/// `ns` of work at a rate of 1000 / (1000 + permille), rounded up. Saturates.
inline Ns stretched(Ns ns, int32_t permille) { return mulDivUp(ns, kPermille + permille, kPermille); }

/// How much work fits into `ns` at that rate, rounded down.
inline Ns workWithin(Ns ns, int32_t permille) { return mulDiv(ns, kPermille, kPermille + permille); }

/// The collectives issued so far, as far as they can still matter.
class InFlight {
public:
  InFlight(const SlowDown &slowDown, LaneId lanes) : slowDown(slowDown), flights(lanes) {
    for (LaneId lane = 1; lane < lanes; ++lane)
      if (int32_t link = linkOf(lane); link != kNone)
        lanesOfLink[link].push_back(lane);
  }

  /// How long a collective of `cost` takes that begins on `lane` at `begin`; registers it. O(lanes of its link + log
  /// F).
  Ns launch(LaneId lane, Ns begin, Ns cost) {
    Ns duration = cost;
    int32_t link = linkOf(lane);
    if (slowDown.linkPermille > 0 && link != kNone &&
        llvm::any_of(lanesOfLink[link], [&](LaneId other) { return other != lane && flies(other, begin); }))
      duration = stretched(cost, slowDown.linkPermille);
    if (duration > 0) {
      flights[lane].push_back({begin, begin + duration});
      cover(begin, begin + duration);
    }
    return duration;
  }

  /// When `work` on the compute lane that begins at `now` has ended. Forgets what ended before: nothing later in the
  /// order begins before the compute lane's time. O(log F) amortised.
  Ns endOfCompute(Ns now, Ns work) {
    if (slowDown.computePermille <= 0)
      return now + work;
    while (!busy.empty()) {
      auto [begin, end] = *busy.begin();
      if (end <= now) {
        busy.erase(busy.begin());
        continue;
      }
      if (begin > now) {
        Ns alone = std::min(work, begin - now);
        now += alone, work -= alone;
      }
      if (work == 0)
        return now;
      Ns done = workWithin(end - now, slowDown.computePermille);
      if (work <= done)
        return now + stretched(work, slowDown.computePermille);
      now = end, work -= done;
    }
    return now + work;
  }

private:
  struct Flight {
    Ns begin, end;
  };

  int32_t linkOf(LaneId lane) const {
    return lane < static_cast<LaneId>(slowDown.linkOfLane.size()) ? slowDown.linkOfLane[lane] : kNone;
  }

  /// Whether a collective of `lane` is in flight at `time`. A lane's flights follow one another.
  bool flies(LaneId lane, Ns time) const {
    const std::vector<Flight> &list = flights[lane];
    auto after = std::partition_point(list.begin(), list.end(), [&](const Flight &f) { return f.begin <= time; });
    return after != list.begin() && time < std::prev(after)->end;
  }

  /// Adds [begin, end) to the times at which something flies; what touches becomes one interval.
  void cover(Ns begin, Ns end) {
    auto next = busy.upper_bound(begin);
    if (next != busy.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
      end = std::max(end, next->second);
      next = busy.erase(next);
    }
    for (; next != busy.end() && next->first <= end; next = busy.erase(next))
      end = std::max(end, next->second);
    busy[begin] = end;
  }

  const SlowDown &slowDown;
  std::vector<std::vector<Flight>> flights;
  std::map<int32_t, std::vector<LaneId>> lanesOfLink;
  /// Disjoint, by beginning.
  std::map<Ns, Ns> busy;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_MODEL_INFLIGHT_H
