//===- CommBucket.cpp - The pass comm-bucket --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// Says which collectives may be merged, has the greedy rule merge them by bytes, and carries that out. The form of the
// merged operations is Transforms/Bucketing's.
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Casts.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Scheduling/GreedyBuckets.h"
#include "CommSched/Transforms/Bucketing.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/SchedulingOptions.h"
#include "RewriteRemarks.h"
#include "llvm/ADT/MapVector.h"

namespace commsched {
#define GEN_PASS_DEF_COMMBUCKET
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// What `op` casts or views, or null where it does neither.
Value getCastOrViewed(Operation *op) {
  if (isElementTypeCast(op))
    return op->getOperand(0);
  if (op->getNumResults() != 1 || isa<WaitOp>(op))
    return {};
  return getAliasedValue(op->getResult(0));
}

/// A parameter's shard: an argument of the function, or casts and views of one.
bool isArgument(Value value) {
  while (Operation *def = value.getDefiningOp()) {
    value = getCastOrViewed(def);
    if (!value)
      return false;
  }
  Block *owner = cast<BlockArgument>(value).getOwner();
  return owner->isEntryBlock() && owner->getParentOp()->hasTrait<OpTrait::IsIsolatedFromAbove>();
}

/// A gradient: only the outputs see the value, through a chain of casts and views at most.
bool onlyReachesOutputs(Value value) {
  while (true) {
    if (llvm::all_of(value.getUsers(), [](Operation *user) { return user->hasTrait<OpTrait::IsTerminator>(); }))
      return true;
    if (!value.hasOneUse())
      return false;
    Operation *user = *value.user_begin();
    if (getCastOrViewed(user) != value)
      return false;
    value = user->getResult(0);
  }
}

/// Collectives and bytes of one kind over one group.
struct Traffic {
  int64_t collectives = 0;
  Bytes bytes = 0;
};

using TrafficMap = llvm::MapVector<std::pair<uint8_t, Attribute>, Traffic>;

/// The traffic of a block, without what is nested in it.
TrafficMap measureTraffic(Block &block) {
  TrafficMap traffic;
  for (auto start : block.getOps<CollectiveOpInterface>()) {
    Traffic &entry = traffic[{static_cast<uint8_t>(start.getCollectiveKind()), start.getGroupAttr()}];
    ++entry.collectives;
    entry.bytes += getCollectiveBytes(start);
  }
  return traffic;
}

struct CommBucketPass : public commsched::impl::CommBucketBase<CommBucketPass> {
  using CommBucketBase::CommBucketBase;

  LogicalResult initialize(MLIRContext *context) final {
    if (kinds.empty())
      kinds = {"all_gather", "reduce_scatter", "all_reduce"};
    for (const std::string &kind : kinds)
      if (kind != "all_gather" && kind != "reduce_scatter" && kind != "all_reduce")
        return emitError(UnknownLoc::get(context)) << "comm-bucket merges no collectives of kind '" << kind << "'";
    model = loadCostModel(context, machine);
    return success(model != nullptr);
  }

  void runOnOperation() final {
    OperationCosts costs(*model);
    for (Block *block : findSchedulableBlocks(getOperation()))
      if (failed(bucketBlock(*block, costs)))
        return signalPassFailure();
    stampSignature(getOperation());
  }

private:
  /// Why `start` is not to be merged; empty where it may be.
  StringRef findObstacle(CollectiveOpInterface start, bool mergeable) const {
    if (!llvm::is_contained(kinds, stringify(start.getCollectiveKind())))
      return "its kind is not among those to merge";
    if (!mergeable)
      return "it does not have the form that a bucket takes: one tensor of static size along dimension 0, one wait in "
             "the same block, no destination, not pinned";
    if (!fsdpOnly)
      return "";
    if (isa<AllGatherOp>(*start) && !isArgument(start.getCollectiveInputs().front()))
      return "it does not gather an argument of the function";
    if (isa<ReduceScatterOp>(*start)) {
      auto wait = cast<WaitOp>(*start.getCollectiveFuture().user_begin());
      if (!onlyReachesOutputs(wait->getResult(0)))
        return "its result is used by more than the outputs";
    }
    return "";
  }

  LogicalResult bucketBlock(Block &block, const OperationCosts &costs) {
    LoadOptions load;
    load.bucketing = true;
    LoadedBlock loaded = loadBlock(block, costs, load);
    std::vector<NodeId> candidates;
    for (NodeId node = 0; node < loaded.problem.size(); ++node) {
      auto start = dyn_cast<CollectiveOpInterface>(loaded.nodes[node]);
      if (!start)
        continue;
      if (StringRef obstacle = findObstacle(start, isMergeable(loaded.problem, node)); !obstacle.empty())
        remarkMissed(start->getLoc(), getArgument(), obstacle.str());
      else
        candidates.push_back(node);
    }
    GreedyBucketOptions options;
    options.caps.assign(capBytes.begin(), capBytes.end());
    options.form = form;
    std::vector<Bucket> buckets = greedyBuckets(loaded.problem, candidates, options);
    remarkSingles(loaded, candidates, buckets);
    if (buckets.empty())
      return success();
    return apply(block, loaded, buckets);
  }

  /// Candidates that found no company.
  void remarkSingles(const LoadedBlock &loaded, ArrayRef<NodeId> candidates, ArrayRef<Bucket> buckets) {
    std::vector<bool> merged(loaded.problem.size(), false);
    for (const Bucket &bucket : buckets)
      for (NodeId member : bucket.members)
        merged[member] = true;
    for (NodeId node : candidates)
      if (!merged[node])
        remarkMissed(loaded.nodes[node]->getLoc(), getArgument(),
                     "no other collective of its kind, group, element type and reduction fits in its bucket");
  }

  LogicalResult apply(Block &block, const LoadedBlock &loaded, ArrayRef<Bucket> buckets) {
    Operation *parent = block.getParentOp();
    llvm::Expected<ExpandedProblem> expanded = expandBuckets(loaded.problem, buckets);
    if (!expanded)
      return parent->emitError() << "comm-bucket: " << llvm::toString(expanded.takeError());
    for (const Bucket &bucket : buckets) {
      Bytes bytes = 0;
      for (NodeId member : bucket.members)
        bytes += loaded.problem.nodes[member].bytes;
      remarkPassed(loaded.nodes[bucket.members.front()]->getLoc(), getArgument(),
                   std::to_string(bucket.members.size()) + " collectives are one, " + stringify(bucket.form).str(),
                   bytes);
    }
    TrafficMap before = measureTraffic(block);
    applySchedule(loaded, buckets, *expanded, identityOrder(expanded->problem));
    return compareTraffic(parent, before, measureTraffic(block));
  }

  /// Every byte over every group is still sent; fewer collectives send it.
  LogicalResult compareTraffic(Operation *parent, const TrafficMap &before, const TrafficMap &after) {
    Traffic total[2];
    for (const auto &[key, traffic] : before) {
      auto it = after.find(key);
      if (it == after.end() || it->second.bytes != traffic.bytes)
        return parent->emitError() << "comm-bucket lost bytes of " << stringify(static_cast<CollectiveKind>(key.first))
                                   << " over " << key.second << "; please report this";
      total[0].collectives += traffic.collectives;
      total[0].bytes += traffic.bytes;
      total[1].collectives += it->second.collectives;
      total[1].bytes += it->second.bytes;
    }
    remark::analysis(parent->getLoc(), remark::RemarkOpts::name("traffic").category(getArgument()))
        << remark::metric("CollectivesBefore", total[0].collectives)
        << remark::metric("CollectivesAfter", total[1].collectives) << remark::metric("BytesBefore", total[0].bytes)
        << remark::metric("BytesAfter", total[1].bytes);
    return success();
  }

  std::shared_ptr<const CostModel> model;
};

} // namespace
