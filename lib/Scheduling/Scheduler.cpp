//===- Scheduler.cpp - Order and buckets under a hard peak limit -------------------------------===//

#include "CommSched/Scheduling/Scheduler.h"
#include "CommSched/Scheduling/KeepTogether.h"
#include "CommSched/Scheduling/Memory.h"
#include "CommSched/Scheduling/PeakReducer.h"
#include "CommSched/Scheduling/Timeline.h"
#include "Search.h"
#include "StartOutcomes.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <optional>

using namespace commsched;

namespace {

/// Of the effort, what may be spent to bring the given order below the limit, in percent.
constexpr int64_t kReducePercent = 50;
constexpr int64_t kMillion = 1000000;

bool needsCopy(const Problem &problem, const ScheduleOptions &options) {
  return options.allGatherCap >= 0 || options.reduceScatterCap >= 0 || options.allReduceCap >= 0 ||
         llvm::any_of(problem.nodes, [](const Node &node) { return node.pinned; });
}

/// The problem with the caps of the options, and with edges that keep the order of pinned nodes.
Problem constrained(const Problem &problem, const ScheduleOptions &options) {
  Problem result = problem;
  for (MergeKey &key : result.mergeKeys) {
    Bytes cap = key.kind == CollectiveKind::AllGather       ? options.allGatherCap
                : key.kind == CollectiveKind::ReduceScatter ? options.reduceScatterCap
                                                            : options.allReduceCap;
    if (cap >= 0)
      key.cap = key.cap < 0 ? cap : std::min(key.cap, cap);
  }
  result.preds = IndexLists();
  NodeId lastPinned = kNone;
  for (NodeId node = 0; node < problem.size(); ++node) {
    llvm::SmallVector<NodeId, 8> preds(problem.preds[node]);
    if (problem.nodes[node].pinned) {
      if (lastPinned != kNone && !llvm::is_contained(preds, lastPinned))
        preds.insert(llvm::lower_bound(preds, lastPinned), lastPinned);
      lastPinned = node;
    }
    result.preds.append(preds);
  }
  result.finalize();
  return result;
}

Bytes limitOf(Bytes inputPeak, const ScheduleOptions &options) {
  if (options.memoryLimitBytes >= 0)
    return options.memoryLimitBytes;
  return inputPeak + mulDiv(inputPeak, options.memoryBudgetPpm, kMillion);
}

} // namespace

ScheduleResult commsched::schedule(const Problem &given, const ScheduleOptions &options) {
  std::optional<Problem> copy;
  if (needsCopy(given, options))
    copy = constrained(given, options);
  const Problem &problem = copy ? *copy : given;

  ScheduleResult result;
  Order order = identityOrder(problem);
  result.inputMakespan = makespanOf(problem, order, options.slowDown);
  result.inputPeak = peakOf(problem, order);
  result.limit = limitOf(result.inputPeak, options);
  int64_t effort = options.effort < 0 ? defaultEffort(problem.size()) : options.effort;
  if (result.inputPeak > result.limit) {
    int64_t steps = std::max<int64_t>(mulDiv(effort, kReducePercent, 100), problem.size()), before = steps;
    Order reduced = reducePeak(problem, order, result.limit, steps);
    auto accept = [&](llvm::ArrayRef<NodeId> candidate) { return peakOf(problem, candidate) < result.inputPeak; };
    order = keepTogether(problem, std::move(reduced), accept).value_or(order);
    result.steps = before - steps;
  }

  ScheduleFacts facts(problem, options.bucketing);
  Bytes reached = peakOf(problem, order);
  Search search(facts, options, std::move(order), std::max(result.limit, reached));
  // Nothing is shorter than the compute lane's load: where that is met, there is nothing to search for.
  Ns bound =
      problem.mergeKeys.empty() || !options.bucketing ? *std::max_element(facts.load.begin(), facts.load.end()) : 0;
  search.run(effort - result.steps, bound);

  result.buckets = search.best().buckets;
  result.expanded = search.expanded();
  result.order = search.order();
  result.makespan = search.makespan();
  result.peak = search.peak();
  result.withinLimit = result.peak <= result.limit;
  result.steps += search.steps();
  result.incumbents = search.incumbents();
  result.defect = search.defect();
  result.starts = outcomesOfStarts(problem, result, options.slowDown);
  return result;
}
