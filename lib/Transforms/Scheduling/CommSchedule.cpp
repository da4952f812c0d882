//===- CommSchedule.cpp - The pass comm-schedule ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Adds the solver to the frame of BlockPass.h, and says what became of each collective.
//
//===------------------------------------------------------------------------------------------===//

#include "BlockPass.h"
#include "CommSched/Analysis/Environment.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Analysis/SecondCosts.h"
#include "CommSched/Report/Certificate.h"
#include "CommSched/Report/Explanations.h"
#include "CommSched/Report/SearchLog.h"
#include "CommSched/Scheduling/Answer/Variants.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Support/Arithmetic.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Scheduling/BlockNames.h"
#include "CommSched/Transforms/SchedulingOptions.h"
#include "JournalRecords.h"
#include "PassBase/MachinePass.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Threading.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace commsched {
#define GEN_PASS_DEF_COMMSCHEDULE
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

namespace {

/// The other members of a bucket: "all_gather_2, all_gather_3 and 5 more".
std::string namesOfOthers(const LoadedBlock &loaded, const Bucket &bucket, NodeId start) {
  constexpr size_t kNamed = 3;
  SmallVector<std::string> names;
  for (NodeId member : bucket.members)
    if (member != start && names.size() < kNamed)
      names.push_back(nameOperation(loaded.nodes[member]));
  size_t more = bucket.members.size() - 1 - names.size();
  return llvm::join(names, ", ") + (more == 0 ? "" : " and " + std::to_string(more) + " more");
}

/// "'all_gather_1' moved from place 4 to 1; exposed 3.00 us, was 5.00 us".
std::string describeMove(const std::string &name, const StartOutcome &outcome) {
  std::string text = "'" + name + "' ";
  if (outcome.positionBefore == outcome.positionAfter)
    text += "stayed at place " + std::to_string(outcome.positionAfter);
  else
    text +=
        "moved from place " + std::to_string(outcome.positionBefore) + " to " + std::to_string(outcome.positionAfter);
  text += "; exposed " + formatNs(outcome.exposedAfter);
  if (outcome.exposedBefore != outcome.exposedAfter)
    text += ", was " + formatNs(outcome.exposedBefore);
  return text;
}

/// Emits one remark per collective: passed if its exposed time fell, missed if some is left, analysis otherwise.
void sayOutcome(const BlockWork &work, const StartOutcome &outcome, BlockVoice &voice) {
  struct Merged {
    int64_t size;
    std::string form, others;
  };
  std::optional<Merged> merged;
  if (outcome.bucket != kNone) {
    const Bucket &bucket = work.schedule.buckets[outcome.bucket];
    merged = {static_cast<int64_t>(bucket.members.size()), stringify(bucket.form).str(),
              namesOfOthers(work.loaded, bucket, outcome.start)};
  }
  Operation *start = work.loaded.nodes[outcome.start];
  std::string text = describeMove(nameOperation(start), outcome);
  std::string variant;
  auto chosen =
      llvm::find_if(work.schedule.variants, [&](const VariantChoice &choice) { return choice.start == outcome.start; });
  if (chosen != work.schedule.variants.end())
    variant = work.loaded.problem.variantNames[chosen->name].text();
  if (merged)
    text += "; merged with " + merged->others;
  if (!variant.empty())
    text += "; carried out by " + variant;
  voice.say([outcome, merged, variant, loc = start->getLoc(), kind = remarkKind(start), text = std::move(text),
             reason = describe(work.loaded, outcome.reason, outcome.start)] {
    auto options = remark::RemarkOpts::name("schedule").category("comm-schedule");
    bool better = outcome.exposedAfter < outcome.exposedBefore;
    auto remark = outcome.exposedAfter > 0 && !better ? remark::missed(loc, options)
                  : better                            ? remark::passed(loc, options)
                                                      : remark::analysis(loc, options);
    remark << remark::metric("PositionBefore", outcome.positionBefore)
           << remark::metric("PositionAfter", outcome.positionAfter)
           << remark::metric("ExposedNsBefore", outcome.exposedBefore)
           << remark::metric("ExposedNsAfter", outcome.exposedAfter);
    if (merged)
      remark << remark::metric("BucketSize", merged->size) << remark::metric("BucketForm", merged->form)
             << remark::metric("MergedWith", merged->others);
    if (!variant.empty())
      remark << remark::metric("Variant", variant);
    describeRemark(remark, kind, reason, text + "; " + reason);
  });
}

/// Says that the certificate of a loop's body has no bound on the loop's interval.
void sayUncertified(Block &body, BlockVoice &voice) {
  voice.say([loc = body.getParentOp()->getLoc(), kind = body.getParentOp()->getName().getStringRef()] {
    auto remark = remark::missed(loc, remark::RemarkOpts::name("certificate").category("comm-schedule"));
    StringRef reason = "the body does other work than when its bound was found";
    describeRemark(remark, kind, reason, "no bound on an iteration in the certificate: " + reason.str());
  });
}

/// Watches the search of one block for the journal: counts its trials, and logs them if a log is written.
class SearchWatch {
public:
  /// Adds the observers to `options`, which must not outlive the watch. Does nothing if the journal is null.
  SearchWatch(Block &block, PassJournal *journal, ScheduleOptions &options) {
    if (!journal)
      return;
    options.observers.push_back(&statistics);
    if (!journal->logsSearch)
      return;
    log.emplace(reportNameOf(block), text);
    options.observers.push_back(&*log);
  }

  /// Hands over what was seen.
  void addTo(PassRecord &record) {
    record.search = std::move(statistics);
    record.searchLog = std::move(text);
  }

private:
  SearchStatistics statistics;
  std::string text;
  std::optional<SearchLog> log;
};

struct CommSchedulePass : BudgetedPass<commsched::impl::CommScheduleBase<CommSchedulePass>>, private BlockRule {
  using BudgetedPass::BudgetedPass;

  LogicalResult checkOptions(MLIRContext *context) final {
    if (objective == Objective::Regret && limitedMemory == LimitedMemory::Arena)
      return emitError(UnknownLoc::get(context)) << "'objective=regret' has no effect with 'limit=arena'";
    constexpr double kLargestRatio = 1e6;
    if (!(timeBudgetRatio <= kLargestRatio)) // No comparison holds for what is no number.
      return emitError(UnknownLoc::get(context))
             << llvm::formatv("time-budget-ratio={0}: expected a fraction of at most "
                              "1e6, or a negative number",
                              timeBudgetRatio.getValue());
    if (timeBudgetRatio >= 0 && limitedMemory == LimitedMemory::Arena)
      return emitError(UnknownLoc::get(context)) << "'time-budget-ratio' has no effect with 'limit=arena'";
    return checkWithout(context);
  }

  void runWithModel() final {
    if (failed(scheduleBlocks(getOperation(), getArgument(), *model, *this, /*inputPeaks=*/nullptr)))
      signalPassFailure();
  }

private:
  SolverOptions solverOptions() const {
    SolverOptions solver(collectiveOrder, bucketing, bucketCapBytes, effort);
    solver.schedule.memory = memory;
    return solver;
  }

  LoadOptions loadOptions() const final { return solverOptions().load; }
  bool stampsUnchanged() const final { return true; }

  /// Fails if there is no such phase or lens as the option `without` names.
  LogicalResult checkWithout(MLIRContext *context) const {
    std::vector<StringRef> known = phaseNames();
    llvm::append_range(known, lensNames());
    for (const std::string &name : without)
      if (!llvm::is_contained(known, name))
        return emitError(UnknownLoc::get(context))
               << "'without=" << name << "' names no phase of the search and no lens; expected some of "
               << llvm::join(known, ", ");
    return success();
  }

  /// The threads of the context, unless its user has switched them off.
  static Executor threadsOf(MLIRContext *context) {
    Executor executor;
    if (!context->isMultithreadingEnabled())
      return executor;
    executor.threads = context->getNumThreads();
    executor.forEach = [context](size_t count, llvm::function_ref<void(size_t)> task) {
      parallelFor(context, 0, count, task);
    };
    return executor;
  }

  /// The options of a search for one block.
  ScheduleOptions searchOptions(MLIRContext *context) const {
    ScheduleOptions options = solverOptions().schedule;
    options.executor = threadsOf(context);
    options.objective = objective;
    options.limitedMemory = limitedMemory;
    if (timeBudgetRatio >= 0)
      options.timeBudgetRatio = timeBudgetRatio;
    options.without.assign(without.begin(), without.end());
    if (Environment *environment = Environment::of(context)) {
      options.stop = environment->stop;
      if (environment->progress)
        options.observers.push_back(environment->progress);
    }
    return options;
  }

  /// What the embedder says of somebody else's costs of a block; none if it says nothing.
  std::optional<SecondOpinion> secondOpinionOf(const LoadedBlock &loaded) const {
    const Environment *environment = Environment::of(loaded.nodes.getBlock().getParentOp()->getContext());
    if (!environment || !environment->peer || objective == Objective::Makespan || loaded.cutValues > 0)
      return std::nullopt;
    const PeerCosts &peer = *environment->peer;
    std::function<std::vector<PeerAnswer>()> others;
    if (peer.others)
      others = [&loaded, &peer] {
        std::vector<PeerAnswer> answers;
        for (const NamedPeerAnswer &named : peer.others())
          answers.push_back(peerAnswerOf(loaded, named));
        return answers;
      };
    return SecondOpinion{withPeerCosts(loaded, peer, *model), std::move(others)};
  }

  LogicalResult solveBlock(BlockWork &work, BlockVoice &) const final {
    Location loc = work.loaded.nodes.getBlock().getParentOp()->getLoc();
    if (work.loaded.cutValues > 0)
      emitWarning(loc) << work.loaded.cutValues
                       << " times or sizes are too large to be added up and were cut; no collectives are merged";
    Block &block = work.loaded.nodes.getBlock();
    MLIRContext *context = block.getParentOp()->getContext();
    ScheduleOptions options = searchOptions(context);
    PassJournal *journal = journalOf(context);
    SearchWatch watch(block, journal, options);
    std::optional<SecondOpinion> second = secondOpinionOf(work.loaded);
    options.second = second ? &*second : nullptr;
    work.schedule = schedule(work.loaded.problem, options);
    if (journal)
      watch.addTo(work.record);
    Schedule &result = work.schedule;
    if (options.isStopped())
      emitWarning(loc) << "the search was interrupted: the schedule is the best one that it had found";
    if (objective == Objective::Regret && result.objective != Objective::Regret && result.isWithinLimit())
      emitWarning(loc) << "the makespan was minimized instead of the regret: " << result.whyMakespan;
    // What is left is an answer that was verified.
    if (std::string defect = std::exchange(result.defect, ""); !defect.empty())
      emitWarning(loc) << "an answer of the solver failed verification and was dropped (" << defect
                       << "); please report this";
    if (result.isWithinLimit() && result.arena && *result.arena > result.limit)
      return emitError(loc) << "cannot reduce the arena of the buffers to the limit of " << formatBytes(result.limit)
                            << " (" << result.limit << " bytes); smallest arena found: " << formatBytes(*result.arena)
                            << " (" << (*result.arena - result.limit) << " bytes over)";
    if (result.isWithinLimit())
      return success();
    return emitAboveLimit(loc, work.loaded.problem, result);
  }

  /// Says that no answer within the limit was found, and what is known of the lowest peak.
  LogicalResult emitAboveLimit(Location loc, const Problem &problem, const Schedule &result) const {
    auto withExcess = [&](Bytes peak) {
      return formatBytes(peak) + " (" + std::to_string(peak - result.limit) + " bytes over)";
    };
    const bool isLowest = result.leastPeak == result.peak;
    InFlightDiagnostic error = emitError(loc) << "cannot reduce peak memory to the limit of "
                                              << formatBytes(result.limit) << " (" << result.limit << " bytes); "
                                              << (isLowest ? "lowest peak of all orders: " : "lowest peak found: ")
                                              << withExcess(result.peak);
    const Bytes least = bucketing ? peakLowerBoundWithBuckets(problem) : peakLowerBound(problem);
    if (!isLowest && least > result.limit)
      error << "; no order has a peak below " << withExcess(least);
    return error;
  }

  /// The loops of a block with known numbers of iterations, whose bodies are scheduled by now.
  std::vector<CountedLoop> countedLoops(const LoadedBlock &loaded) const {
    std::vector<CountedLoop> result;
    for (NodeId id = 0; id < loaded.problem.size(); ++id) {
      auto loop = dyn_cast<scf::ForOp>(loaded.nodes[id]);
      std::optional<APInt> trips = loop ? loop.getStaticTripCount() : std::nullopt;
      if (!trips || trips->getActiveBits() > 32 || !llvm::is_contained(findSchedulableBlocks(loop), loop.getBody()))
        continue;
      LoadedBlock body = loadBlock(*loop.getBody(), OperationCosts(*model), loadOptions());
      auto iterations = static_cast<int64_t>(trips->getZExtValue());
      if (!body.defect.empty() || body.problem.hasStreams())
        continue;
      // Computations inside may count with more than the body's timeline has.
      Ns ofAll = saturateAmount(static_cast<Wide>(makespanOf(body.problem, identityOrder(body.problem))) * iterations);
      if (loaded.problem.nodes[id].cost == ofAll)
        result.push_back({id, reportNameOf(*loop.getBody()), iterations});
    }
    return result;
  }

  void explainBlock(const BlockWork &work, BlockVoice &voice) const final {
    std::vector<StartOutcome> outcomes = explain(work.loaded, work.schedule, work.schedule.limit);
    if (voice.hasRemarks())
      for (const StartOutcome &outcome : outcomes)
        sayOutcome(work, outcome, voice);
    if (!voice.hasJournal())
      return;
    PassRecord record = makeRecord(getArgument(), work.loaded, work.schedule, outcomes);
    record.search = work.record.search;
    record.objective = work.schedule.objective;
    record.scales = work.schedule.scales;
    record.regretPpm = work.schedule.regretPpm;
    record.opinion = work.schedule.opinion;
    record.searchLog = work.record.searchLog;
    record.leastOrder = work.schedule.leastOrder;
    record.leastSchedule = work.schedule.leastSchedule;
    Block &block = work.loaded.nodes.getBlock();
    if (PassJournal *journal = journalOf(block.getParentOp()->getContext()); journal->certifies) {
      const Problem &problem = work.loaded.problem;
      CertificateOptions options = {bucketing};
      options.reasons = explainDependences(work.loaded.nodes, StorageMap(block), collectiveOrder, problem.preds,
                                           work.loaded.besideMessages);
      options.collectives = noteCollectives(work.loaded.nodes);
      options.accesses = &work.accesses;
      std::optional<Problem> least;
      if (problem.hasVariants())
        options.least = &least.emplace(withLeastVariants(problem));
      DenseMap<NodeId, int32_t> chosen;
      for (const VariantChoice &choice : work.schedule.variants)
        chosen[choice.start] = choice.name;
      for (CollectiveNote &note : options.collectives)
        if (auto choice = chosen.find(note.node); choice != chosen.end())
          note.what += " by " + problem.variantNames[choice->second].text();
      std::string name = reportNameOf(block);
      options.loop = journal->loopOf(name);
      options.loops = countedLoops(work.loaded);
      llvm::raw_string_ostream os(record.certificate);
      record.certifiedMakespan = work.schedule.claims->makespan;
      SmallVector<CostScale> scales;
      for (const ScaledTimes &at : record.scales)
        scales.push_back(at.scale);
      if (record.regretPpm)
        options.scales = scales;
      CertifiedClaims claims = writeCertificate(name, problem, work.schedule, options, os);
      record.certifiedBound = claims.bound;
      record.certifiedRegretPpm = claims.regretPpm;
      if (options.loop && !claims.statesLoop)
        sayUncertified(block, voice);
    }
    voice.write(std::move(record));
  }
};

} // namespace
