//===- CommMultiStream.cpp - The pass comm-multi-stream ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Says which streams each operation may use and what it costs, has the planner choose, and writes streams and events.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Analysis/Streams.h"
#include "CommSched/Scheduling/Inductor/MultiStream.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/BucketWriter.h"
#include "PassBase/MachinePass.h"
#include "Scheduling/BlockPass.h"
#include "StreamMemory.h"
#include <limits>

namespace commsched {
#define GEN_PASS_DEF_COMMMULTISTREAM
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// The makespan and the peak of a block.
struct Measures {
  Measures() = default;
  explicit Measures(const LoadedBlock &loaded) {
    Order order = identityOrder(loaded.problem);
    makespan = makespanOf(loaded.problem, order);
    peak = peakOf(loaded.problem, order);
  }
  Ns makespan = 0;
  Bytes peak = 0;
};

/// A block on several streams in one order of issue.
struct Outcome {
  /// Whether operations have other places than in the program.
  bool isReordered = false;
  /// Why the block cannot have this order or should not; empty if it has streams.
  std::string obstacle;
  /// With and without the awaits that keep the limit on memory, and their number.
  Measures after, free;
  int64_t waits = 0;
  int64_t streams = 0;

  bool hasStreams() const { return obstacle.empty(); }
  /// ns; without streams, the largest number.
  Ns makespan() const { return hasStreams() ? after.makespan : std::numeric_limits<Ns>::max(); }
  StringRef order() const { return isReordered ? "the order of planned starts" : "the order of the program"; }
};

/// Bytes of the values that an operation makes; those of dynamic size count as 0.
Bytes bytesOfResults(Operation *op) {
  Wide bytes = 0;
  for (Type type : op->getResultTypes()) {
    auto future = dyn_cast<FutureType>(type);
    for (Type value : future ? future.getTypes() : ArrayRef<Type>(type))
      bytes += getStaticBytes(value).value_or(0);
  }
  return static_cast<Bytes>(std::min<Wide>(bytes, kLargestAmount));
}

/// Returns true if the block has streams or anchors already.
bool hasAnchors(Block &block) {
  return usesStreams(block) || llvm::any_of(block, llvm::IsaPred<RecordOp, AwaitEventOp>);
}

struct CommMultiStreamPass : BudgetedPass<commsched::impl::CommMultiStreamBase<CommMultiStreamPass>> {
  using BudgetedPass::BudgetedPass;

  LogicalResult checkOptions(MLIRContext *context) final {
    if (failed(takeStreams(context, "compute-streams", computeStreams, 0, options.computeStreams)) ||
        failed(takeStreams(context, "comm-streams", commStreams, 1, options.commStreams)))
      return failure();
    if (minCostNs < 1 || minCostNs > kLargestOption)
      return emitError(UnknownLoc::get(context))
             << "comm-multi-stream: min-cost-ns=" << minCostNs.getValue() << ": expected 1 to " << kLargestOption;
    if (syncOverheadNs > kLargestOption)
      return emitError(UnknownLoc::get(context)) << "comm-multi-stream: sync-overhead-ns=" << syncOverheadNs.getValue()
                                                 << ": expected at most " << kLargestOption;
    messageStream = 1;
    while (llvm::is_contained(options.computeStreams, messageStream) ||
           llvm::is_contained(options.commStreams, messageStream))
      ++messageStream;
    if (messageStream >= CommDialect::kMaxStreams)
      return emitError(UnknownLoc::get(context))
             << "comm-multi-stream: expected a number from 1 to " << CommDialect::kMaxStreams - 1
             << " that neither compute-streams nor comm-streams has, for sends and receives";
    options.minCost = minCostNs;
    options.sharesResources = sharedResources;
    return success();
  }

  void runWithModel() final {
    options.syncOverhead = syncOverheadNs < 0 ? model->machine().launch : syncOverheadNs;
    OperationCosts costs(*model);
    if (auto peaks = getCachedAnalysis<InputPeaks>())
      inputPeaks = &peaks->get();
    bool changed = false;
    load.besideMessages = sendsOrReceives(getOperation());
    for (Operation *function : findFunctions(getOperation()))
      for (Block *block : findBlocks(function)) {
        FailureOr<bool> done = plan(*block, costs);
        if (failed(done))
          return signalPassFailure();
        changed |= *done;
      }
    if (!changed)
      markAllAnalysesPreserved();
  }

private:
  /// Largest option in ns (an hour): sums of options along a path stay far from overflow.
  static constexpr int64_t kLargestOption = 3'600'000'000'000;

  /// The numbers of an option in their order, each once, or the default.
  static LogicalResult takeStreams(MLIRContext *context, StringRef name, ArrayRef<int64_t> given, int32_t byDefault,
                                   SmallVectorImpl<int32_t> &streams) {
    streams.clear();
    for (int64_t number : given) {
      if (number < 0 || number >= CommDialect::kMaxStreams)
        return emitError(UnknownLoc::get(context)) << "comm-multi-stream: " << name << ": expected numbers from 0 to "
                                                   << CommDialect::kMaxStreams - 1 << ", got " << number;
      if (!llvm::is_contained(streams, static_cast<int32_t>(number)))
        streams.push_back(static_cast<int32_t>(number));
    }
    if (streams.empty())
      streams.push_back(byDefault);
    return success();
  }

  /// Blocks with collectives, and with several compute streams the body of the function in any case.
  SmallVector<Block *> findBlocks(Operation *function) const {
    SmallVector<Block *> blocks = findSchedulableBlocks(function);
    if (options.computeStreams.size() == 1 || function->getNumRegions() == 0 || isa<ModuleOp>(function))
      return blocks;
    for (Block &block : function->getRegion(0))
      if (!llvm::is_contained(blocks, &block))
        blocks.push_back(&block);
    return blocks;
  }

  /// PyTorch's estimate without a model: the bytes of the results over the bandwidth of the role.
  Ns costByBytes(Operation *op, StreamRole role) const {
    const MachineModel &machine = model->machine();
    int64_t links = 0;
    for (int64_t rate : {machine.intra.bytesPerSecond, machine.inter.bytesPerSecond})
      links = links == 0 || (rate > 0 && rate < links) ? rate : links;
    Bytes bytes = bytesOfResults(op);
    if (machine.memoryBytesPerSecond <= 0 || links <= 0 || bytes <= 0)
      return 0;
    constexpr int64_t kNsPerSecond = 1'000'000'000;
    Ns compute = mulDivUp(bytes, kNsPerSecond, machine.memoryBytesPerSecond),
       comm = mulDivUp(bytes, kNsPerSecond, links);
    return role == StreamRole::Comm ? comm : role == StreamRole::Compute ? compute : std::max(comm, compute);
  }

  static bool isMessage(Operation *op) {
    auto start = dyn_cast<CollectiveOpInterface>(op);
    return start && start.isPointToPoint();
  }

  StreamNode describe(const LoadedBlock &loaded, NodeId id, const OperationCosts &costs) const {
    Operation *op = loaded.nodes[id];
    const Node &node = loaded.problem.nodes[id];
    StreamNode result;
    StreamUse use = getStreamUse(op);
    if (use != StreamUse::Work && use != StreamUse::Start)
      return {StreamRole::Transparent};
    result.role = use == StreamUse::Start         ? StreamRole::Comm
                  : node.kind == NodeKind::Hybrid ? StreamRole::Hybrid
                                                  : StreamRole::Compute;
    bool known = analyticCosts && (costs.costOf(op).known() || node.region != kNone);
    result.cost = known ? node.cost : costByBytes(op, result.role);
    if (!runsOnOneStream(op))
      result.fixedStream = 0;
    // An event covers the collectives of its stream. Whoever awaits one that covers a send, before it has posted the
    // receive that a peer's send needs, waits for ever. So messages have a stream on which nothing is recorded.
    if (isMessage(op))
      result.fixedStream = messageStream;
    return result;
  }

  FailureOr<bool> plan(Block &block, const OperationCosts &costs) {
    if (hasAnchors(block)) {
      say(block, "it has streams or events already; the pass chooses them anew only for a program without");
      return false;
    }
    LoadedBlock loaded = loadBlock(block, costs, load);
    if (!loaded.defect.empty())
      return failure();
    IndexLists hazards = computeHazards(loaded.nodes, StorageMap(block));
    std::vector<StreamNode> nodes;
    for (NodeId id = 0; id < loaded.nodes.size(); ++id)
      nodes.push_back(describe(loaded, id, costs));
    MultiStreamPlan answer = planStreams(hazards, nodes, options);
    sayPlacements(loaded, nodes, answer);
    if (!answer.applied && gate) {
      say(block, "the prediction of " + formatNs(answer.predicted) + " is not below the sum of all costs, " +
                     formatNs(answer.serial));
      return false;
    }
    return carryOutInBestOrder(loaded, hazards, answer, costs);
  }

  /// Carries out the plan in the orders of issue that the option names, and keeps the faster: of equals, that of the
  /// program. Returns whether the block has streams now.
  FailureOr<bool> carryOutInBestOrder(const LoadedBlock &loaded, const IndexLists &hazards,
                                      const MultiStreamPlan &answer, const OperationCosts &costs) {
    Block &block = loaded.nodes.getBlock();
    Order order = orderByStart(loaded.problem.preds, answer);
    bool triesProgram = issueOrder != IssueOrder::StartTime;
    bool triesStart = !triesProgram || (issueOrder == IssueOrder::Best && order != identityOrder(loaded.problem));
    Outcome byStart, inProgram;
    if (triesStart && failed(carryOutByStart(loaded, order, answer, costs, byStart)))
      return failure();
    if (triesProgram) {
      if (triesStart && byStart.hasStreams())
        takeBackByStart(loaded);
      if (failed(carryOut(loaded, hazards, answer, loaded, costs, inProgram)))
        return failure();
    }
    bool keepsStart = triesStart && (!triesProgram || byStart.makespan() < inProgram.makespan());
    if (keepsStart && triesProgram) {
      if (inProgram.hasStreams())
        takeBack(block);
      if (failed(carryOutByStart(loaded, order, answer, costs, byStart)))
        return failure();
    }
    const Outcome &kept = keepsStart ? byStart : inProgram;
    if (triesStart && triesProgram)
      sayDropped(block, keepsStart ? inProgram : byStart, kept);
    if (kept.hasStreams())
      sayDone(block, answer, Measures(loaded), kept, limitOf(loaded));
    else
      say(block, kept.obstacle);
    return kept.hasStreams();
  }

  /// Puts the block into the order of planned starts and carries out the plan. If there is an obstacle, the block is as
  /// it was.
  LogicalResult carryOutByStart(const LoadedBlock &loaded, const Order &order, const MultiStreamPlan &answer,
                                const OperationCosts &costs, Outcome &outcome) {
    Block &block = loaded.nodes.getBlock();
    outcome = {};
    outcome.isReordered = order != identityOrder(loaded.problem);
    if (llvm::any_of(loaded.problem.nodes, [](const Node &node) { return node.unit != kNone; })) {
      outcome.obstacle = "its units stay together";
      return success();
    }
    Bytes peak = peakOf(loaded.problem, order);
    if (peak > limitOf(loaded)) {
      outcome.obstacle = "the peak would reach " + formatBytes(peak) + ", limit " + formatBytes(limitOf(loaded));
      return success();
    }
    SmallVector<Operation *> ops;
    MultiStreamPlan ordered = answer;
    for (auto [place, id] : llvm::enumerate(order)) {
      ops.push_back(loaded.nodes[id]);
      ordered.placements[place] = answer.placements[id];
    }
    applyOrder(block, ops);
    LoadedBlock again = loadBlock(block, costs);
    if (!again.defect.empty() ||
        failed(carryOut(again, computeHazards(again.nodes, StorageMap(block)), ordered, loaded, costs, outcome)))
      return failure();
    if (!outcome.hasStreams())
      applyOrder(block, loaded.nodes.getOps());
    return success();
  }

  /// Removes streams and events, and puts the block into the order in which it was loaded.
  static void takeBackByStart(const LoadedBlock &loaded) {
    takeBack(loaded.nodes.getBlock());
    applyOrder(loaded.nodes.getBlock(), loaded.nodes.getOps());
  }

  /// Writes streams and events, and the events that the limit on memory needs. If there is an obstacle, the block is as
  /// it was. `loaded` is the block in the order that it has, `given` in that of the input. With `gate`, the result
  /// is shorter than the input on the block's own timeline: the planner's own comparison is with all costs in turn,
  /// which is not what an asynchronous input takes.
  LogicalResult carryOut(const LoadedBlock &loaded, const IndexLists &hazards, const MultiStreamPlan &answer,
                         const LoadedBlock &given, const OperationCosts &costs, Outcome &outcome) {
    Block &block = loaded.nodes.getBlock();
    Measures before(given);
    Bytes limit = limitOf(given);
    if (!writeStreams(loaded, hazards, answer)) {
      outcome.obstacle = "everything fits on stream 0";
      return success();
    }
    insertEvents(block);
    LoadedBlock written = loadBlock(block, costs);
    if (!written.defect.empty())
      return failure();
    outcome.free = Measures(written);
    outcome.waits = outcome.free.peak > limit ? limitStreamMemory(loaded, written, limit) : 0;
    if (outcome.waits > 0)
      written = loadBlock(block, costs);
    outcome.after = Measures(written);
    outcome.streams = static_cast<int64_t>(written.problem.streams.size());
    if (outcome.after.peak > limit)
      outcome.obstacle = "the peak would reach " + formatBytes(outcome.after.peak) + ", limit " + formatBytes(limit);
    else if (gate && outcome.after.makespan >= before.makespan)
      outcome.obstacle = "within the limit of " + formatBytes(limit) + " it would take " +
                         (outcome.after.makespan > before.makespan
                              ? formatNs(outcome.after.makespan - before.makespan) + " longer than the input, "
                              : "as long as the input, ") +
                         formatNs(before.makespan);
    if (!outcome.hasStreams())
      takeBack(block);
    return success();
  }

  /// The highest peak that the block may have: never below that of the input.
  Bytes limitOf(const LoadedBlock &loaded) const {
    Bytes peak = peakOf(loaded.problem, identityOrder(loaded.problem)), input = peak;
    if (inputPeaks)
      if (auto known = inputPeaks->peaks.find(&loaded.nodes.getBlock()); known != inputPeaks->peaks.end())
        input = known->second;
    return std::max(peak, memory.limitFor(input));
  }

  /// Removes all streams and events of a block.
  static void takeBack(Block &block) {
    SmallVector<Operation *> awaits, records;
    for (Operation &op : block) {
      if (getStreamNumber(&op) != 0)
        op.removeAttr(CommDialect::kStreamAttrName);
      if (isa<AwaitEventOp>(op))
        awaits.push_back(&op);
      else if (isa<RecordOp>(op))
        records.push_back(&op);
    }
    for (Operation *op : llvm::concat<Operation *>(awaits, records))
      op->erase();
  }

  /// Sets `comm.stream` where it is not 0; a wait is on the stream of its first reader. Returns whether any is.
  static bool writeStreams(const LoadedBlock &loaded, const IndexLists &hazards, const MultiStreamPlan &answer) {
    IndexLists users = hazards.transposed(hazards.size());
    // Indexed by node: the stream of the node, or for a node on no stream that of its first reader; kNone: no reader.
    std::vector<int32_t> streams(hazards.size(), kNone);
    bool any = false;
    for (NodeId id = hazards.size() - 1; id >= 0; --id) {
      streams[id] = answer.placements[id].stream;
      for (NodeId user : users[id])
        if (streams[id] == kNone && !isMessage(loaded.nodes[user]))
          streams[id] = streams[user];
      Operation *op = loaded.nodes[id];
      bool isPlaced = answer.placements[id].stream != kNone || isa<WaitOp>(op);
      if (!isPlaced || streams[id] <= 0 || !runsOnOneStream(op))
        continue;
      any = true;
      op->setAttr(CommDialect::kStreamAttrName, Builder(op->getContext()).getI64IntegerAttr(streams[id]));
    }
    return any;
  }

  //===- Remarks ----------------------------------------------------------------------------===//

  bool listens() { return getContext().getRemarkEngine() != nullptr; }

  void say(Block &block, const std::string &reason) {
    if (!listens())
      return;
    auto remark =
        remark::missed(block.getParentOp()->getLoc(), remark::RemarkOpts::name("streams").category(getArgument()));
    describeRemark(remark, "block", reason, "the block stays on one stream: " + reason);
  }

  void sayPlacements(const LoadedBlock &loaded, ArrayRef<StreamNode> nodes, const MultiStreamPlan &answer) {
    for (NodeId id = 0; listens() && id < loaded.nodes.size(); ++id) {
      const StreamPlacement &at = answer.placements[id];
      if (at.stream == kNone)
        continue;
      Operation *op = loaded.nodes[id];
      auto remark = remark::analysis(op->getLoc(), remark::RemarkOpts::name("placed").category(getArgument()));
      remark << remark::metric("Stream", at.stream) << remark::metric("StartNs", at.start)
             << remark::metric("EndNs", at.end);
      describeRemark(remark, remarkKind(op), kNoLimitingFactor,
                     "stream " + std::to_string(at.stream) + " from " + formatNs(at.start) + " to " + formatNs(at.end));
    }
  }

  /// Says why the other order of issue was kept.
  void sayDropped(Block &block, const Outcome &dropped, const Outcome &kept) {
    if (!listens())
      return;
    std::string reason = dropped.obstacle;
    if (dropped.hasStreams())
      reason = "it takes " + formatNs(dropped.after.makespan) + ", and " + kept.order().str() + " " +
               formatNs(kept.after.makespan);
    auto remark =
        remark::missed(block.getParentOp()->getLoc(), remark::RemarkOpts::name("issue order").category(getArgument()));
    describeRemark(remark, "block", reason, "not in " + dropped.order().str() + ": " + reason);
  }

  void sayDone(Block &block, const MultiStreamPlan &answer, const Measures &before, const Outcome &done, Bytes limit) {
    if (!listens())
      return;
    const Measures &after = done.after;
    int64_t records = llvm::count_if(block, llvm::IsaPred<RecordOp>);
    int64_t awaits = llvm::count_if(block, llvm::IsaPred<AwaitEventOp>);
    auto options = remark::RemarkOpts::name("streams").category(getArgument());
    auto remark = remark::passed(block.getParentOp()->getLoc(), options);
    remark << remark::metric("Streams", done.streams) << remark::metric("Records", records)
           << remark::metric("Awaits", awaits) << remark::metric("AwaitsForMemory", done.waits)
           << remark::metric("SerialNs", answer.serial) << remark::metric("PredictedNs", answer.predicted)
           << remark::metric("MakespanNsBefore", before.makespan) << remark::metric("MakespanNsAfter", after.makespan)
           << remark::metric("PeakBytesBefore", before.peak) << remark::metric("PeakBytesAfter", after.peak)
           << remark::metric("LimitBytes", limit);
    std::string text = "all in turn " + formatNs(answer.serial) + ", on " + std::to_string(done.streams) + " streams " +
                       formatNs(answer.predicted) + "; in " + done.order().str() + " " + formatNs(after.makespan) +
                       ", was " + formatNs(before.makespan) + "; peak " + formatBytes(after.peak) + ", was " +
                       formatBytes(before.peak);
    if (done.waits > 0)
      text += "; awaits that keep the limit of " + formatBytes(limit) + ": " + std::to_string(done.waits) +
              "; without them " + formatNs(done.free.makespan) + " and " + formatBytes(done.free.peak);
    describeRemark(remark, "block", kNoLimitingFactor, text);
  }

  MultiStreamOptions options;
  /// Peaks before the first of consecutive reordering passes; null if none ran before.
  const InputPeaks *inputPeaks = nullptr;
  LoadOptions load;
  /// The stream of sends and receives.
  int32_t messageStream = 1;
};

} // namespace
