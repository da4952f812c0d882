//===- CommAlignCosts.cpp - The pass comm-align-costs -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// All ranks must decide alike. The pass combines each rank's costs of the operations, from profile files or through the
// embedder's hook (the environment's, or the one with which the pass was created). The median becomes the measured time
// of the operation, and the extremes its error bar. Ranks first compare what they are going to align, so that different
// programs end in an error on every rank instead of a gather that nobody else takes part in.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/MatrixProducts.h"
#include "CommSched/Analysis/Environment.h"
#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Report/Report.h"
#include "CommSched/Scheduling/Inductor/AlignCosts.h"
#include "CommSched/Support/Count.h"
#include "CommSched/Transforms/Passes.h"
#include "Scheduling/BlockPass.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/xxhash.h"
#include <cstring>

namespace commsched {
#define GEN_PASS_DEF_COMMALIGNCOSTS
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// Costs, or other numbers, of all ranks. Indexed by rank, then by operation.
using RankRows = std::vector<std::vector<Ns>>;

/// A number for the kind of an operation, equal on all ranks: of its name, and of the group of a collective. Sizes do
/// not count, because ranks may work on different amounts of data. Names of groups do not count either, because a front
/// end may name the group of each rank otherwise (PyTorch numbers all groups of a job): groups are told apart by the
/// order in which the program first uses them.
///
/// \param groups the number of each group that an earlier operation uses, by name. That of `op` is added.
Ns identityOf(Operation *op, llvm::StringMap<size_t> &groups) {
  std::string text = op->getName().getStringRef().str();
  if (auto compute = dyn_cast<ComputeOp>(op))
    text += ("\n" + compute.getName()).str();
  if (auto start = dyn_cast<CollectiveOpInterface>(op))
    text += "\n" + std::to_string(groups.try_emplace(start.getGroupAttr().getValue(), groups.size()).first->second);
  return static_cast<Ns>(llvm::xxh3_64bits(text));
}

/// What ranks compare first, as numbers.
struct Header {
  /// Indices: the number of operations, a hash of what they are, a hash of the rank's machine, and the number of bytes
  /// of its profile.
  enum : uint8_t { Operations, Identities, Machine, ProfileBytes };

  /// The machine by all that passes read of it: its name and how it was measured do not count.
  static std::vector<Ns> make(ArrayRef<Ns> identities, const MachineModel &machine) {
    std::string text = machine.toJSON(), numbers;
    llvm::json::Value document = llvm::cantFail(llvm::json::parse(text));
    for (StringRef field : {"name", "calibration"})
      document.getAsObject()->erase(field);
    llvm::raw_string_ostream(numbers) << document;
    return {static_cast<Ns>(identities.size()), hash(identities), static_cast<Ns>(llvm::xxh3_64bits(numbers)),
            static_cast<Ns>(text.size())};
  }
  static Ns hash(ArrayRef<Ns> numbers) {
    StringRef bytes(reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(Ns));
    return static_cast<Ns>(llvm::xxh3_64bits(bytes));
  }
  static bool haveSameOperations(ArrayRef<Ns> a, ArrayRef<Ns> b) { return a.take_front(2) == b.take_front(2); }
};

/// Largest number of operations that a rank may state. A larger one is no number of operations.
constexpr Ns kMostOperations = Ns(1) << 28;
/// Largest profile that a rank may state, bytes.
constexpr Ns kMostProfileBytes = Ns(1) << 28;
/// Numbers of a profile that ranks gather at once. Every rank receives as many from every other.
constexpr size_t kProfileChunk = 4096;

/// Gathers rows of equal length from all ranks, and checks what comes back.
class RowGatherer {
public:
  explicit RowGatherer(const GatherCosts &gather) : gather(gather) {}

  /// Empty if it failed; problem() then says why.
  RankRows operator()(ArrayRef<Ns> own) {
    RankRows rows = gather(own);
    if (rows.empty())
      text = "the costs of the ranks could not be gathered";
    for (auto [rank, row] : llvm::enumerate(rows))
      if (text.empty() && row.size() != own.size())
        text = "rank " + std::to_string(rank) + " gathered " + std::to_string(row.size()) + " numbers; expected " +
               std::to_string(own.size());
    return text.empty() ? std::move(rows) : RankRows();
  }

  const std::string &problem() const { return text; }

private:
  const GatherCosts &gather;
  std::string text;
};

struct CommAlignCostsPass : public commsched::impl::CommAlignCostsBase<CommAlignCostsPass> {
  using CommAlignCostsBase::CommAlignCostsBase;

  CommAlignCostsPass(std::string machine, GatherCosts gather, AlignedOperations aligned) : gather(std::move(gather)) {
    this->machine = machine;
    profiles = {std::move(machine)};
    operations = aligned;
  }
  CommAlignCostsPass(const CommAlignCostsPass &other) : CommAlignCostsBase(other), gather(other.gather) {}

  LogicalResult initialize(MLIRContext *context) final {
    models.clear();
    SmallVector<std::string> names(profiles.begin(), profiles.end());
    // The pipeline passes this rank's own machine if the user names no profiles.
    const Environment *environment = Environment::of(context);
    bool isOwn = names.empty() || (names.size() == 1 && names.front() == machine);
    if (isOwn && !gather && environment)
      gather = environment->gather;
    if (names.empty() && gather)
      names.push_back(machine);
    if (names.empty())
      return emitError(UnknownLoc::get(context))
             << "comm-align-costs: no profiles given, and nothing that gathers costs from the ranks";
    for (const std::string &name : names) {
      llvm::Expected<MachineModel> model = loadMachine(context, name);
      if (!model)
        return emitError(UnknownLoc::get(context)) << llvm::toString(model.takeError());
      models.push_back(std::make_shared<const CostModel>(std::move(*model)));
    }
    return success();
  }

  void runOnOperation() final {
    SmallVector<Operation *> ops = findAligned();
    FailureOr<RankRows> byRank = gather ? gatherCosts(ops) : FailureOr<RankRows>(costsOnEveryMachine(ops));
    if (failed(byRank))
      return signalPassFailure();
    std::vector<AlignedCost> costs = alignCosts(*byRank);
    bool changed = false;
    int64_t skewed = 0;
    for (auto [op, cost] : llvm::zip_equal(ops, costs)) {
      skewed += cost.isSkewed();
      if (setTime(op, cost)) {
        changed = true;
        remarkAligned(op, cost);
      }
      if (cost.isSkewed())
        remarkSkew(op, cost);
    }
    markAnalysesPreserved<InputPeaks>();
    if (!changed)
      markAllAnalysesPreserved();
    remarkModule(static_cast<int64_t>(ops.size()), static_cast<int64_t>(byRank->size()), skewed);
  }

private:
  RankRows costsOnEveryMachine(ArrayRef<Operation *> ops) {
    RankRows rows;
    for (const std::shared_ptr<const CostModel> &model : models) {
      OperationCosts costs(*model);
      rows.emplace_back();
      for (Operation *op : ops)
        rows.back().push_back(costs.costOf(op).time);
    }
    return rows;
  }

  /// The location of operation `index`, or of the last one if there are fewer; of the module if there are none.
  Location locationOf(ArrayRef<Operation *> ops, size_t index = 0) {
    return ops.empty() ? getOperation()->getLoc() : ops[std::min(index, ops.size() - 1)]->getLoc();
  }

  InFlightDiagnostic emitProblem(Location loc) { return emitError(loc) << getArgument() << ": "; }

  /// The costs of all ranks. Every rank makes the same calls of the hook: the first compares what is aligned and by
  /// which machines, and the second gathers costs, or what tells where the programs differ. If the machines differ,
  /// more calls spread the first rank's.
  FailureOr<RankRows> gatherCosts(ArrayRef<Operation *> ops) {
    RowGatherer rows(gather);
    std::vector<Ns> identities;
    llvm::StringMap<size_t> groups;
    for (Operation *op : ops)
      identities.push_back(identityOf(op, groups));
    std::vector<Ns> header = Header::make(identities, models.front()->machine());
    RankRows headers = rows(header);
    if (llvm::any_of(headers, [&](const std::vector<Ns> &row) { return !Header::haveSameOperations(row, header); })) {
      explainDifference(ops, std::move(identities), headers, rows);
      return failure();
    }
    RankRows costs;
    if (!headers.empty())
      costs = rows(costsOnEveryMachine(ops).front());
    if (costs.empty()) {
      emitProblem(locationOf(ops)) << rows.problem();
      return failure();
    }
    for (auto [rank, row] : llvm::enumerate(costs))
      for (auto [op, cost] : llvm::zip_equal(ops, row))
        if (cost < 0) {
          emitProblem(op->getLoc()) << "expected a cost of at least 0 ns from rank " << rank << ", got " << cost;
          return failure();
        }
    if (failed(agreeOnMachine(locationOf(ops), headers, rows)))
      return failure();
    return costs;
  }

  /// If the machines of the ranks differ, lets later passes use the first rank's on all of them, and says so: buckets,
  /// copies and calls have to cost the same everywhere, too.
  LogicalResult agreeOnMachine(Location loc, const RankRows &headers, RowGatherer &rows) {
    auto other = llvm::find_if(
        headers, [&](const std::vector<Ns> &row) { return row[Header::Machine] != headers.front()[Header::Machine]; });
    if (other == headers.end())
      return success();
    Ns bytes = headers.front()[Header::ProfileBytes];
    if (bytes < 0 || bytes > kMostProfileBytes)
      return emitProblem(loc) << "rank 0 gathered what is no size of a profile";
    // All ranks make as many calls. What the others pass does not count.
    std::string text = models.front()->machine().toJSON();
    text.resize(llvm::alignTo(bytes, sizeof(Ns)), ' ');
    std::vector<Ns> words(text.size() / sizeof(Ns));
    std::memcpy(words.data(), text.data(), text.size());
    for (size_t at = 0; at < words.size(); at += kProfileChunk) {
      auto chunk = MutableArrayRef(words).slice(at, std::min(kProfileChunk, words.size() - at));
      RankRows all = rows(chunk);
      if (all.empty())
        return emitProblem(loc) << rows.problem();
      llvm::copy(all.front(), chunk.begin());
    }
    std::memcpy(text.data(), words.data(), text.size());
    std::string name = machineName(&getContext(), machine);
    llvm::Expected<MachineModel> agreed = MachineModel::parse(text, name);
    if (!agreed)
      return emitProblem(loc) << "the machine of rank 0: " << llvm::toString(agreed.takeError());
    mlir::emitWarning(getOperation()->getLoc())
        << getArgument() << ": rank " << (other - headers.begin()) << " has another machine than rank 0 ('"
        << models.front()->machine().name << "' here); later passes use that of rank 0, '" << agreed->name
        << "', on all ranks for what has no time of its own";
    if (Environment *environment = Environment::of(&getContext()))
      environment->agreedMachines[name] = std::make_shared<const CostModel>(std::move(*agreed));
    return success();
  }

  /// Says on every rank at which operation its program differs from that of the first rank that has another one.
  void explainDifference(ArrayRef<Operation *> ops, std::vector<Ns> identities, const RankRows &headers,
                         RowGatherer &rows) {
    std::vector<Ns> own = {static_cast<Ns>(identities.size()), Header::hash(identities)};
    auto differs = [&](const std::vector<Ns> &row) { return !Header::haveSameOperations(row, own); };
    size_t other = llvm::find_if(headers, differs) - headers.begin();
    Ns longest = 0;
    for (const std::vector<Ns> &header : headers)
      longest = std::max(longest, header.front());
    if (longest > kMostOperations) {
      emitProblem(locationOf(ops)) << "rank " << other << " gathered what is no number of operations";
      return;
    }
    identities.resize(longest);
    RankRows all = rows(identities);
    if (all.empty()) {
      emitProblem(locationOf(ops)) << rows.problem();
      return;
    }
    size_t first = std::mismatch(identities.begin(), identities.end(), all[other].begin()).first - identities.begin();
    InFlightDiagnostic diagnostic = emitProblem(locationOf(ops, first));
    diagnostic << "expected the same operations on all ranks, got "
               << formatCount(static_cast<int64_t>(ops.size()), "operation") << " here and " << headers[other].front()
               << " on rank " << other << "; ";
    if (first < ops.size())
      diagnostic << "operation " << first << " here, '" << ops[first]->getName() << "', is the first that differs";
    else
      diagnostic << "rank " << other << " has more operations after the last one here";
  }

  /// The operations to align, in program order: those of blocks with collectives. An operation that contains
  /// collectives has no time of its own, because its blocks are visited too.
  SmallVector<Operation *> findAligned() {
    SmallVector<Operation *> ops;
    OperationCosts costs(*models.front());
    MatrixProducts products(costs);
    auto isAligned = [&](Operation &op) {
      if (op.hasTrait<OpTrait::IsTerminator>())
        return false;
      if (isa<CollectiveOpInterface>(op))
        return operations == AlignedOperations::All;
      if (communicates(&op))
        return false;
      return operations == AlignedOperations::Products ? products.contains(&op) : hasCost(&op, costs);
    };
    for (Operation *function : findFunctions(getOperation()))
      for (Block *block : findSchedulableBlocks(function))
        for (Operation &op : *block)
          if (isAligned(op))
            ops.push_back(&op);
    return ops;
  }

  /// Whether an operation has a cost on any rank: by its nature, and not because this rank's time is 0.
  static bool hasCost(Operation *op, const OperationCosts &costs) {
    return op->hasAttr(CommDialect::kCostAttrName) || costs.costOf(op).source != OpCostSource::Free;
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

  /// Gives `op` the median as its time, and the extremes as its error bar. A collective that costs the same everywhere
  /// keeps its curve, which prices buckets too.
  static bool setTime(Operation *op, const AlignedCost &aligned) {
    auto cost = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
    bool hasTime = cost && cost.getTime();
    if (aligned.isEqualEverywhere() && !hasTime && (isa<CollectiveOpInterface>(op) || aligned.median == 0))
      return false;
    std::optional<int64_t> least, most;
    if (!aligned.isEqualEverywhere()) {
      least = aligned.least;
      most = aligned.most;
    } else if (hasTime && *cost.getTime() == aligned.median) {
      return false; // An error bar that it may have still holds.
    }
    auto attr =
        CostAttr::get(op->getContext(), cost ? cost.getFlops() : std::nullopt, cost ? cost.getBytes() : std::nullopt,
                      cost ? cost.getWorkspace() : std::nullopt, aligned.median, least, most);
    if (attr == cost)
      return false;
    op->setAttr(CommDialect::kCostAttrName, attr);
    return true;
  }

  void remarkAligned(Operation *op, const AlignedCost &cost) {
    if (!op->getContext()->getRemarkEngine())
      return;
    auto remark = remark::passed(op->getLoc(), remark::RemarkOpts::name("cost").category(getArgument()));
    remark << remark::metric("CostNs", cost.median) << remark::metric("LeastNs", cost.least)
           << remark::metric("MostNs", cost.most);
    describeRemark(remark, remarkKind(op), kNoLimitingFactor,
                   "costs " + formatNs(cost.median) + " in later passes: the median of " + formatNs(cost.least) +
                       " to " + formatNs(cost.most));
  }

  void remarkSkew(Operation *op, const AlignedCost &cost) {
    if (!op->getContext()->getRemarkEngine())
      return;
    auto remark = remark::analysis(op->getLoc(), remark::RemarkOpts::name("skew").category(getArgument()));
    remark << remark::metric("CostNs", cost.median) << remark::metric("LeastNs", cost.least)
           << remark::metric("MostNs", cost.most);
    describeRemark(remark, remarkKind(op), kNoLimitingFactor,
                   "ranks are more than 10 % apart: " + formatNs(cost.least) + " to " + formatNs(cost.most));
  }

  void remarkModule(int64_t aligned, int64_t ranks, int64_t skewed) {
    auto remark =
        remark::analysis(getOperation()->getLoc(), remark::RemarkOpts::name("aligned").category(getArgument()));
    remark << remark::metric("Operations", aligned) << remark::metric("Ranks", ranks)
           << remark::metric("Skewed", skewed);
    describeRemark(remark, "module", kNoLimitingFactor,
                   std::to_string(aligned) + (aligned == 1 ? " cost is" : " costs are") + " the median of " +
                       std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
                       (skewed > 0 ? "; " + std::to_string(skewed) + " with skew" : ""));
  }

  GatherCosts gather;
  std::vector<std::shared_ptr<const CostModel>> models;
};

} // namespace

std::unique_ptr<Pass> commsched::createCommAlignCosts(std::string machine, GatherCosts gather,
                                                      AlignedOperations operations) {
  return std::make_unique<CommAlignCostsPass>(std::move(machine), std::move(gather), operations);
}
