//===- CommAlignCosts.cpp - The pass comm-align-costs -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// All ranks must decide alike. The pass combines each rank's costs of the measured operations, from profile files or
// through the embedder's hook (the environment's, or the one with which the pass was created). The median becomes the
// measured time of the operation.
//
//===------------------------------------------------------------------------------------------===//

#include "BlockPass.h"
#include "CommSched/Analysis/Costs/MatrixProducts.h"
#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Report/Report.h"
#include "CommSched/Scheduling/Inductor/AlignCosts.h"
#include "CommSched/Transforms/Passes.h"

namespace commsched {
#define GEN_PASS_DEF_COMMALIGNCOSTS
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

struct CommAlignCostsPass : public commsched::impl::CommAlignCostsBase<CommAlignCostsPass> {
  using CommAlignCostsBase::CommAlignCostsBase;

  CommAlignCostsPass(std::string machine, GatherCosts gather, bool everything) : gather(std::move(gather)) {
    profiles = {std::move(machine)};
    allCompute = everything;
  }
  CommAlignCostsPass(const CommAlignCostsPass &other) : CommAlignCostsBase(other), gather(other.gather) {}

  LogicalResult initialize(MLIRContext *context) final {
    models.clear();
    SmallVector<std::string> names(profiles.begin(), profiles.end());
    // The pipeline passes one empty name if the user names no profiles: this rank's machine.
    const Environment *environment = Environment::of(context);
    bool isOwn = names.empty() || (names.size() == 1 && names.front().empty());
    if (isOwn && !gather && environment)
      gather = environment->gather;
    if (names.empty() && gather)
      names.push_back("");
    if (names.empty())
      return emitError(UnknownLoc::get(context))
             << "comm-align-costs: no profiles given, and nothing that gathers costs from the ranks";
    for (const std::string &name : names) {
      llvm::Expected<MachineModel> machine = MachineModel::load(machineName(context, name));
      if (!machine)
        return emitError(UnknownLoc::get(context)) << llvm::toString(machine.takeError());
      models.push_back(std::make_shared<const CostModel>(std::move(*machine)));
    }
    return success();
  }

  void runOnOperation() final {
    SmallVector<Operation *> ops = findMeasured();
    std::vector<std::vector<Ns>> byRank;
    for (const std::shared_ptr<const CostModel> &model : models) {
      OperationCosts costs(*model);
      byRank.emplace_back();
      for (Operation *op : ops)
        byRank.back().push_back(costs.costOf(op).time);
    }
    if (gather) {
      byRank = gather(byRank.front());
      if (std::string problem = findGatherProblem(byRank, ops.size()); !problem.empty()) {
        emitError(getOperation()->getLoc()) << getArgument() << ": " << problem;
        return signalPassFailure();
      }
    }
    std::vector<Ns> medians = lowerMedians(byRank);
    bool changed = false;
    for (auto [index, op, median] : llvm::enumerate(ops, medians))
      if (setTime(op, median)) {
        changed = true;
        remarkAligned(op, index, median, byRank);
      }
    markAnalysesPreserved<InputPeaks>();
    if (!changed)
      markAllAnalysesPreserved();
    auto remark =
        remark::analysis(getOperation()->getLoc(), remark::RemarkOpts::name("aligned").category(getArgument()));
    remark << remark::metric("Operations", static_cast<int64_t>(ops.size()))
           << remark::metric("Ranks", static_cast<int64_t>(byRank.size()));
    describeRemark(remark, "module", kNoLimitingFactor,
                   std::to_string(ops.size()) + (ops.size() == 1 ? " cost is" : " costs are") + " the median of " +
                       std::to_string(byRank.size()) + (byRank.size() == 1 ? " rank" : " ranks"));
  }

private:
  /// Returns what is wrong with the result of a hook, or an empty string.
  static std::string findGatherProblem(ArrayRef<std::vector<Ns>> byRank, size_t expected) {
    if (byRank.empty())
      return "expected the costs of at least one rank, got none";
    for (auto [rank, row] : llvm::enumerate(byRank))
      if (row.size() != expected)
        return "rank " + std::to_string(rank) + " gathered " + std::to_string(row.size()) + " costs; there are " +
               std::to_string(expected) + " to align";
    return "";
  }

  /// The operations to align, in program order: those on the compute lane of blocks with collectives. An operation that
  /// contains collectives has no time of its own, because its blocks are visited too.
  SmallVector<Operation *> findMeasured() {
    SmallVector<Operation *> ops;
    OperationCosts costs(*models.front());
    MatrixProducts products(costs);
    auto isMeasured = [&](Operation &op) {
      return !op.hasTrait<OpTrait::IsTerminator>() && !communicates(&op) &&
             (allCompute ? costs.costOf(&op).time > 0 : products.contains(&op));
    };
    for (Operation *function : findFunctions(getOperation()))
      for (Block *block : findSchedulableBlocks(function))
        for (Operation &op : *block)
          if (isMeasured(op))
            ops.push_back(&op);
    return ops;
  }

  /// Returns true if `op` is a start or a wait, or contains one. A hybrid is measured as a whole.
  static bool communicates(Operation *op) {
    return op
        ->walk([&](Operation *inner) {
          bool hybrid = inner != op && inner->hasAttr(CommDialect::kHybridAttrName);
          return hybrid || isa<CollectiveOpInterface, WaitOp>(inner) ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  }

  static bool setTime(Operation *op, Ns time) {
    auto cost = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
    auto aligned =
        CostAttr::get(op->getContext(), cost ? cost.getFlops() : std::nullopt, cost ? cost.getBytes() : std::nullopt,
                      cost ? cost.getWorkspace() : std::nullopt, time, std::nullopt, std::nullopt);
    if (aligned == cost)
      return false;
    op->setAttr(CommDialect::kCostAttrName, aligned);
    return true;
  }

  void remarkAligned(Operation *op, size_t index, Ns median, ArrayRef<std::vector<Ns>> byRank) {
    if (!op->getContext()->getRemarkEngine())
      return;
    auto cost = [&](const std::vector<Ns> &row) { return row[index]; };
    auto [least, most] = std::minmax_element(byRank.begin(), byRank.end(),
                                             [&](const auto &a, const auto &b) { return cost(a) < cost(b); });
    auto remark = remark::passed(op->getLoc(), remark::RemarkOpts::name("cost").category(getArgument()));
    remark << remark::metric("CostNs", median) << remark::metric("LeastNs", cost(*least))
           << remark::metric("MostNs", cost(*most));
    describeRemark(remark, remarkKind(op), kNoLimitingFactor,
                   "costs " + formatNs(median) + " in later passes: the median of " + formatNs(cost(*least)) + " to " +
                       formatNs(cost(*most)));
  }

  GatherCosts gather;
  std::vector<std::shared_ptr<const CostModel>> models;
};

} // namespace

std::unique_ptr<Pass> commsched::createCommAlignCosts(std::string machine, GatherCosts gather, bool allCompute) {
  return std::make_unique<CommAlignCostsPass>(std::move(machine), std::move(gather), allCompute);
}
