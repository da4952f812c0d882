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
#include "BoundArguments.h"
#include "CommSched/Scheduling/Answer/Variants.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "PruneLevels.h"
#include <algorithm>

using namespace commsched;

/// The name of what an argument is about.
static std::string subjectOf(const LowerBound &bound, const Problem &problem) {
  if (bound.argument == BoundArgument::CriticalPath)
    return "critical path";
  if (bound.argument == BoundArgument::ResourceLoad)
    return "resource " + stringify(bound.resource).str();
  if (bound.lane == kComputeLane)
    return "compute lane";
  const std::string &name = problem.laneNames[bound.lane];
  return (name.find(',') == std::string::npos ? "lane of group " : "lane of groups ") + name;
}

static constexpr llvm::StringLiteral kUncertified = ", uncertified";

std::string LowerBound::describe(const Problem &problem) const {
  return subjectOf(*this, problem) + (isCertified ? "" : kUncertified.str());
}

std::string LowerBound::describeWithLimit(const Problem &problem) const {
  if (limitLane == kNone)
    return describe(problem);
  return "peak limit and lane of group " + problem.laneNames[limitLane] + (isLimitCertified ? "" : kUncertified.str());
}

namespace {

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

/// The combined bound. `witness`, unless it is null, becomes the strongest argument of those that a certificate knows.
/// With bucketing there are `shares`.
LowerBound boundWith(const Problem &problem, const BoundCosts &costs, const BoundOptions &options,
                     const BucketShares *shares, BoundWitness *witness = nullptr) {
  BoundState state(problem, costs, options, shares, witness);
  for (const BoundArgumentEntry &argument : boundArguments())
    if (!llvm::is_contained(options.without, argument.name)) {
      state.isCertified = argument.isCertified;
      argument.apply(state);
    }
  if (witness)
    pruneLevels(problem, costs, state.times, *witness);
  return state.bound;
}

} // namespace

BoundCosts commsched::leastCosts(const Problem &problem, bool bucketing) {
  return bucketing ? costsInBuckets(problem, bucketShares(problem)) : costsAsGiven(problem);
}

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

BoundWitness commsched::proveLoad(const Problem &problem, bool bucketing) {
  BoundOptions options;
  for (const BoundArgumentEntry &argument : boundArguments())
    if (argument.name != "lane-load" && argument.name != "resource-load")
      options.without.push_back(argument.name.str());
  BoundWitness witness = proveBound(problem, options, bucketing);
  witness.levels.clear();
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
