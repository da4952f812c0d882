//===- BatchBound.h - Bound by the number of buckets ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The shares of Lemma 7 let every member be in the best of all buckets. But a bucket begins after all of its members
// are ready, and all that needs one of them comes after its end. So few buckets take long, and many pay their latency
// many times (Bounds.md, Lemma 17). Internal to Bounds.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_BATCHBOUND_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_BATCHBOUND_H

#include "BucketShares.h"
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

/// Members of one key that are to be put into buckets. A bucket over S bytes of them takes at least `latency` + S *
/// `cost` / `bytes` ns; of several such lines one is chosen.
class KeyBatches {
public:
  /// At least one member. O(members log members), and an evaluation of the cost function for each of kBatchCells cells.
  KeyBatches(const Problem &problem, const MergeKey &key, llvm::ArrayRef<NodeId> members);

  /// Sets the line of a latency: a share, of kLatencies, of the largest latency that may pay.
  void setLatency(int64_t share) { line = lines[share]; }
  Ns latency() const { return line.latency; }
  /// What `part` bytes take at least, without a latency, ns.
  Ns costOf(Bytes part) const { return mulDiv(part, line.cost, line.bytes); }

  /// The smallest number of buckets that end within `time`, if each begins after all of its bytes are released; none if
  /// that cannot be. `releases` ascend. O(releases).
  std::optional<int64_t> batches(llvm::ArrayRef<Release> releases, Ns time) const;

  const Bytes cap;
  static constexpr int64_t kLatencies = 8;

private:
  struct Line {
    Ns latency = 0, cost = 0;
    Bytes bytes = 1;
  };
  void sample(const MergeKey &key, Bytes total);
  Line through(Ns latency) const;

  /// By share of the largest latency.
  std::vector<Line> lines;
  /// Points on or below the cost function.
  std::vector<CostSample> points;
  Ns largestLatency = 0;
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

/// An argument of Lemma 17 about a makespan.
class BatchArgument {
public:
  virtual ~BatchArgument() = default;

  /// The largest bound of at least `floor`, ns, with one line for each key after the other.
  Ns raise(Ns floor);

protected:
  explicit BatchArgument(const Problem &problem) : problem(problem) {}

  /// Brings up to date what depends on the lines of the keys.
  virtual void linesChanged() {}
  /// Whether all fits into a makespan with the lines that are set; if it fits into one, then also into all larger ones.
  virtual bool fits(Ns makespan) const = 0;

  /// Whether `work` and the latencies of at least `numbers` buckets, by key, take no longer than the makespan.
  bool fitsWith(Wide work, llvm::ArrayRef<int64_t> numbers, Ns makespan) const;

  const Problem &problem;
  std::vector<KeyBatches> keys;
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
/// span.
BatchBound batchBound(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times,
                      const BucketShares &shares, llvm::ArrayRef<LaneSpan> spans, Ns floor);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_BATCHBOUND_H
