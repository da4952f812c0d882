//===- BoundArguments.cpp - The arguments for a lower bound, one by one ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The list, and the arguments that are no more than a few lines each.
//
//===------------------------------------------------------------------------------------------===//

#include "BoundArguments.h"
#include "Bounds/Arguments/PeakBound.h"
#include "llvm/ADT/STLExtras.h"
#include <array>

using namespace commsched;

BoundState::BoundState(const Problem &problem, const BoundCosts &costs, const BoundOptions &options,
                       const BucketShares *shares, BoundWitness *witness)
    : problem(problem), costs(costs), options(options), shares(shares), witness(witness),
      times(headsAndTails(problem, costs, options, witness ? &witness->levels : nullptr)), jobs(problem.numLanes()),
      load(problem.numLanes(), 0) {
  collectJobs();
}

void BoundState::collectJobs() {
  for (NodeId id = 0; id < problem.size(); ++id) {
    const Node &node = problem.nodes[id];
    if (Ns duration = costs.compute[id]; duration > 0) {
      bool beginsLater = node.kind == NodeKind::Hybrid || node.region != kNone;
      Ns head = beginsLater ? times.begin[id] : times.head[id];
      jobs[kComputeLane].push_back({head, duration, std::max(times.tail[id], times.entryTail[id] - duration)});
    }
    if (Ns duration = costs.lane[id]; duration > 0) {
      jobs[node.lane].push_back({times.begin[id], duration, times.laneTail[id]});
      // A node with regions occupies its other lanes as well.
      if (node.region != kNone)
        for (LaneId lane : llvm::ArrayRef<LaneId>(problem.regions[node.region].lanes).drop_front())
          jobs[lane].push_back({times.begin[id], duration, times.tail[id]});
    }
  }
  for (auto [first, last, cost] : costs.floating)
    jobs[kComputeLane].push_back({times.head[first], cost, times.tail[last]});
  for (auto [ofLane, sum] : llvm::zip_equal(jobs, load)) {
    sortByHead(ofLane);
    for (const Job &job : ofLane)
      sum += job.duration;
  }
}

bool BoundState::isLimited() const { return options.limit < kUnlimited && !problem.hasStreams(); }

void BoundState::raise(Ns makespan, BoundArgument argument, LaneId lane) {
  if (makespan <= bound.makespan)
    return;
  bound.makespan = bound.withLimit = makespan;
  bound.argument = argument;
  bound.lane = lane;
  bound.isCertified = isCertified;
}

void BoundState::raiseWithLimit(Ns makespan, LaneId lane) {
  if (makespan <= std::max(bound.makespan, bound.withLimit))
    return;
  bound.withLimit = makespan;
  bound.limitLane = lane;
  bound.isLimitCertified = isCertified;
}

bool BoundState::prove(Ns makespan, BoundWitness::Argument argument, LaneId lane, NodeId node) {
  if (!witness || makespan <= witness->makespan)
    return false;
  witness->makespan = makespan;
  witness->argument = argument;
  witness->lane = lane;
  witness->node = node;
  return true;
}

bool BoundState::proveMachine(const OneMachineBound &machine, LaneId lane) {
  if (!prove(machine.makespan, BoundWitness::OneMachine, lane))
    return false;
  witness->head = machine.head;
  witness->tail = machine.tail;
  return true;
}

namespace {

//===-----------------------------------------------------------------------------------------===//
// One lane, and a chain of dependences
//===-----------------------------------------------------------------------------------------===//

void boundByLoads(BoundState &state) {
  for (auto [lane, load] : llvm::enumerate(state.load)) {
    state.raise(load, BoundArgument::LaneLoad, static_cast<LaneId>(lane));
    state.proveMachine({load, 0, 0}, static_cast<LaneId>(lane));
  }
}

void boundByLongestPath(BoundState &state) { state.raise(state.times.longestPath, BoundArgument::CriticalPath, kNone); }

void boundByOneMachine(BoundState &state) {
  for (LaneId lane = 0; lane < state.problem.numLanes(); ++lane) {
    OneMachineBound machine = oneMachine(state.jobs[lane]);
    state.raise(machine.makespan, BoundArgument::OneMachine, lane);
    state.proveMachine(machine, lane);
  }
}

void boundThroughNodes(BoundState &state) {
  auto [through, node] = state.times.throughAny(state.costs);
  state.raise(through, BoundArgument::CriticalPath, kNone);
  state.prove(through, BoundWitness::ThroughNode, kNone, node);
}

//===-----------------------------------------------------------------------------------------===//
// Resources
//===-----------------------------------------------------------------------------------------===//

/// What the work of each node takes of one resource at least, in millionths (Lemmas 13 and 15). Indexed by node.
std::vector<int64_t> leastShares(const Problem &problem, unsigned resource, bool bucketing) {
  std::vector<int64_t> shares;
  for (const Node &node : problem.nodes) {
    int64_t share = problem.demandOf(node).share[resource];
    if (bucketing && node.mergeKey != kNone)
      share = std::min<int64_t>(share, problem.mergeKeys[node.mergeKey].leastDemand[resource]);
    shares.push_back(share);
  }
  // A pack may do the work of a cast.
  for (NodeId id = 0; bucketing && id < static_cast<NodeId>(problem.members.size()); ++id)
    if (NodeId cast = problem.members[id].cast; cast != kNone)
      shares[cast] = std::min<int64_t>(shares[cast], problem.copyDemand.share[resource]);
  return shares;
}

/// What the work of a node uses of a resource at least, in millionths of a nanosecond: a share of its time, or what its
/// bytes take (Lemma 27). `duration` is the time, or the charge of a start that may be merged.
Wide useOf(const Problem &problem, const Node &node, unsigned resource, Ns duration, int64_t share, bool bucketing) {
  const int64_t perBytes =
      bucketing && node.mergeKey != kNone ? problem.mergeKeys[node.mergeKey].leastUse[resource] : 0;
  if (perBytes == 0)
    return static_cast<Wide>(duration) * share;
  Wide alone = static_cast<Wide>(node.cost) * problem.demandOf(node).share[resource];
  Wide byBytes = static_cast<Wide>(node.bytes) * perBytes / kUseBytes;
  return std::min({alone, byBytes, static_cast<Wide>(duration) * kWhole});
}

/// What activities take of one resource: the sum, in millionths of a nanosecond, and the parts of at least 1 ns.
std::pair<Wide, std::vector<Job>> partsOf(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times,
                                          unsigned resource, bool bucketing) {
  std::vector<int64_t> shares = leastShares(problem, resource, bucketing);
  Wide load = 0;
  std::vector<Job> parts;
  for (NodeId id = 0; id < problem.size(); ++id) {
    const Node &node = problem.nodes[id];
    bool onLane = node.kind == NodeKind::Start || node.kind == NodeKind::Hybrid;
    Ns duration = onLane ? costs.lane[id] : costs.compute[id];
    Wide part = useOf(problem, node, resource, duration, shares[id], bucketing);
    load += part;
    if (part < kWhole)
      continue;
    bool beginsLater = onLane || node.region != kNone;
    Ns head = beginsLater ? times.begin[id] : times.head[id];
    Ns tail =
        node.kind == NodeKind::Start ? times.laneTail[id] : std::max(times.tail[id], times.entryTail[id] - duration);
    parts.push_back({head, static_cast<Ns>(part / kWhole), tail});
  }
  return {load, std::move(parts)};
}

/// Raises the bound by what the work takes of one resource.
void raiseByResource(BoundState &state, const OneMachineBound &machine, unsigned resource) {
  if (state.proveMachine(machine, kNone))
    state.witness->resource = static_cast<Resource>(resource);
  const Ns before = state.bound.makespan;
  state.raise(machine.makespan, BoundArgument::ResourceLoad, kNone);
  if (state.bound.makespan > before)
    state.bound.resource = static_cast<Resource>(resource);
}

void boundByResourceLoads(BoundState &state) {
  // Without contention no activity needs anything.
  for (unsigned resource = 0; resource < kNumResources && state.problem.hasContention(); ++resource) {
    Wide sum = partsOf(state.problem, state.costs, state.times, resource, state.hasBuckets()).first;
    raiseByResource(state, {static_cast<Ns>((sum + kWhole - 1) / kWhole), 0, 0}, resource);
  }
}

void boundByResourceMachines(BoundState &state) {
  for (unsigned resource = 0; resource < kNumResources && state.problem.hasContention(); ++resource) {
    std::vector<Job> parts = partsOf(state.problem, state.costs, state.times, resource, state.hasBuckets()).second;
    sortByHead(parts);
    raiseByResource(state, oneMachine(parts), resource);
  }
}

//===-----------------------------------------------------------------------------------------===//
// What is put off, and the number of buckets
//===-----------------------------------------------------------------------------------------===//

void boundByDeferral(BoundState &state) {
  state.deferral = deferralBounds(state.problem, state.costs, state.shares, state.bound.makespan);
  DeferralBound &plain = state.deferral.plain;
  state.raise(plain.makespan, BoundArgument::OneMachine, plain.lane);
  if (state.prove(plain.makespan, BoundWitness::Deferral, plain.lane))
    state.witness->starts = std::move(plain.starts);
}

void boundByLatencies(BoundState &state) {
  const DeferralBound &deferral = state.deferral.withLatencies;
  state.raise(deferral.makespan, BoundArgument::OneMachine, deferral.lane);
}

/// The spans of a lane at which Lemma 17 is tried: where the lane's jobs all are, and where the critical ones are,
/// which make the one-machine bound.
std::array<LaneSpan, 2> spansOf(LaneId lane, llvm::ArrayRef<Job> jobs) {
  LaneSpan all = {lane, INT64_MAX, INT64_MAX};
  for (const Job &job : jobs) {
    all.head = std::min(all.head, job.head);
    all.tail = std::min(all.tail, job.tail);
  }
  OneMachineBound critical = oneMachine(jobs);
  return {all, {lane, critical.head, critical.tail}};
}

void boundByBuckets(BoundState &state) {
  if (!state.hasBuckets())
    return;
  std::vector<LaneSpan> spans;
  for (LaneId lane = 0; lane < state.problem.numLanes(); ++lane)
    if (lane != kComputeLane && !state.jobs[lane].empty())
      llvm::append_range(spans, spansOf(lane, state.jobs[lane]));
  BatchBound batches = batchBound(state.problem, state.costs, state.times, *state.shares, spans, state.bound.makespan);
  state.raise(batches.makespan, BoundArgument::OneMachine, batches.lane);
}

//===-----------------------------------------------------------------------------------------===//
// The memory limit
//===-----------------------------------------------------------------------------------------===//

void boundByLimit(BoundState &state) {
  if (!state.isLimited())
    return;
  state.limited = memoryLimitedBound(state.problem, state.costs, state.times,
                                     mandatoryBytes(state.problem, state.options, state.hasBuckets()),
                                     state.options.limit, state.hasBuckets());
  state.raiseWithLimit(state.limited.makespan, state.limited.lane);
  state.prove(state.limited.makespan, BoundWitness::MemoryLimit, state.limited.lane, state.limited.node);
}

void boundByBucketsWithinLimit(BoundState &state) {
  if (!state.isLimited() || !state.hasBuckets())
    return;
  MemoryLimitedBound limited = memoryLimitedBatches(state.problem, state.costs, state.times, *state.shares,
                                                    state.options.limit, state.limited, state.bound.withLimit);
  state.raiseWithLimit(limited.makespan, limited.lane);
}

} // namespace

llvm::ArrayRef<BoundArgumentEntry> commsched::boundArguments() {
  static constexpr BoundArgumentEntry arguments[] = {
      {"lane-load", "1", true, boundByLoads},
      {"longest-path", "2", true, boundByLongestPath},
      {"one-machine", "3 to 5", true, boundByOneMachine},
      {"through-node", "2 to 4", true, boundThroughNodes},
      {"resource-load", "13, 15, 27", true, boundByResourceLoads},
      {"resources", "14, 15, 27", true, boundByResourceMachines},
      {"deferral", "29", true, boundByDeferral},
      {"latencies", "20", false, boundByLatencies},
      {"buckets", "17", false, boundByBuckets},
      {"memory-limit", "10, 11", true, boundByLimit},
      {"buckets-within-limit", "17", false, boundByBucketsWithinLimit},
  };
  return arguments;
}
