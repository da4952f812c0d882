//===- HloScheduler.h - Order the instructions of a module of XLA -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The way through this front end: every computation with collectives becomes a Problem, callees before callers; the
// solver orders it within the limit on its peak; the orders are written back.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_FRONTENDS_HLO_SCHEDULE_HLOSCHEDULER_H
#define COMMSCHED_FRONTENDS_HLO_SCHEDULE_HLOSCHEDULER_H

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"
#include "CommSched/Machine/CostModel.h"
#include "CommSched/Machine/CostTimes.h"
#include "CommSched/Support/MemoryBudget.h"
#include "CommSched/Support/Objective.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/JSON.h"

namespace commsched::hlo {

struct HloOptions {
  /// How far the peak of each computation may rise above that of its given order. A limit in bytes is one on the
  /// temporaries of the whole program: it takes the place of the entry's, and those of its callees rise as far as the
  /// share allows.
  MemoryBudget memory;
  /// Steps of the search per computation; the solver's default if negative.
  int64_t effort = -1;
  /// What the search of each computation minimizes: Robust, Regret or Makespan.
  Objective objective = Objective::Robust;
  /// If set: a seed. Every computation that runs gets a random legal order, whatever its time and peak. Tests use it to
  /// show that each order that the dependences allow computes the same.
  std::optional<uint64_t> shuffle = std::nullopt;
  /// Whether collectives over one operand may be merged. See rewriteModule().
  bool buckets = false;
  /// Whether every computation keeps its order.
  bool measureOnly = false;
  /// Times of instructions by name, ns, in place of those of the model. Who judges orders with other costs than those
  /// that they were made with sets them.
  llvm::StringMap<Ns> times = {};
  /// If not empty: why every computation keeps its order; bounds are computed nevertheless.
  std::string keepBecause;
  /// What XLA's temporaries may grow by in any case, bytes: holes between small buffers do not matter.
  Bytes temporariesSlack = Bytes(1) << 20;
  /// By how much limits on peaks are lower than `memory` says, in millionths.
  int64_t squeezePpm = 0;
};

/// One start in a schedule: its exposed time in ns, and why it is exposed.
struct StartReport {
  std::string name;
  Ns cost = 0, exposedBefore = 0, exposedAfter = 0;
  std::string reason;
  /// The kind of a collective, the shape of its widest group, and its bytes as in Node::bytes. None for copies and
  /// kernels.
  std::optional<CollectiveKind> kind = std::nullopt;
  GroupShape shape = {};
  Bytes bytes = 0;
};

/// One computation that the program runs: the entry, or what a loop, a branch or a call runs.
struct ComputationResult {
  int32_t computation = 0;
  /// Collectives and other asynchronous work in it, not counting callees.
  int32_t collectives = 0, nodes = 0;
  /// Merged collectives, each of two or more.
  int32_t buckets = 0;
  /// Of one run in the given order and in the new one, ns; with callees in theirs.
  Ns makespanBefore = 0, makespanAfter = 0, exposedBefore = 0, exposedAfter = 0;
  /// No order of the computation and its callees takes less, ns; and none within the limit.
  Ns bound = 0, boundWithinLimit = 0;
  std::string boundArgument;
  /// Live bytes of temporaries, callees included.
  Bytes peakBefore = 0, peakAfter = 0, limit = 0;
  /// Why the computation keeps its order; empty if it was scheduled.
  std::string keptBecause;
  /// Kernels whose cost is a guess from their bytes, and loops of unknown length, which count as one iteration.
  int32_t unknownKernels = 0, unknownLoops = 0;
  /// The new order of its instructions; empty if it stays as it is, or if it has buckets.
  std::vector<int32_t> sequence;
  /// One per start, in the given order.
  std::vector<StartReport> starts;
  /// If HloOptions::times has entries: the names of the kernels and collectives that take time and have none.
  std::vector<std::string> untimed;
};

struct HloResult {
  /// The module, with other orders or as it was given.
  std::string module;
  bool isChanged = false;
  /// Callees before callers; the entry is the last.
  std::vector<ComputationResult> computations;
  /// Times of the instructions as they were given, each counted once, by what they are known from.
  CostTimes costTimes;

  const ComputationResult &entry() const { return computations.back(); }
};

/// Orders a module. The temporaries that XLA needs for the answer grow by at most 1 %, the slack, and what `memory`
/// allows, as far as temporariesOf() can tell. Fails, in one line, if it is not understood; a failure leaves nothing
/// behind. Equal bytes, options and machines give equal results on every rank.
llvm::Expected<HloResult> scheduleModule(const HloModule &module, const CostModel &model, const HloOptions &options);

/// The result as a JSON object for reports: times in ns, sizes in bytes.
llvm::json::Object describe(const HloModule &module, const HloResult &result);

/// A hash of the module's orders, in hexadecimal digits. Ranks whose signatures differ run different schedules.
std::string signatureOf(const HloModule &module, const HloResult &result);

} // namespace commsched::hlo

#endif // COMMSCHED_FRONTENDS_HLO_SCHEDULE_HLOSCHEDULER_H
