//===- ErrorBars.cpp - Makespans at the ends of the costs' error bars -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Loads a block once per scenario.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/ErrorBars.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Envelope.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Collectives and computations are measured apart, so their errors are independent. A gain depends most on their
/// ratio.
static constexpr NamedScenario kScenarios[] = {
    {"values", {BarEnd::Value, BarEnd::Value}},       {"all_low", {BarEnd::Low, BarEnd::Low}},
    {"all_high", {BarEnd::High, BarEnd::High}},       {"slow_collectives", {BarEnd::High, BarEnd::Low}},
    {"slow_operations", {BarEnd::Low, BarEnd::High}},
};
static constexpr size_t kAllLow = 1, kAllHigh = 2;

llvm::ArrayRef<NamedScenario> commsched::scenarios() { return kScenarios; }

TimeInterval commsched::gainOf(Ns before, const std::optional<BlockErrorBars> &barsBefore, Ns after,
                               const std::optional<BlockErrorBars> &barsAfter) {
  TimeInterval gain{before - after, before - after, before - after};
  for (size_t index = 0; index < std::size(kScenarios); ++index) {
    Ns now = (barsBefore ? barsBefore->byScenario[index] : before) - (barsAfter ? barsAfter->byScenario[index] : after);
    gain.lo = std::min(gain.lo, now);
    gain.hi = std::max(gain.hi, now);
  }
  return gain;
}

/// Whether an operation in `module` has a given time with an error bar.
static bool hasGivenBars(Operation *module) {
  return module
      ->walk([](Operation *op) {
        auto cost = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
        return cost && cost.getTimeLo() ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

ErrorBars::ErrorBars(const OperationCosts &costs, Operation *module) : values(costs) {
  if (!costs.machine().hasErrorBars() && !hasGivenBars(module))
    return;
  for (const NamedScenario &scenario : llvm::drop_begin(scenarios())) {
    models.push_back(std::make_unique<CostModel>(costs.machine(), scenario.ends));
    this->costs.push_back(std::make_unique<OperationCosts>(*models.back()));
  }
}

BlockErrorBars ErrorBars::measure(Block &block, const LoadOptions &options, Ns makespan) const {
  BlockErrorBars result;
  result.makespan = {makespan, makespan, makespan};
  result.byScenario = {makespan};
  for (size_t index = 1; index < std::size(kScenarios); ++index) {
    LoadedBlock loaded = loadBlock(block, *costs[index - 1], options);
    Order order = identityOrder(loaded.problem);
    result.byScenario.push_back(makespanOf(loaded.problem, order));
    if (index == kAllLow)
      result.makespan.lo = std::min(makespan, undisturbedMakespanOf(loaded.problem, order));
    if (index == kAllHigh)
      result.makespan.hi = std::max(makespan, largestMakespan(loaded.problem, order));
  }
  for (Operation &op : block) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      continue;
    std::optional<CostEstimate> cost = values.estimateOf(&op);
    if (cost) {
      ++result.counts.byOrigin[static_cast<unsigned>(cost->origin)];
      result.counts.withErrorBar += cost->lo < cost->hi;
      for (const std::string &flag : cost->flags)
        ++result.counts.flagged[flag];
    }
    if (isa<CollectiveOpInterface>(op))
      result.starts.push_back(std::move(cost));
  }
  return result;
}
