//===- AnswerClock.cpp - The verifier's own clock of shared resources -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// At any time the first work of each lane runs. A resource is divided by looking at its users in the order of what they
// need for one unit of weight: those that need little are served, and the first that cannot be is where the rest of the
// resource is split.
//
//===------------------------------------------------------------------------------------------===//

#include "AnswerClock.h"
#include <algorithm>

using namespace commsched;

size_t AnswerClock::put(int32_t lane, Ns cost, const Demand &demand) {
  works.push_back({static_cast<Wide>(cost) * kWhole, demand, lane, cost == 0 && lanes[lane].empty()});
  if (!works.back().done)
    lanes[lane].push_back(works.size() - 1);
  return works.size() - 1;
}

void AnswerClock::compute(Ns cost, const Demand &demand) {
  put(0, cost, demand);
  passUntilEmpty(0);
}

void AnswerClock::passUntil(Ns until) {
  while (time < std::min(until, last))
    passUntilNextEnd(until);
}

void AnswerClock::passUntilDone(size_t work) {
  while (!works[work].done)
    passUntilNextEnd(last);
}

void AnswerClock::passUntilEmpty(int32_t lane) {
  while (!lanes[lane].empty())
    passUntilNextEnd(last);
}

void AnswerClock::passUntilAllEmpty() {
  for (size_t lane = 0; lane < lanes.size(); ++lane)
    passUntilEmpty(static_cast<int32_t>(lane));
}

std::vector<int64_t> AnswerClock::ratesOf(const std::vector<size_t> &fronts) const {
  std::vector<int64_t> rates(fronts.size(), kWhole);
  for (size_t resource = 0; resource < kNumResources; ++resource) {
    auto need = [&](size_t at) -> int64_t { return works[fronts[at]].demand.share[resource]; };
    auto weight = [&](size_t at) -> int64_t { return works[fronts[at]].demand.weight[resource]; };
    std::vector<size_t> users;
    int64_t weights = 0, available = kWhole;
    for (size_t at = 0; at < fronts.size(); ++at)
      if (need(at) > 0) {
        users.push_back(at);
        weights += weight(at);
      }
    std::sort(users.begin(), users.end(),
              [&](size_t a, size_t b) { return need(a) * weight(b) < need(b) * weight(a); });
    for (size_t at : users) {
      if (need(at) * weights > available * weight(at)) {
        // `available` and `weights` are those of this one and of all that follow, none of which is satisfied.
        int64_t rate = kWhole * available * weight(at) / (weights * need(at));
        rates[at] = std::max<int64_t>(1, std::min(rates[at], rate));
        continue;
      }
      available -= need(at);
      weights -= weight(at);
    }
  }
  return rates;
}

void AnswerClock::passUntilNextEnd(Ns until) {
  std::vector<size_t> fronts;
  for (const std::deque<size_t> &lane : lanes)
    if (!lane.empty())
      fronts.push_back(lane.front());
  std::vector<int64_t> rates = ratesOf(fronts);
  Ns next = std::min(until, last);
  for (size_t at = 0; at < fronts.size(); ++at) {
    Wide end = time + (works[fronts[at]].left + rates[at] - 1) / rates[at];
    next = static_cast<Ns>(std::min<Wide>(next, end));
  }
  next = std::max(next, time);
  for (size_t at = 0; at < fronts.size(); ++at) {
    Work &work = works[fronts[at]];
    work.left -= static_cast<Wide>(next - time) * rates[at];
    if (work.left > 0 && next < last)
      continue;
    work.done = true;
    std::deque<size_t> &lane = lanes[work.lane];
    lane.pop_front();
    // What takes no time is over as soon as it is its turn.
    while (!lane.empty() && works[lane.front()].left == 0) {
      works[lane.front()].done = true;
      lane.pop_front();
    }
  }
  time = next;
}
