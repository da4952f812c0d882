//===- ContentionClock.cpp - The clock of activities that share resources ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Rates change only when an activity begins or ends. In between, work that is left is counted in millionths of a
// nanosecond, so that nothing is rounded; an activity ends at the first whole nanosecond at which its work is done.
//
//===------------------------------------------------------------------------------------------===//

#include "ContentionClock.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <numeric>

using namespace commsched;

/// Divides a resource that is short, and lowers the rates of those that get less than they need.
static void shareResource(unsigned resource, llvm::ArrayRef<const Demand *> demands,
                          llvm::MutableArrayRef<int64_t> rates) {
  int64_t weights = 0, left = kWhole;
  llvm::SmallVector<size_t, 8> users;
  for (auto [index, demand] : llvm::enumerate(demands))
    if (demand->share[resource] > 0) {
      weights += demand->weight[resource];
      users.push_back(index);
    }
  // Whoever is satisfied leaves more for the others, so they are looked at again.
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t at = 0; at < users.size(); ++at) {
      int64_t share = demands[users[at]]->share[resource], weight = demands[users[at]]->weight[resource];
      if (share * weights > left * weight)
        continue;
      left -= share;
      weights -= weight;
      users[at] = users.back();
      users.pop_back();
      changed = true;
      --at;
    }
  }
  for (size_t user : users) {
    int64_t share = demands[user]->share[resource], weight = demands[user]->weight[resource];
    rates[user] = std::max<int64_t>(1, std::min(rates[user], kWhole * left * weight / (weights * share)));
  }
}

void commsched::shareResources(llvm::ArrayRef<const Demand *> demands, llvm::MutableArrayRef<int64_t> rates) {
  std::fill(rates.begin(), rates.end(), kWhole);
  std::array<int64_t, kNumResources> needed{};
  for (const Demand *demand : demands)
    for (unsigned resource = 0; resource < kNumResources; ++resource)
      needed[resource] += demand->share[resource];
  for (unsigned resource = 0; resource < kNumResources; ++resource)
    if (needed[resource] > kWhole)
      shareResource(resource, demands, rates);
}

int64_t commsched::rateBeside(llvm::ArrayRef<const Demand *> others, const Demand &demand) {
  llvm::SmallVector<const Demand *, 8> demands(others);
  demands.push_back(&demand);
  llvm::SmallVector<int64_t, 8> rates(demands.size());
  shareResources(demands, rates);
  return rates.back();
}

void ContentionClock::resetTo(Ns begin) {
  state.running.clear();
  state.shared = true;
  state.time = begin;
  flights.clear();
  lanes.resize(std::max<LaneId>(problem.numLanes(), 1));
  for (Lane &lane : lanes) {
    lane.queue.clear();
    lane.lastEnd = 0;
  }
  state.over.assign(lanes.size(), 0);
}

void ContentionClock::reset() {
  resetTo(0);
  for (LaneId lane = 1; lane < static_cast<LaneId>(problem.busyUntil.size()); ++lane)
    if (problem.busyUntil[lane] > 0)
      issue(lane, problem.busyUntil[lane], Demand());
  advanceTo(problem.busyUntil.empty() ? 0 : problem.busyUntil.front());
}

ContentionClock::Ticket ContentionClock::issue(LaneId lane, Ns cost, const Demand &demand) {
  return issueLeft(lane, static_cast<Wide>(cost) * kWhole, demand);
}

ContentionClock::Ticket ContentionClock::issueLeft(LaneId lane, Wide work, const Demand &demand) {
  auto ticket = static_cast<Ticket>(flights.size());
  std::vector<Ticket> &queue = lanes[lane].queue;
  Ns before = queue.empty() ? 0 : flights[queue.back()].issuedUpTo;
  auto cost = static_cast<Ns>((work + kWhole - 1) / kWhole);
  flights.push_back({lane, kNone, kNone, cost, work, before + cost, demand});
  queue.push_back(ticket);
  if (state.over[lane] + 1 == queue.size())
    start(lane);
  return ticket;
}

const ContentionClock::Activity *ContentionClock::frontOf(LaneId lane) const {
  for (const Activity &activity : state.running)
    if (activity.ticket != kNone && flights[activity.ticket].lane == lane)
      return &activity;
  return nullptr;
}

/// Ceiling of work in nanoseconds at a rate.
static Wide timeFor(Wide work, int64_t rate) {
  if (work <= INT64_MAX - kWhole)
    return (static_cast<int64_t>(work) + rate - 1) / rate;
  return (work + rate - 1) / rate;
}

Ns ContentionClock::leastEndOf(Ticket ticket) const {
  const Flight &flight = flights[ticket];
  if (flight.end >= 0)
    return flight.end;
  const Activity *front = frontOf(flight.lane);
  Ns behind = flight.issuedUpTo - flights[front->ticket].issuedUpTo;
  return static_cast<Ns>(std::min<Wide>(kMaxTotalNs, state.time + timeFor(front->left, kWhole) + behind));
}

Ns ContentionClock::freeAt(LaneId lane) const {
  const Lane &info = lanes[lane];
  return state.over[lane] == info.queue.size() ? info.lastEnd : leastEndOf(info.queue.back());
}

/// Starts the first collective of a lane that is not over. Those of no duration are over at once.
void ContentionClock::start(LaneId lane) {
  Lane &info = lanes[lane];
  size_t &over = state.over[lane];
  for (; over < info.queue.size(); ++over) {
    Flight &flight = flights[info.queue[over]];
    flight.begin = state.time;
    if (flight.cost > 0) {
      state.running.push_back({info.queue[over], &flight.demand, flight.work, kWhole});
      state.shared = false;
      return;
    }
    flight.end = info.lastEnd = state.time;
  }
}

void ContentionClock::share(State &current) const {
  llvm::SmallVector<const Demand *, 8> demands;
  llvm::SmallVector<int64_t, 8> rates(current.running.size());
  for (const Activity &activity : current.running)
    demands.push_back(activity.demand);
  shareResources(demands, rates);
  for (auto [activity, rate] : llvm::zip_equal(current.running, rates))
    activity.rate = rate;
  current.shared = true;
}

/// Lets time pass until `until` or until the first activity ends, whichever comes first. Calls `onEnd` with every
/// activity that ends, after it has left `running`.
template <class OnEnd> void ContentionClock::step(State &current, Ns until, OnEnd onEnd) const {
  if (!current.shared)
    share(current);
  Wide span = std::min(until, kMaxTotalNs) - current.time;
  for (const Activity &activity : current.running)
    span = std::min(span, timeFor(activity.left, activity.rate));
  span = std::max<Wide>(span, 0);
  current.time += static_cast<Ns>(span);
  bool isLast = current.time >= kMaxTotalNs, anyEnds = false;
  for (Activity &activity : current.running) {
    activity.left -= span * activity.rate;
    anyEnds |= isLast || activity.left <= 0;
  }
  if (!anyEnds)
    return;
  llvm::SmallVector<Ticket, 4> ended;
  llvm::erase_if(current.running, [&](const Activity &activity) {
    bool ends = isLast || activity.left <= 0;
    if (ends)
      ended.push_back(activity.ticket);
    return ends;
  });
  current.shared = false;
  for (Ticket ticket : ended)
    onEnd(ticket);
}

void ContentionClock::step(Ns until) {
  if (uses) {
    if (!state.shared)
      share(state);
    writeDown();
  }
  step(state, until, [&](Ticket ticket) {
    if (ticket == kNone)
      return;
    Flight &flight = flights[ticket];
    flight.end = lanes[flight.lane].lastEnd = state.time;
    ++state.over[flight.lane];
    start(flight.lane);
  });
}

/// Appends what is in use from now on.
void ContentionClock::writeDown() {
  ResourceUse use;
  use.begin = state.time;
  for (unsigned resource = 0; resource < kNumResources; ++resource) {
    int64_t share = 0;
    for (const Activity &activity : state.running)
      share += activity.demand->share[resource] * activity.rate / kWhole;
    use.share[resource] = static_cast<int32_t>(std::min(share, kWhole));
  }
  if (!uses->empty() && uses->back().begin == use.begin)
    uses->pop_back();
  if (uses->empty() || uses->back().share != use.share)
    uses->push_back(use);
}

void ContentionClock::advanceTo(Ns until) {
  while (state.time < until && state.time < kMaxTotalNs)
    step(until);
}

void ContentionClock::begin(Ns cost, const Demand &demand) {
  state.running.push_back({kNone, &demand, static_cast<Wide>(cost) * kWhole, kWhole});
  state.shared = false;
}

bool ContentionClock::computes() const {
  return llvm::any_of(state.running, [](const Activity &activity) { return activity.ticket == kNone; });
}

Ns ContentionClock::run(Ns cost, const Demand &demand) {
  if (cost <= 0)
    return state.time;
  begin(cost, demand);
  while (computes())
    step(kMaxTotalNs);
  return state.time;
}

void ContentionClock::finish(Ticket ticket) {
  while (!isOver(ticket))
    step(kMaxTotalNs);
}

void ContentionClock::clear(LaneId lane) {
  while (state.over[lane] < lanes[lane].queue.size())
    step(kMaxTotalNs);
}

Ns ContentionClock::drain() {
  while (!state.running.empty())
    step(kMaxTotalNs);
  if (uses)
    writeDown();
  return state.time;
}

Ns ContentionClock::endIfIdle(Ticket ticket) const {
  if (isOver(ticket))
    return flights[ticket].end;
  State imagined = state;
  Ns end = kNone;
  while (end < 0)
    step(imagined, kMaxTotalNs, [&](Ticket ended) {
      if (ended == ticket)
        end = imagined.time;
      LaneId lane = flights[ended].lane;
      const std::vector<Ticket> &queue = lanes[lane].queue;
      for (size_t &over = ++imagined.over[lane]; over < queue.size(); ++over) {
        const Flight &next = flights[queue[over]];
        if (next.cost > 0) {
          imagined.running.push_back({queue[over], &next.demand, next.work, kWhole});
          break;
        }
        if (queue[over] == ticket)
          end = imagined.time;
      }
    });
  return end;
}

int64_t ContentionClock::progressWith(llvm::ArrayRef<const Demand *> more) const {
  llvm::SmallVector<const Demand *, 8> demands(more);
  for (const Activity &activity : state.running)
    demands.push_back(activity.demand);
  llvm::SmallVector<int64_t, 8> rates(demands.size());
  shareResources(demands, rates);
  return std::accumulate(rates.begin(), rates.end(), int64_t(0));
}
