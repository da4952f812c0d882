//===- ListScheduler.h - Order and buckets in one forward pass --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays the lanes forward in time. Before a compute runs, every communication lane that would run dry during it is fed
// with the most urgent start that is ready, merged on the spot with other ready ones of its key: members are ready, so
// none can depend on another, and no cycle can arise. Every move is admitted by a MemoryPromise, so the limit is never
// broken and there is no dead end. What to prefer is a Policy; a search tries many.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_LISTSCHEDULER_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_LISTSCHEDULER_H

#include "CommSched/Scheduling/Model/Bucketing.h"
#include "MemoryPromise.h"
#include "ScheduleFacts.h"
#include <memory>

namespace commsched {

/// Which form a bucket gets.
enum class FormChoice : uint8_t {
  /// The one that costs the compute lane less.
  Cheaper,
  Packed,
  Coalesced,
};

/// What a decode prefers. Shares are in permille.
struct Policy {
  // Computes.
  /// How much the longest path behind a compute counts against its place in the reference: 0 to 1000.
  int32_t tailShare = 0;
  /// A compute that works for a sink alone is put off by this many permille of the block's compute time where that pays
  /// (ScheduleFacts::worthDelay), so that it can run while the last long collective does.
  int64_t workDelay = 0;
  /// Only those that stand behind this many permille of the reference's compute time: a few are enough, and the others
  /// would hold memory.
  int32_t workFrom = 0;
  /// A compute may run this many ranks ahead of the first one that has not run.
  int32_t window = 100;
  /// How many candidates are tried for a lane before it stays idle.
  int32_t tries = 24;

  // Starts.
  /// How far a sink (a start that only the block's end needs) yields to the others, in permille of the median
  /// collective.
  int64_t sinkDelay = 10000;
  /// Such a start goes first nevertheless, because it frees memory, where the other one has this many permille of its
  /// own duration to spare; never where negative.
  int64_t sinkSlack = -1;
  /// Gathered bytes that may be in flight or wait for their use; a start that is late goes nevertheless.
  Bytes prefetch = kUnlimited;
  /// The share of the limit that is used.
  int32_t limitShare = 1000;

  // Deadlines: absolute times follow from an estimate of the makespan, never less than what computes will need.
  /// The estimate, in permille of the larger of compute load and critical path.
  int64_t horizon = 1100;
  /// How much more than the remaining computes it is at least, ns.
  Ns slack = 0;

  // Buckets.
  FormChoice form = FormChoice::Cheaper;
  /// The largest bucket of starts that something needs, and of those that only the block's end needs.
  Bytes maxNeeded = Bytes(1) << 30, maxSink = Bytes(2) << 30;
  /// A bucket may miss its first member's deadline up to this size.
  Bytes freeNeeded = Bytes(32) << 20;
  /// Starts that only the block's end needs are held back until they are this many bytes, while more will come.
  Bytes minSink = 0;
  /// A merge has to save this many permille of the time that its copies take.
  int64_t copyWeight = 1000;
  /// A lane is fed earlier by this many permille of the time that its last pack took, also when compute is about to
  /// stand still: a pack comes before its start.
  int32_t packAhead = 1000;
};

/// One step of a decode.
struct DecodeStep {
  enum What : uint8_t { Run, Pack, Start, Wait, Unpack, View } what;
  /// Run: a node. Unpack: the member's wait that it stands for. Else a bucket.
  int32_t id;
};

/// What a decode gives.
struct Decoded {
  std::vector<DecodeStep> steps;
  std::vector<Bucket> buckets;
  Ns makespan = 0;
  Bytes peak = 0;
  /// Trials, as the measure of effort.
  int64_t work = 0;
};

class Decoder;

/// Decodes one problem, again and again.
class ListScheduler {
public:
  explicit ListScheduler(const ScheduleFacts &facts);
  ~ListScheduler();

  /// Decodes under `limit`, which the reference has to fit (or the decode fails). Stops, and fails, as soon as the
  /// result cannot be shorter than `cutoff`. `bias` is added to the keys of nodes, ns; empty for none. O((touches +
  /// trials) log N).
  bool run(const Reference &reference, const Policy &policy, Bytes limit, Ns cutoff, llvm::ArrayRef<Ns> bias,
           Decoded &result);

private:
  std::unique_ptr<Decoder> decoder;
};

/// The decoded order in the terms of the expanded problem of its buckets. O(steps).
Order orderOf(const Decoded &decoded, const ExpandedProblem &expanded);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_LISTSCHEDULER_H
