//===- Bounds.cpp - Lower bounds on the makespan and on the peak ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Combines the arguments of Bounds.md into one bound, and names the simplest argument among the strongest ones.
// The bound for buckets is the same with other costs (Lemma 8).
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "BatchBound.h"
#include "BucketPairs.h"
#include "BucketShares.h"
#include "CommSched/Scheduling/Bounds/BoundWitness.h"
#include "CommSched/Scheduling/Model/Bucketing.h"
#include "CommSched/Scheduling/Model/Variants.h"
#include "DeferralBound.h"
#include "HeadsAndTails.h"
#include "MemoryLimitedBound.h"
#include "PruneLevels.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <array>
#include <queue>

using namespace commsched;

std::string LowerBound::describe(const Problem &problem) const {
  if (argument == BoundArgument::CriticalPath)
    return "critical path";
  if (argument == BoundArgument::ResourceLoad)
    return "resource " + stringify(resource).str();
  if (lane == kComputeLane)
    return "compute lane";
  const std::string &name = problem.laneNames[lane];
  return (name.find(',') == std::string::npos ? "lane of group " : "lane of groups ") + name;
}

std::string LowerBound::describeWithLimit(const Problem &problem) const {
  return limitLane == kNone ? describe(problem) : "peak limit and lane of group " + problem.laneNames[limitLane];
}

namespace {

/// A piece of work of one lane. It begins at `head` or later, and at least `tail` passes after its end, ns.
struct Job {
  Ns head, duration, tail;
};

/// Sorts jobs by their heads, unless they are. Jobs of one head stay in their order.
void sortByHead(std::vector<Job> &jobs) {
  auto isEarlier = [](const Job &a, const Job &b) { return a.head < b.head; };
  if (!llvm::is_sorted(jobs, isEarlier))
    llvm::stable_sort(jobs, isEarlier);
}

/// The shortest preemptive makespan of the jobs on one machine (Lemma 5): Jackson's rule always runs the available job
/// with the longest tail (J. R. Jackson, 1955). O(n log n).
/// `lastTail`: the tail of the job that determines it, ns.
Ns oneMachine(std::vector<Job> jobs, Ns &lastTail) {
  sortByHead(jobs);
  std::priority_queue<std::pair<Ns, Ns>> ready;
  Ns now = 0, makespan = 0;
  size_t next = 0;
  while (next < jobs.size() || !ready.empty()) {
    if (ready.empty())
      now = std::max(now, jobs[next].head);
    for (; next < jobs.size() && jobs[next].head <= now; ++next)
      ready.push({jobs[next].tail, jobs[next].duration});
    auto [tail, left] = ready.top();
    ready.pop();
    if (next == jobs.size() || now + left <= jobs[next].head) {
      now += left;
      if (now + tail > makespan) {
        makespan = now + tail;
        lastTail = tail;
      }
    } else {
      ready.push({tail, left - (jobs[next].head - now)});
      now = jobs[next].head;
    }
  }
  return makespan;
}

BoundCosts costsAsGiven(const Problem &problem) {
  BoundCosts costs;
  for (const Node &node : problem.nodes) {
    bool communicates = node.kind == NodeKind::Start || node.kind == NodeKind::Hybrid;
    costs.compute.push_back(node.kind == NodeKind::Start ? node.issue : node.kind == NodeKind::Wait ? 0 : node.cost);
    costs.lane.push_back(communicates ? node.cost : 0);
    costs.path.push_back(communicates ? node.cost : 0);
  }
  return costs;
}

/// The charges of Lemma 8. The issue cost of a bucket is left out, and casts are charged their share of the pack.
BoundCosts costsInBuckets(const Problem &problem, const BucketShares &shares) {
  BoundCosts costs = costsAsGiven(problem);
  for (NodeId id = 0; id < problem.size(); ++id) {
    if (shares.cast[id] != kNone)
      costs.compute[id] = shares.cast[id];
    if (shares.lane[id] == kNone)
      continue;
    const Node &node = problem.nodes[id];
    costs.compute[id] = 0;
    // The cost function is monotone: a bucket takes no less than the member alone.
    costs.path[id] = std::min(node.cost, std::max<Ns>(problem.mergeKeys[node.mergeKey].cost(node.bytes), 0));
    costs.lane[id] = std::min(shares.lane[id], costs.path[id]);
    // Either the cast runs, or a pack does its work, and then there is an unpack.
    NodeId cast = fusedCast(problem, id);
    if (shares.unpack[id] == kNone || cast == kNone || shares.cast[cast] == kNone)
      continue;
    if (Ns rest = std::min(problem.nodes[cast].cost - shares.cast[cast], shares.unpack[id]); rest > 0)
      costs.floating.push_back({cast, problem.members[id].wait, rest});
  }
  return costs;
}

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
    Wide part = static_cast<Wide>(duration) * shares[id];
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

std::vector<Bytes> mandatoryBytes(const Problem &problem, const BoundOptions &options, bool bucketing);

/// Finds the thresholds of Lemma 5's witness: the jobs with a head of at least `witness.head` and a tail of at least
/// `witness.tail` fill their lane for `witness.makespan` less both. O(n log n).
void findCriticalJobs(std::vector<Job> jobs, BoundWitness &witness) {
  sortByHead(jobs);
  Ns now = witness.head = 0;
  for (const Job &job : jobs) {
    if (job.tail < witness.tail)
      continue;
    // An idle lane is where the critical jobs begin.
    if (now < job.head)
      now = witness.head = job.head;
    now += job.duration;
  }
}

/// The spans of a lane at which Lemma 17 is tried: where the lane's jobs all are, and where the critical ones are,
/// which make the one-machine bound.
std::array<LaneSpan, 2> spansOf(LaneId lane, const std::vector<Job> &jobs, Ns makespan, Ns lastTail) {
  LaneSpan all = {lane, INT64_MAX, INT64_MAX};
  for (const Job &job : jobs) {
    all.head = std::min(all.head, job.head);
    all.tail = std::min(all.tail, job.tail);
  }
  BoundWitness critical;
  critical.makespan = makespan;
  critical.tail = lastTail;
  findCriticalJobs(jobs, critical);
  return {all, {lane, critical.head, critical.tail}};
}

/// What all of the compute lane's jobs, or the critical ones, say of the makespan, and what copies add (Lemma 21).
ComputeLoad loadOf(const Problem &problem, const HeadsAndTails &times, const BucketShares &shares, Ns makespan, Ns head,
                   Ns tail) {
  ComputeLoad load = {makespan, std::vector<Ns>(problem.size(), 0)};
  for (NodeId id = 0; id < problem.size(); ++id) {
    if (shares.copies[id] == 0)
      continue;
    NodeId cast = fusedCast(problem, id);
    Ns turn = cast == kNone ? 0 : times.head[cast];
    // An order of issues holds the bucket's start back, not its pack.
    for (NodeId pred : cast == kNone ? problem.preds[id] : llvm::ArrayRef<NodeId>())
      if (problem.nodes[pred].kind != NodeKind::Start)
        turn = std::max(turn, times.exit[pred]);
    if (turn >= head && times.tail[problem.members[id].wait] >= tail)
      load.copies[id] = shares.copies[id];
  }
  return load;
}

/// The same for a bound from deferral: copies come before the last start if the wait has to.
ComputeLoad loadOf(const Problem &problem, const BucketShares &shares, const DeferralBound &deferral) {
  ComputeLoad load = {deferral.makespan, std::vector<Ns>(problem.size(), 0)};
  std::vector<char> before = ancestorsOf(problem, deferral.starts);
  for (NodeId id = 0; id < problem.size(); ++id)
    if (shares.copies[id] > 0 && before[problem.members[id].wait])
      load.copies[id] = shares.copies[id];
  return load;
}

/// The combined bound. `witness`, unless it is null, becomes the strongest argument of those that a certificate knows.
/// With bucketing there are `shares`.
LowerBound boundWith(const Problem &problem, const BoundCosts &costs, const BoundOptions &options,
                     const BucketShares *shares, BoundWitness *witness = nullptr) {
  const bool bucketing = shares != nullptr;
  LowerBound bound;
  auto prove = [&](Ns makespan, BoundWitness::Argument argument, LaneId lane, NodeId node = kNone) {
    if (!witness || makespan <= witness->makespan)
      return false;
    witness->makespan = makespan;
    witness->argument = argument;
    witness->lane = lane;
    witness->node = node;
    return true;
  };
  // All work of a machine; the caller may choose some of it.
  auto proveMachine = [&](Ns makespan, LaneId lane) {
    if (!prove(makespan, BoundWitness::OneMachine, lane))
      return false;
    witness->head = witness->tail = 0;
    return true;
  };
  auto raise = [&](Ns makespan, BoundArgument argument, LaneId lane) {
    if (makespan <= bound.makespan)
      return;
    bound.makespan = bound.withLimit = makespan;
    bound.argument = argument;
    bound.lane = lane;
  };
  HeadsAndTails times = headsAndTails(problem, costs, options, witness ? &witness->levels : nullptr);
  // Certificates do not know these heads.
  if (bucketing && !witness)
    raiseByPairs(problem, costs, *shares, times);
  std::vector<std::vector<Job>> jobs(problem.numLanes());
  std::vector<Ns> load(problem.numLanes(), 0);
  for (NodeId id = 0; id < problem.size(); ++id) {
    const Node &node = problem.nodes[id];
    if (Ns duration = costs.compute[id]; duration > 0) {
      load[kComputeLane] += duration;
      bool beginsLater = node.kind == NodeKind::Hybrid || node.region != kNone;
      Ns head = beginsLater ? times.begin[id] : times.head[id];
      jobs[kComputeLane].push_back({head, duration, std::max(times.tail[id], times.entryTail[id] - duration)});
    }
    if (Ns duration = costs.lane[id]; duration > 0) {
      load[node.lane] += duration;
      jobs[node.lane].push_back({times.begin[id], duration, times.laneTail[id]});
      // A node with regions occupies its other lanes as well.
      if (node.region != kNone)
        for (LaneId lane : llvm::ArrayRef<LaneId>(problem.regions[node.region].lanes).drop_front()) {
          load[lane] += duration;
          jobs[lane].push_back({times.begin[id], duration, times.tail[id]});
        }
    }
  }
  for (auto [first, last, cost] : costs.floating) {
    load[kComputeLane] += cost;
    jobs[kComputeLane].push_back({times.head[first], cost, times.tail[last]});
  }
  for (std::vector<Job> &ofLane : jobs)
    sortByHead(ofLane);
  // The simplest argument comes first, and is named unless another one is stronger.
  for (LaneId lane = 0; lane < problem.numLanes(); ++lane) {
    raise(load[lane], BoundArgument::LaneLoad, lane);
    proveMachine(load[lane], lane);
  }
  raise(times.longestPath, BoundArgument::CriticalPath, kNone);
  std::vector<LaneSpan> spans;
  // The one-machine bound of the compute lane.
  BoundWitness onCompute;
  for (LaneId lane = 0; lane < problem.numLanes(); ++lane) {
    Ns lastTail = 0, makespan = oneMachine(jobs[lane], lastTail);
    raise(makespan, BoundArgument::OneMachine, lane);
    if (lane == kComputeLane) {
      onCompute.makespan = makespan;
      onCompute.tail = lastTail;
      findCriticalJobs(jobs[lane], onCompute);
    } else if (bucketing && !jobs[lane].empty())
      llvm::append_range(spans, spansOf(lane, jobs[lane], makespan, lastTail));
    if (proveMachine(makespan, lane)) {
      witness->tail = lastTail;
      findCriticalJobs(jobs[lane], *witness);
    }
  }
  auto [through, criticalNode] = times.throughAny(costs);
  raise(through, BoundArgument::CriticalPath, kNone);
  prove(through, BoundWitness::ThroughNode, kNone, criticalNode);
  // Without contention no activity needs anything.
  for (unsigned resource = 0; resource < kNumResources && problem.hasContention(); ++resource) {
    auto [sum, parts] = partsOf(problem, costs, times, resource, bucketing);
    Ns before = bound.makespan, allParts = static_cast<Ns>((sum + kWhole - 1) / kWhole), lastTail = 0;
    if (proveMachine(allParts, kNone))
      witness->resource = static_cast<Resource>(resource);
    Ns makespan = oneMachine(parts, lastTail);
    if (proveMachine(makespan, kNone)) {
      witness->resource = static_cast<Resource>(resource);
      witness->tail = lastTail;
      findCriticalJobs(parts, *witness);
    }
    raise(std::max(allParts, makespan), BoundArgument::ResourceLoad, kNone);
    if (bound.makespan > before)
      bound.resource = static_cast<Resource>(resource);
  }
  DeferralBounds deferral = deferralBounds(problem, costs, shares, bound.makespan);
  raise(deferral.withLatencies.makespan, BoundArgument::OneMachine, deferral.withLatencies.lane);
  if (prove(deferral.plain.makespan, BoundWitness::Deferral, deferral.plain.lane))
    witness->starts = std::move(deferral.plain.starts);
  std::vector<ComputeLoad> loads;
  if (bucketing && !load.empty()) {
    loads.push_back(loadOf(problem, times, *shares, load[kComputeLane], 0, 0));
    loads.push_back(loadOf(problem, times, *shares, onCompute.makespan, onCompute.head, onCompute.tail));
    if (deferral.withLatencies.makespan > 0)
      loads.push_back(loadOf(problem, *shares, deferral.withLatencies));
    // Certificates do not know these arguments.
    BatchBound batches = batchBound(problem, costs, times, *shares, spans, bound.makespan, loads);
    raise(batches.makespan, BoundArgument::OneMachine, batches.lane);
  }
  // On several streams a computation may run between a wait and its reader, and buffers live until all streams know of
  // their last reader: lemmas 10 and 11 know neither.
  if (options.limit < kUnlimited && !problem.hasStreams()) {
    MemoryLimitedBound limited = memoryLimitedBound(problem, costs, times, mandatoryBytes(problem, options, bucketing),
                                                    options.limit, bucketing);
    if (limited.makespan > bound.makespan) {
      bound.withLimit = limited.makespan;
      bound.limitLane = limited.lane;
    }
    prove(limited.makespan, BoundWitness::MemoryLimit, limited.lane, limited.node);
    if (bucketing) {
      limited = memoryLimitedBatches(problem, costs, times, *shares, options.limit, limited, bound.withLimit, loads);
      if (limited.makespan > std::max(bound.makespan, bound.withLimit)) {
        bound.withLimit = limited.makespan;
        bound.limitLane = limited.lane;
      }
    }
  }
  if (witness)
    pruneLevels(problem, costs, times, *witness);
  return bound;
}

} // namespace

LowerBound commsched::lowerBound(const Problem &problem, const BoundOptions &options) {
  if (problem.hasVariants())
    return lowerBound(withLeastVariants(problem), options);
  return boundWith(problem, costsAsGiven(problem), options, /*shares=*/nullptr);
}

LowerBound commsched::jointLowerBound(const Problem &problem, const BoundOptions &options) {
  if (problem.hasVariants())
    return jointLowerBound(withLeastVariants(problem), options);
  BucketShares shares = bucketShares(problem);
  return boundWith(problem, costsInBuckets(problem, shares), options, &shares);
}

BoundWitness commsched::proveBound(const Problem &problem, const BoundOptions &options, bool bucketing) {
  BoundWitness witness;
  if (!bucketing) {
    boundWith(problem, costsAsGiven(problem), options, /*shares=*/nullptr, &witness);
    return witness;
  }
  BucketShares shares = bucketShares(problem);
  boundWith(problem, costsInBuckets(problem, shares), options, &shares, &witness);
  witness.laneCharges = std::move(shares.lane);
  witness.castCharges = std::move(shares.cast);
  witness.unpackCharges = std::move(shares.unpack);
  witness.samples = std::move(shares.samples);
  return witness;
}

llvm::StringRef commsched::stringify(BoundWitness::Argument argument) {
  constexpr llvm::StringRef names[] = {"through-node", "one-machine", "deferral", "memory-limit"};
  return names[argument];
}

llvm::StringRef commsched::stringify(LevelReason::Time time) {
  constexpr llvm::StringRef names[] = {"head", "begin", "exit", "tail", "lane-tail"};
  return names[time];
}

namespace {

/// Number of buffers that one pass over the nodes tracks, one bit each: a row of two cache lines.
constexpr int32_t kBuffersPerRound = 1024;

/// Adds to `live`, indexed by node, the bytes of those `chosen` buffers that must be live at the node (Lemma 12).
/// `released` is indexed by node, for waits: an input of the start that the wait does not hold, or kNone.
void addMandatory(const Problem &problem, llvm::ArrayRef<BufferId> chosen, llvm::ArrayRef<BufferId> released,
                  std::vector<Bytes> &live) {
  constexpr int32_t words = kBuffersPerRound / 64;
  using Row = std::array<uint64_t, words>;
  std::vector<int32_t> slot(problem.buffers.size(), kNone);
  Row always{}, kept{};
  for (auto [index, id] : llvm::enumerate(chosen)) {
    slot[id] = static_cast<int32_t>(index);
    uint64_t bit = uint64_t(1) << (index % 64);
    if (problem.buffers[id].def == kNone)
      always[index / 64] |= bit;
    if (problem.buffers[id].liveOut)
      kept[index / 64] |= bit;
  }
  std::vector<Row> defined(problem.nodes.size(), always), needed(problem.nodes.size(), kept);
  auto unite = [](Row &into, const Row &from) {
    for (int32_t word = 0; word < words; ++word)
      into[word] |= from[word];
  };
  auto touch = [&](Row &row, NodeId node) {
    for (BufferId id : problem.touches[node])
      if (slot[id] != kNone && id != released[node])
        row[slot[id] / 64] |= uint64_t(1) << (slot[id] % 64);
  };
  for (NodeId id = 0; id < problem.size(); ++id) {
    for (NodeId pred : problem.preds[id])
      unite(defined[id], defined[pred]);
    touch(defined[id], id);
  }
  for (NodeId id = problem.size() - 1; id >= 0; --id) {
    for (NodeId succ : problem.succs[id])
      unite(needed[id], needed[succ]);
    touch(needed[id], id);
    for (int32_t word = 0; word < words; ++word)
      for (uint64_t bits = defined[id][word] & needed[id][word]; bits != 0; bits &= bits - 1)
        live[id] += problem.buffers[chosen[word * 64 + llvm::countr_zero(bits)]].bytes;
  }
}

/// Returns, indexed by node, the bytes that must be live while the node runs, in any order. With `bucketing`, in any
/// bucketing: a pack may read the inputs of its members before the collective, so that they need not be live during it.
std::vector<Bytes> mandatoryBytes(const Problem &problem, const BoundOptions &options, bool bucketing) {
  std::vector<BufferId> released(problem.size(), kNone);
  for (NodeId id = 0; bucketing && id < problem.size(); ++id)
    if (problem.nodes[id].mergeKey != kNone && isMergeable(problem, id))
      released[problem.members[id].wait] = problem.members[id].input;
  std::vector<BufferId> sized;
  for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id)
    if (problem.buffers[id].bytes > 0 && !problem.users[id].empty())
      sized.push_back(id);
  std::vector<Bytes> live;
  for (const Node &node : problem.nodes)
    live.push_back(node.workspace);
  // Rounds times nodes stay within what a problem of exactNodes nodes and buffers takes.
  int64_t work = int64_t(options.exactNodes) * (options.exactNodes / kBuffersPerRound + 1);
  int64_t rounds = std::max<int64_t>(1, work / std::max<int64_t>(problem.size(), 1));
  size_t known = std::min<size_t>(sized.size(), rounds * kBuffersPerRound);
  std::nth_element(sized.begin(), sized.begin() + known, sized.end(), [&](BufferId a, BufferId b) {
    Bytes one = problem.buffers[a].bytes, other = problem.buffers[b].bytes;
    return one != other ? one > other : a < b;
  });
  for (size_t first = 0; first < known; first += kBuffersPerRound)
    addMandatory(problem,
                 llvm::ArrayRef<BufferId>(sized).slice(first, std::min<size_t>(kBuffersPerRound, known - first)),
                 released, live);
  for (size_t index = known; index < sized.size(); ++index)
    for (NodeId node : problem.users[sized[index]])
      live[node] += sized[index] == released[node] ? 0 : problem.buffers[sized[index]].bytes;
  return live;
}

} // namespace

Bytes commsched::peakLowerBound(const Problem &problem, const BoundOptions &options) {
  std::vector<Bytes> live = mandatoryBytes(problem, options, /*bucketing=*/false);
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}
