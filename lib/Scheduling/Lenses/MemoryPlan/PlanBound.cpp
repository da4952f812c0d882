//===- PlanBound.cpp - A lower bound for all memory plans -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The sum that no plan undercuts is concave in the weights and the prices. One price at a time is set to its best
// value, which is where a value is as cheap to keep as to make again. The weight of one lane at a time is moved to
// another one as long as that helps.
//
//===------------------------------------------------------------------------------------------===//

#include "PlanBound.h"
#include "Bounds/Arguments/PeakBound.h"
#include "Bounds/BoundArguments.h"
#include "CommSched/Scheduling/Answer/Variants.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/STLExtras.h"
#include <numeric>

using namespace commsched;

/// Rounds in which every price is set once, and in which every pair of lanes trades weight once.
static constexpr int32_t kPriceRounds = 3, kWeightRounds = 4;
/// Steps of the search for the best trade between two lanes.
static constexpr int32_t kTradeSteps = 24;
/// The largest price of a byte.
static constexpr int64_t kMaxPrice = int64_t(1) << 50;
/// Nodes that are tried as cuts, and cuts of one proof.
static constexpr size_t kMostCuts = 8, kMostTogether = 3;

/// The node, and all that is along `edges` from it through nodes for which `isIn` holds. O(nodes + edges).
static llvm::BitVector reachableFrom(NodeId node, const IndexLists &edges, llvm::function_ref<bool(NodeId)> isIn) {
  llvm::BitVector seen(static_cast<uint32_t>(edges.size()));
  seen.set(node);
  llvm::SmallVector<NodeId> stack = {node};
  while (!stack.empty())
    for (NodeId next : edges[stack.pop_back_val()])
      if (isIn(next) && !seen.test(next)) {
        seen.set(next);
        stack.push_back(next);
      }
  return seen;
}

//===------------------------------------------------------------------------------------------===//
// Values and cuts
//===------------------------------------------------------------------------------------------===//

PlanRelaxation::PlanRelaxation(const Problem &problem, llvm::ArrayRef<Repetition> repetitions,
                               const MergedCopies &merged, Bytes limit, bool bucketing)
    : problem(problem), merged(merged), limit(limit), bucketing(bucketing), released(merged.all.problem.size(), kNone),
      isAbsorbed(static_cast<uint32_t>(merged.all.problem.buffers.size())),
      rootOf(merged.all.problem.buffers.size(), kNone), valueOf(merged.all.problem.buffers.size(), kNone),
      load(problem.numLanes(), 0) {
  for (auto [buffer, image] : llvm::enumerate(merged.bufferOf))
    if (NodeId def = problem.buffers[buffer].def; def == kNone || merged.all.image[def] != kNone)
      rootOf[image] = static_cast<BufferId>(buffer);
  findValues(repetitions);
  if (bucketing && !problem.members.empty())
    findReleased();
  chargeWork(repetitions);
}

/// What one repetition makes is one value.
void PlanRelaxation::findValues(llvm::ArrayRef<Repetition> repetitions) {
  llvm::EquivalenceClasses<BufferId> together;
  for (const Repetition &repetition : repetitions) {
    std::vector<BufferId> made = allocatedBy(problem, repetition.again);
    for (BufferId buffer : made)
      together.unionSets(merged.bufferOf[made.front()], merged.bufferOf[buffer]);
  }
  for (const Repetition &repetition : repetitions)
    for (BufferId buffer : allocatedBy(problem, repetition.again)) {
      int32_t &value = valueOf[together.getLeaderValue(merged.bufferOf[buffer])];
      value = value == kNone ? numValues++ : value;
      valueOf[merged.bufferOf[buffer]] = value;
    }
}

/// What need not be live because of buckets.
void PlanRelaxation::findReleased() {
  for (NodeId node = 0; node < problem.size(); ++node) {
    if (problem.nodes[node].mergeKey == kNone)
      continue;
    const MergeMember &member = problem.members[node];
    if (isMergeable(problem, node) && member.input != kNone)
      released[merged.nodeOf[member.wait]] = merged.bufferOf[member.input];
    if (member.cast != kNone && member.input != kNone)
      isAbsorbed.set(merged.bufferOf[member.input]);
  }
}

/// Every plan carries out one copy of each node at least, and another one for each value that it makes again.
void PlanRelaxation::chargeWork(llvm::ArrayRef<Repetition> repetitions) {
  BoundCosts costs = leastCosts(problem, bucketing);
  const NodeId size = merged.all.problem.size();
  std::vector<Ns> compute(size, kLargestAmount), lane(size, kLargestAmount);
  for (NodeId node = 0; node < problem.size(); ++node) {
    const NodeId image = merged.nodeOf[node];
    compute[image] = std::min(compute[image], costs.compute[node]);
    lane[image] = std::min(lane[image], costs.lane[node]);
  }
  auto charge = [&](NodeId image, std::vector<Ns> &lanes) {
    lanes[kComputeLane] += compute[image];
    if (LaneId other = merged.all.problem.nodes[image].lane; other != kComputeLane)
      lanes[other] += lane[image];
  };
  for (NodeId image = 0; image < size; ++image)
    charge(image, load);
  work.assign(numValues, std::vector<Ns>(problem.numLanes(), kLargestAmount));
  for (const Repetition &repetition : repetitions) {
    std::vector<Ns> lanes(problem.numLanes(), 0);
    for (NodeId node : repetition.again)
      charge(merged.nodeOf[node], lanes);
    const int32_t value = valueOf[merged.bufferOf[allocatedBy(problem, repetition.again).front()]];
    for (auto [least, time] : llvm::zip_equal(work[value], lanes))
      least = std::min(least, time);
  }
}

void PlanRelaxation::addCut(NodeId node) {
  const Problem &all = merged.all.problem;
  const NodeId origin = merged.all.origin[node];
  auto any = [](NodeId) { return true; };
  auto isThere = [&](NodeId other) { return merged.all.image[other] != kNone; };
  // Of copies, the first one that is carried out is before or behind the node; of nodes without copies, the node is.
  llvm::BitVector before = reachableFrom(node, all.preds, any), behind = reachableFrom(node, all.succs, any);
  llvm::BitVector itselfBefore = reachableFrom(origin, problem.preds, isThere);
  llvm::BitVector itselfBehind = reachableFrom(origin, problem.succs, isThere);
  Cut cut;
  cut.room = limit - all.nodes[node].workspace;
  std::vector<Bytes> optional(numValues, 0);
  for (BufferId id = 0; id < static_cast<BufferId>(all.buffers.size()); ++id) {
    const Buffer &buffer = all.buffers[id], &root = problem.buffers[rootOf[id]];
    if (isAbsorbed.test(id) || (buffer.def != kNone && !before.test(buffer.def)))
      continue;
    bool isNeeded = buffer.liveOut, isRootNeeded = root.liveOut;
    for (NodeId user : all.users[id]) {
      const NodeId reader = merged.all.origin[user];
      if (released[user] == id)
        continue;
      isNeeded |= behind.test(user);
      isRootNeeded |= itselfBehind.test(reader) && llvm::is_contained(problem.touches[reader], rootOf[id]);
    }
    const bool isRootMade = root.def == kNone || itselfBefore.test(root.def);
    if (valueOf[id] == kNone ? isNeeded : isRootMade && isRootNeeded)
      cut.room -= buffer.bytes;
    else if (isNeeded)
      optional[valueOf[id]] += buffer.bytes;
  }
  for (auto [value, bytes] : llvm::enumerate(optional))
    if (bytes > 0)
      cut.values.push_back({static_cast<int32_t>(value), bytes});
  cuts.push_back(std::move(cut));
}

//===------------------------------------------------------------------------------------------===//
// Weights and prices
//===------------------------------------------------------------------------------------------===//

/// Indexed by value: what making it again costs at these weights.
std::vector<Wide> PlanRelaxation::costsAt(llvm::ArrayRef<int64_t> weights) const {
  std::vector<Wide> costs;
  for (const std::vector<Ns> &lanes : work) {
    Wide cost = 0;
    for (auto [weight, time] : llvm::zip_equal(weights, lanes))
      cost += static_cast<Wide>(weight) * time;
    costs.push_back(cost);
  }
  return costs;
}

/// Indexed by value: what keeping it costs at these prices.
std::vector<Wide> PlanRelaxation::keepingAt(llvm::ArrayRef<PricedCut> prices) const {
  std::vector<Wide> costs(numValues, 0);
  for (const PricedCut &priced : prices)
    for (auto [value, bytes] : cuts[priced.cut].values)
      costs[value] += static_cast<Wide>(priced.price) * bytes;
  return costs;
}

Wide PlanRelaxation::sumAt(const PlanProof &proof) const {
  Wide sum = 0;
  for (auto [weight, time] : llvm::zip_equal(proof.weights, load))
    sum += static_cast<Wide>(weight) * time;
  for (const PricedCut &priced : proof.cuts)
    sum -= static_cast<Wide>(priced.price) * cuts[priced.cut].room;
  for (auto [again, kept] : llvm::zip_equal(costsAt(proof.weights), keepingAt(proof.cuts)))
    sum += std::min(again, kept);
  return sum;
}

Ns PlanRelaxation::evaluate(const PlanProof &proof) const {
  Wide sum = sumAt(proof);
  return sum <= 0 ? 0 : saturateAmount((sum + kWholeWeight - 1) / kWholeWeight);
}

/// Sets one price to the best one for the weights and the other prices: a value's cheapest cost grows with the price
/// until making it again is as cheap, and the room at the cut counts against it.
void PlanRelaxation::setBestPrice(PlanProof &proof, PricedCut &priced) const {
  const Cut &cut = cuts[priced.cut];
  priced.price = 0;
  std::vector<Wide> again = costsAt(proof.weights), kept = keepingAt(proof.cuts);
  std::vector<std::pair<int64_t, Bytes>> turns;
  Bytes growing = 0;
  for (auto [value, bytes] : cut.values) {
    Wide price = (again[value] - kept[value]) / bytes;
    if (price <= 0)
      continue;
    turns.push_back({static_cast<int64_t>(std::min<Wide>(price, kMaxPrice)), bytes});
    growing += bytes;
  }
  llvm::sort(turns);
  for (auto [price, bytes] : turns) {
    if (growing <= cut.room)
      return;
    priced.price = price;
    growing -= bytes;
  }
}

/// Sets all prices for the weights of `proof`. Returns the sum.
Wide PlanRelaxation::setPrices(PlanProof &proof) const {
  for (int32_t round = 0; round < (proof.cuts.size() > 1 ? kPriceRounds : 1); ++round)
    for (PricedCut &priced : proof.cuts)
      setBestPrice(proof, priced);
  return sumAt(proof);
}

/// Moves weight between two lanes as long as that helps: the sum is concave in the share of the first one.
void PlanRelaxation::trade(PlanProof &proof, LaneId one, LaneId other) const {
  const int64_t both = proof.weights[one] + proof.weights[other];
  auto proofAt = [&](int64_t share) {
    PlanProof changed = proof;
    changed.weights[one] = share;
    changed.weights[other] = both - share;
    Wide sum = setPrices(changed);
    return std::pair(sum, std::move(changed));
  };
  int64_t low = 0, high = both;
  for (int32_t step = 0; step < kTradeSteps && low < high; ++step) {
    int64_t left = low + (high - low) / 3, right = high - (high - low) / 3;
    if (proofAt(left).first < proofAt(right).first)
      low = left;
    else
      high = right;
  }
  auto [sum, best] = proofAt(low);
  if (sum > sumAt(proof))
    proof = std::move(best);
}

PlanProof PlanRelaxation::maximize(llvm::ArrayRef<int32_t> chosen) const {
  PlanProof proof;
  for (int32_t cut : chosen)
    proof.cuts.push_back({cut, 0});
  std::vector<LaneId> lanes;
  for (LaneId lane = 0; lane < problem.numLanes(); ++lane)
    if (load[lane] > 0 || llvm::any_of(work, [&](const std::vector<Ns> &times) { return times[lane] > 0; }))
      lanes.push_back(lane);
  proof.weights.assign(problem.numLanes(), 0);
  if (lanes.empty())
    return proof;
  LaneId fullest = *std::max_element(lanes.begin(), lanes.end(), [&](LaneId a, LaneId b) { return load[a] < load[b]; });
  proof.weights[fullest] = kWholeWeight;
  setPrices(proof);
  for (int32_t round = 0; round < kWeightRounds; ++round)
    for (LaneId one : lanes)
      for (LaneId other : lanes)
        if (one < other && proof.weights[one] + proof.weights[other] > 0)
          trade(proof, one, other);
  proof.makespan = evaluate(proof);
  return proof;
}

/// The nodes of the compute lane at which most has to be live if everything is kept, most first; of neighbours, one.
static std::vector<NodeId> findTightNodes(const MergedCopies &merged, bool bucketing) {
  const Problem &all = merged.all.problem;
  std::vector<Bytes> live = mandatoryBytes(all, BoundOptions(), bucketing);
  std::vector<NodeId> tight;
  const NodeId part = all.size() / static_cast<NodeId>(kMostCuts) + 1;
  for (NodeId begin = 0; begin < all.size(); begin += part) {
    NodeId most = kNone;
    for (NodeId node = begin; node < std::min(begin + part, all.size()); ++node)
      if (all.nodes[node].kind == NodeKind::Compute && !merged.hasCopies.test(node) &&
          (most == kNone || live[node] > live[most]))
        most = node;
    if (most != kNone)
      tight.push_back(most);
  }
  llvm::sort(tight, [&](NodeId a, NodeId b) { return std::pair(-live[a], a) < std::pair(-live[b], b); });
  return tight;
}

Ns commsched::planLowerBound(const Problem &problem, llvm::ArrayRef<Repetition> repetitions, Bytes limit,
                             bool bucketing) {
  if (problem.hasVariants())
    return planLowerBound(withLeastVariants(problem), repetitions, limit, bucketing);
  MergedCopies merged = mergeCopies(problem, repetitions);
  PlanRelaxation relaxation(problem, repetitions, merged, limit, bucketing);
  PlanProof best = relaxation.maximize({});
  std::vector<int32_t> chosen;
  for (NodeId node : findTightNodes(merged, bucketing)) {
    chosen.push_back(relaxation.numCuts());
    relaxation.addCut(node);
    PlanProof proof = relaxation.maximize(chosen);
    if (proof.makespan > best.makespan)
      best = std::move(proof);
    else
      chosen.pop_back();
    if (chosen.size() == kMostTogether)
      break;
  }
  if (bucketing && merged.losesBuckets)
    return best.makespan;
  const LowerBound bound = bucketing ? jointLowerBound(merged.all.problem) : lowerBound(merged.all.problem);
  return std::max(best.makespan, bound.makespan);
}
