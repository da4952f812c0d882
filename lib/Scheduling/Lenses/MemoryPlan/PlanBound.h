//===- PlanBound.h - A lower bound for all memory plans ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What is kept takes bytes while a node runs, and what is made again takes time on a lane. Weights of the lanes and
// prices of bytes turn both into one sum, which no plan undercuts (MoreBounds.md, Lemma 26). The best weights and
// prices that are found give the bound, and they are all that is needed to compute it again.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_PLANBOUND_H
#define COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_PLANBOUND_H

#include "MergedCopies.h"

namespace commsched {

/// What a byte costs at one of the nodes at which memory is short.
struct PricedCut {
  /// The number of the cut.
  int32_t cut = 0;
  /// In parts of kWholeWeight of a nanosecond, per byte.
  int64_t price = 0;
};

/// The sum of the weights of all lanes.
inline constexpr int64_t kWholeWeight = int64_t(1) << 30;

/// Weights of lanes and prices of bytes, and what they prove, ns.
struct PlanProof {
  Ns makespan = 0;
  /// Indexed by lane. None is negative, and their sum is kWholeWeight at most.
  std::vector<int64_t> weights;
  std::vector<PricedCut> cuts;
};

/// What the work of a problem, and the memory at some nodes of it, say of all plans.
class PlanRelaxation {
public:
  /// `limit` is the limit on the peak, bytes. With `bucketing`, collectives may be merged. `problem` has no variants;
  /// it is valid, as `repetitions` are. All arguments stay referenced. O(size of the problem), and what the charges of
  /// buckets cost.
  PlanRelaxation(const Problem &problem, llvm::ArrayRef<Repetition> repetitions, const MergedCopies &merged,
                 Bytes limit, bool bucketing);

  /// Adds a node of `merged` at which memory may be short; cuts are numbered from 0. The node is on the compute lane
  /// and has no copies. O(nodes + edges + touches).
  void addCut(NodeId node);

  int32_t numCuts() const { return static_cast<int32_t>(cuts.size()); }

  /// What any weights and prices prove, ns. O(values x cuts).
  Ns evaluate(const PlanProof &proof) const;

  /// Finds weights, and prices for the cuts with these numbers. A fixed number of passes over the values.
  PlanProof maximize(llvm::ArrayRef<int32_t> chosen) const;

private:
  struct Cut {
    /// What is left of the limit for values that may be made again, bytes; negative if nothing fits.
    Bytes room = 0;
    /// Values that are live at the node unless they are made again behind it, and their bytes.
    std::vector<std::pair<int32_t, Bytes>> values;
  };

  void findValues(llvm::ArrayRef<Repetition> repetitions);
  void findReleased();
  void chargeWork(llvm::ArrayRef<Repetition> repetitions);
  std::vector<Wide> costsAt(llvm::ArrayRef<int64_t> weights) const;
  std::vector<Wide> keepingAt(llvm::ArrayRef<PricedCut> prices) const;
  Wide sumAt(const PlanProof &proof) const;
  void setBestPrice(PlanProof &proof, PricedCut &priced) const;
  Wide setPrices(PlanProof &proof) const;
  void trade(PlanProof &proof, LaneId one, LaneId other) const;

  const Problem &problem;
  const MergedCopies &merged;
  Bytes limit;
  bool bucketing;
  /// Indexed by node of `merged`: a buffer that it does not keep live if it is part of a bucket (mandatoryBytes()).
  std::vector<BufferId> released;
  /// Indexed by buffer of `merged`: whether a bucket may do without it, its first buffer in the problem, and the value
  /// that it is a part of; kNone if it is never made again.
  llvm::BitVector isAbsorbed;
  std::vector<BufferId> rootOf;
  std::vector<int32_t> valueOf;
  int32_t numValues = 0;
  /// Indexed by lane: the work of all plans, ns. Indexed by value: that of making it again, at least.
  std::vector<Ns> load;
  std::vector<std::vector<Ns>> work;
  std::vector<Cut> cuts;
};

/// A bound that no plan undercuts, ns, whatever its order and its buckets, as long as its peak is at most `limit`:
/// the larger one of the bound for merged copies and of a proof by prices. Arguments as for PlanRelaxation. Equal input
/// gives equal output. Complexity as jointLowerBound().
Ns planLowerBound(const Problem &problem, llvm::ArrayRef<Repetition> repetitions, Bytes limit, bool bucketing);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_PLANBOUND_H
