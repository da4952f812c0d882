//===- ErrorBars.h - Makespans at the ends of the costs' error bars ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Measured costs have error bars, so makespan and gain are intervals. The makespan of an order lies between bounds for
// all costs within their bars (Scheduling/Time/Envelope.h). A gain compares two orders under the same costs: it is
// computed in a few scenarios, in each of which all measured collectives and all measured operations are at the same
// end of their bars. MachineModel.md has the definitions.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_ERRORBARS_H
#define COMMSCHED_REPORT_ERRORBARS_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "mlir/IR/BuiltinOps.h"
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace commsched {

/// A time and the interval in which it lies, ns: lo <= value <= hi.
struct TimeInterval {
  Ns value = 0, lo = 0, hi = 0;
};

/// How the costs of a block are known.
struct CostCounts {
  /// Indexed by CostOrigin: the number of operations. Views, waits and other operations that cost nothing are left out.
  std::array<int64_t, kNumCostOrigins> byOrigin{};
  /// Operations whose cost has an error bar.
  int64_t withErrorBar = 0;
  /// Indexed by flag of a measured table ("skew"): the number of collectives that it prices.
  std::map<std::string, int64_t> flagged;
};

/// What error bars say of a block in one order.
struct BlockErrorBars {
  TimeInterval makespan;
  /// Indexed as scenarios(): the makespan in each scenario, ns.
  std::vector<Ns> byScenario;
  CostCounts counts;
  /// Indexed by start, in the order of the block: its cost; none if it costs nothing.
  std::vector<std::optional<CostEstimate>> starts;
};

/// The scenarios in which gains are computed; the first is that of the values themselves. Their names are those of the
/// JSON report.
struct NamedScenario {
  llvm::StringLiteral name;
  CostScenario ends;
};
llvm::ArrayRef<NamedScenario> scenarios();

/// The gain of `after` over `before` in all scenarios: in that of the values, the least and the largest. Without error
/// bars on one side, its makespan is the same in all scenarios.
TimeInterval gainOf(Ns before, const std::optional<BlockErrorBars> &barsBefore, Ns after,
                    const std::optional<BlockErrorBars> &barsAfter);

/// The costs of one module in all scenarios. Valid only while the module does not change.
class ErrorBars {
public:
  /// Keeps a reference to `costs`, which answers with the values. Makes nothing if neither the machine nor a
  /// `comm.cost` in `module` has an error bar.
  ErrorBars(const OperationCosts &costs, mlir::Operation *module);

  /// Whether there are any error bars.
  explicit operator bool() const { return !models.empty(); }

  /// Measures `block` in its current order, whose makespan is `makespan`. As many loads of the block as there are
  /// scenarios.
  BlockErrorBars measure(mlir::Block &block, const LoadOptions &options, Ns makespan) const;

private:
  const OperationCosts &values;
  /// Indexed as scenarios(), without the first.
  std::vector<std::unique_ptr<CostModel>> models;
  std::vector<std::unique_ptr<OperationCosts>> costs;
};

} // namespace commsched

#endif // COMMSCHED_REPORT_ERRORBARS_H
