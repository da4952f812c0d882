//===- BatchBound.h - How many buckets a lane needs -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The shares of Lemma 7 let every member be in the best of all buckets. But a bucket begins after all of its members
// are ready, and all that needs one of them comes after its end. So few buckets take long, and many pay their latency
// many times (Bounds.md, Lemma 17). Those that are not packed save their copies, but take longer on the lane
// (Lemma 21). Internal to Bounds.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_BATCHBOUND_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_BATCHBOUND_H

#include "BucketShares.h"
#include "BucketTurns.h"
#include "CommSched/Support/Arithmetic.h"
#include "HeadsAndTails.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <optional>

namespace commsched {

/// Bytes that are ready at a time, ns.
struct Release {
  Ns time;
  Bytes bytes;
};

/// A bound on the makespan from what runs on the compute lane, and what packed buckets add to it.
struct ComputeLoad {
  /// ns.
  Ns makespan = 0;
  /// Indexed by start: by how much `makespan` grows at least if the start is in a packed bucket, ns.
  std::vector<Ns> copies;
};

/// How much a nanosecond of copies counts on a communication lane: the quotient of both numbers.
struct CopyPrice {
  int64_t ns = 0, per = 1;
  /// What the time that `load` leaves for copies within a makespan counts, ns, rounded up; nothing without a load.
  Wide of(Ns makespan, const ComputeLoad *load) const {
    return load ? (Wide(makespan - load->makespan) * ns + per - 1) / per : 0;
  }
};

/// The prices at which Lemma 21 is tried: fewer for large problems, whose bounds are dear.
llvm::ArrayRef<CopyPrice> copyPrices(const Problem &problem);

/// Members of one key that are to be put into buckets. A bucket over S bytes of them takes at least `latency` + S *
/// `cost` / `bytes` ns; of several such lines one is chosen.
class KeyBatches {
public:
  /// At least one member. O(members log members), and an evaluation of the cost function for each of kBatchCells cells.
  KeyBatches(const Problem &problem, const MergeKey &key, llvm::ArrayRef<NodeId> members);

  /// Sets the line of a latency: a share, of kLatencies, of the largest latency that may pay.
  void setLatency(int64_t share) { line = lines[share]; }
  Ns latency() const { return line.latency; }
  /// What the members take if none is merged, ns.
  Ns apartCost() const { return apart; }
  /// The largest latency that may pay, and the members with the line of a latency, for Lemma 22.
  Ns mostLatency() const { return largestLatency; }
  TurnKey turnKey(Ns latency) const {
    Line through = this->through(latency);
    return {members, through.cost, through.bytes};
  }
  /// What `part` bytes take at least, without a latency, ns.
  Ns costOf(Bytes part) const { return mulDiv(part, line.cost, line.bytes); }

  /// The smallest number of buckets that end within `time`, if each begins after all of its bytes are released; none if
  /// that cannot be. `releases` ascend. O(releases).
  std::optional<int64_t> batches(llvm::ArrayRef<Release> releases, Ns time) const;

  /// Evaluates what members cost that are not packed, once: kGroupCells evaluations for coalesced buckets, and one for
  /// each member.
  void samplePrices(const Problem &problem);
  /// By how much a member exceeds the line if it is not in a packed bucket, or `priced`, ns: the smaller one. `index`
  /// is the one of the constructor's `members`. After samplePrices() only.
  Ns leastExcess(size_t index, Ns priced) const;

  const Bytes cap;
  static constexpr int64_t kLatencies = 8;

private:
  struct Line {
    Ns latency = 0, cost = 0;
    Bytes bytes = 1;
    /// By how much a coalesced bucket exceeds the line for each of its members, ns.
    Ns perMember = 0;
    Ns costUp(Bytes part) const { return mulDivUp(part, cost, bytes); }
  };
  /// Coalesced buckets of at most so many members and bytes that take at least `cost`.
  struct Group {
    int32_t members;
    Bytes bytes;
    Ns cost;
  };
  void sample(const MergeKey &key, Bytes total);
  Line through(Ns latency) const;
  std::vector<Group> sampleGroups(const Problem &problem) const;

  const MergeKey &key;
  const std::vector<NodeId> members;
  /// By member: its bytes and the least that it takes alone, ns. Empty before samplePrices().
  std::vector<CostSample> alone;
  /// By share of the largest latency.
  std::vector<Line> lines;
  /// Points on or below the cost function.
  std::vector<CostSample> points;
  Ns largestLatency = 0, apart = 0;
  Line line;
};

/// Which members are too small to count, because they would make latencies small: those far smaller than the largest
/// one, or the smallest ones if they have next to nothing of all bytes.
enum class SmallMembers : uint8_t { BesideLargest, BesideAll };

/// The rules that are tried: one for large problems.
llvm::ArrayRef<SmallMembers> rulesForSmallMembers(const Problem &problem);

/// The starts of each key that may be merged and have bytes; none of a key whose starts keep an order among themselves.
/// Indexed by merge key. O(N + E).
std::vector<std::vector<NodeId>> membersInNoOrder(const Problem &problem, const BucketShares &shares);

/// The members of each key on a lane that are large enough to count. `isWanted` says of a start that may be merged
/// whether it is looked at. A key whose starts keep an order among themselves has none: the tail of one then counts
/// others of its bucket. Indexed by merge key. O(N log N + E).
std::vector<std::vector<NodeId>> membersToBatch(const Problem &problem, const BucketShares &shares, LaneId lane,
                                                SmallMembers rule, llvm::function_ref<bool(NodeId)> isWanted);

/// An argument of Lemma 17 about a makespan, to which Lemma 21 adds what a load and a price say.
class BatchArgument {
public:
  virtual ~BatchArgument() = default;

  /// The largest bound of at least `floor`, ns: with one line for each key after the other, then the same with each of
  /// the `loads` and prices.
  Ns raise(Ns floor, llvm::ArrayRef<ComputeLoad> loads);

protected:
  explicit BatchArgument(const Problem &problem) : problem(problem) {}

  /// Brings up to date what depends on the lines of the keys, the load and the price.
  virtual void linesChanged() = 0;
  /// Whether all fits into a makespan with the lines that are set; if it fits into one, then also into all larger ones.
  virtual bool fits(Ns makespan) const = 0;

  /// By how much a member exceeds its line if it is not packed, ns; 0 without a load. `index` is that in `members`.
  Ns leastExcess(const KeyBatches &key, size_t index, NodeId id) const {
    return load ? key.leastExcess(index, mulDiv(load->copies[id], price.ns, price.per)) : 0;
  }
  /// Whether `work` and the latencies of at least `numbers` buckets, by key, and of as many as take turns, take no
  /// longer than the makespan and what the time that it leaves for copies counts.
  bool fitsWith(Wide work, llvm::ArrayRef<int64_t> numbers, Ns makespan) const;
  /// The two of the `keys` that take longest as sources and sinks, either way; kNone for a key that is not there.
  std::vector<std::pair<int32_t, int32_t>> pairsToTakeTurns() const;
  /// Lets buckets of two keys take turns (Lemma 22) within the moments `head` and makespan - `tail`. Of the first one,
  /// `before` bytes may begin earlier. Indices into `keys`; kNone for no key.
  void addTurns(int32_t sources, Bytes before, int32_t sinks, const BoundCosts &costs, Ns head, Ns tail);

  const Problem &problem;
  std::vector<KeyBatches> keys;
  /// Of each of the `keys`.
  std::vector<std::vector<NodeId>> members;

private:
  Ns raiseByLines(Ns floor);
  bool mayRaise(const ComputeLoad &given, Ns floor) const;

  const ComputeLoad *load = nullptr;
  CopyPrice price;
  struct Turns {
    int32_t sources, sinks;
    BucketTurns count;
  };
  /// They remember what they have found.
  mutable std::vector<Turns> turns;
};

/// A lower bound on the makespan with any bucketing, and the lane that it is about.
struct BatchBound {
  Ns makespan = 0;
  LaneId lane = kNone;
};

/// The work of a lane between the moments `head` and makespan - `tail`, ns.
struct LaneSpan {
  LaneId lane = kNone;
  Ns head = 0, tail = 0;
};

/// The bound of Lemma 17 for the work of each span that has at least its head and at least its tail, or `floor`, a
/// bound that is known, ns. `costs` and `times` are those of Lemma 8. O(N + S log S + samples), S starts, for each
/// span. With each of the `loads` Lemma 21 is tried.
BatchBound batchBound(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times,
                      const BucketShares &shares, llvm::ArrayRef<LaneSpan> spans, Ns floor,
                      llvm::ArrayRef<ComputeLoad> loads);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_BATCHBOUND_H
