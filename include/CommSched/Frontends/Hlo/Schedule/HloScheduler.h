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

#include "CommSched/Frontends/Hlo/Graph/XlaEstimates.h"
#include "CommSched/Frontends/Hlo/Reader/HloModule.h"
#include "CommSched/Machine/CostModel.h"
#include "CommSched/Machine/CostTimes.h"
#include "CommSched/Support/MemoryBudget.h"
#include "CommSched/Support/Objective.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/JSON.h"

namespace commsched::hlo {

struct HloOptions {
  /// The allowed rise of the peak of each computation above that of its given order. A limit in bytes is one on the
  /// temporaries of the whole program: it takes the place of the entry's, and those of its callees rise as far as the
  /// share allows.
  MemoryBudget memory;
  /// Steps of the search per computation; the solver's default if negative.
  int64_t effort = -1;
  /// The objective of the search of each computation: Robust, Regret or Makespan.
  Objective objective = Objective::Robust;
  /// If set: a seed. Every computation that runs gets a random legal order, whatever its time and peak. Tests use it to
  /// show that each order that the dependences allow computes the same.
  std::optional<uint64_t> shuffle = std::nullopt;
  /// Lets the search merge collectives over one operand. See rewriteModule().
  bool buckets = false;
  /// Keeps the order of every computation.
  bool measureOnly = false;
  /// Times of instructions by name, ns, in place of those of the model. They judge an order with other costs than those
  /// that it was made with.
  llvm::StringMap<Ns> times = {};
  /// XLA's own estimates, for `plannedBy` and `judgedBy`; not owned; null: there are none.
  const XlaEstimates *estimates = nullptr;
  /// The costs that orders and buckets are searched with.
  CostMix plannedBy;
  /// The costs of times and bounds in the result, and those that decide whether an answer is faster.
  CostMix judgedBy;
  /// If not empty, every computation keeps its order for this reason; bounds are computed nevertheless.
  std::string keepReason;
  /// The growth of XLA's temporaries that is always allowed, bytes: holes between small buffers do not matter.
  Bytes temporariesSlack = Bytes(1) << 20;
  /// Reduction of the limits on peaks below those of `memory`, in millionths.
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
  /// Durations of one run in the given order and in the new one, ns; callees run in theirs.
  Ns makespanBefore = 0, makespanAfter = 0, exposedBefore = 0, exposedAfter = 0;
  /// No order of the computation and its callees takes less, ns; and none within the limit.
  Ns bound = 0, boundWithinLimit = 0;
  std::string boundArgument;
  /// Live bytes of temporaries, callees included.
  Bytes peakBefore = 0, peakAfter = 0, limit = 0;
  /// No order has a lower peak, whatever is merged if the search may merge: by the count of the peaks, in which no
  /// result is in the place of an operand. 0 if the module is only measured.
  Bytes leastPeak = 0;
  /// The reason why the computation keeps its order; empty if it was scheduled.
  std::string keepReason;
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

/// The worth of collectives that run an iteration apart from their neighbours in the body of a loop, which XLA's
/// pipeliner can do before it schedules (gathers one iteration ahead, reductions one behind), and of bodies that are
/// doubled, which need no copies between iterations.
struct PipelinedLoop {
  /// The name of the body, and those of the starts.
  std::string body;
  std::vector<std::string> collectives;
  /// The names of the starts of further gathers, which only a barrier keeps in their iteration.
  std::vector<std::string> barred;
  /// How often the program runs the body.
  int64_t runs = 0;
  /// One iteration in the order of the module, and in the steady state, ns.
  Ns iteration = 0, pipelined = 0;
  /// The part of an iteration that copies for the next one take, ns: none if the body is doubled.
  Ns copies = 0;
  /// What the program gains, less the collectives in front of the loop and behind it, ns; positive.
  Ns gain = 0;
  /// Results and operands that cross iterations.
  Bytes carried = 0;
};

/// The loops of a scheduled module.
struct LoopForecast {
  /// Those that would gain if they were pipelined, callees first. The times are forecasts of a short search.
  std::vector<PipelinedLoop> loops;
  /// Time of one run of the program that its loops wait for collectives or copy, ns: what pipelining may change.
  Ns idle = 0;
};

/// Fails, in one line, if the module is not understood.
llvm::Expected<LoopForecast> forecastLoops(const HloModule &module, const CostModel &model, const HloOptions &options);

/// The loops as a JSON array for reports.
llvm::json::Array describe(llvm::ArrayRef<PipelinedLoop> loops);

/// A hash of the module's orders, in hexadecimal digits. Ranks whose signatures differ run different schedules.
std::string signatureOf(const HloModule &module, const HloResult &result);

} // namespace commsched::hlo

#endif // COMMSCHED_FRONTENDS_HLO_SCHEDULE_HLOSCHEDULER_H
