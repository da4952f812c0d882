//===- CommBucket.cpp - The pass comm-bucket --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Says which collectives may be merged, has the greedy rule merge them by bytes, and carries that out. The form of the
// merged operations is Transforms/Bucketing's.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/GreedyBuckets.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/BucketWriter.h"
#include "PassBase/MachinePass.h"
#include "Rewrites/RewriteRemarks.h"
#include "Scheduling/BlockPass.h"
#include "SignatureValues.h"
#include "llvm/Support/Regex.h"
#include <map>

namespace commsched {
#define GEN_PASS_DEF_COMMBUCKET
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// What keeps a node that has the form from being merged, or empty.
StringRef findObstacle(const Problem &problem, NodeId node) {
  const Node &start = problem.nodes[node];
  if (start.mergeKey == kNone)
    return "its input or its result may be one of several buffers";
  if (start.pinned || problem.nodes[problem.members[node].wait].pinned)
    return "the start or its wait is pinned";
  if (start.unit != kNone || problem.nodes[problem.members[node].wait].unit != kNone)
    return "the start or its wait belongs to a unit (comm.unit)";
  if (!isMergeable(problem, node))
    return "its wait depends on more than its start";
  return "";
}

struct CommBucketPass : MachinePass<commsched::impl::CommBucketBase<CommBucketPass>>, private BlockRule {
  using MachinePass::MachinePass;

  LogicalResult checkOptions(MLIRContext *context) final {
    if (kinds.empty())
      kinds = {"all_gather", "reduce_scatter", "all_reduce"};
    for (const std::string &kind : kinds)
      if (kind != "all_gather" && kind != "reduce_scatter" && kind != "all_reduce")
        return emitError(UnknownLoc::get(context))
               << "comm-bucket: kinds: expected all_gather, reduce_scatter or all_reduce, got '" << kind << "'";
    if (std::string wrong; !names.empty() && !llvm::Regex(names).isValid(wrong))
      return emitError(UnknownLoc::get(context)) << "comm-bucket: names: '" << names << "' is no pattern: " << wrong;
    return success();
  }

  void runWithModel() final {
    if (failed(scheduleBlocks(getOperation(), getArgument(), *model, *this, /*inputPeaks=*/nullptr)))
      signalPassFailure();
  }

private:
  /// Why `start` is not to be merged; empty where it may be.
  StringRef findObstacle(CollectiveOpInterface start, const Problem &problem, NodeId node) const {
    if (!llvm::is_contained(kinds, stringify(start.getCollectiveKind())))
      return "the option kinds excludes its kind";
    if (StringRef obstacle = findMergeObstacle(start); !obstacle.empty())
      return obstacle;
    if (StringRef obstacle = ::findObstacle(problem, node); !obstacle.empty())
      return obstacle;
    if (!names.empty() && !bucketNameOf(start))
      return "none of its names matches the option names";
    if (!fsdpOnly && !fsdpExact)
      return "";
    const SignatureRule rule = fsdpExact ? SignatureRule::OneCast : SignatureRule::Chain;
    if (isa<AllReduceOp>(*start))
      return "it is an all-reduce; fsdp-only merges gathers and reduce-scatters";
    if (isa<AllGatherOp>(*start) && !argumentOf(start.getCollectiveInputs().front(), rule))
      return "it does not gather an argument of the function";
    if (isa<ReduceScatterOp>(*start)) {
      auto wait = cast<WaitOp>(*start.getCollectiveFuture().user_begin());
      if (!resultOf(wait->getResult(0), rule))
        return "its value reaches more than the results of the function";
    }
    return "";
  }

  /// What a collective's bucket is called by the option `names`: the text of the pattern's groups in the first of its
  /// names that matches, or else the text that the pattern matches. None if it matches no name.
  std::optional<std::string> bucketNameOf(CollectiveOpInterface start) const {
    llvm::Regex pattern(names);
    SmallVector<StringRef> texts;
    for (const std::string &name : namesOf(start))
      if (pattern.match(name, &texts)) {
        ArrayRef<StringRef> groups(texts);
        return llvm::join(groups.size() > 1 ? groups.drop_front() : groups, "\n");
      }
    return std::nullopt;
  }

  /// Gives candidates whose names differ by the option `names` merge keys of their own.
  void separateByName(LoadedBlock &loaded, ArrayRef<NodeId> candidates) const {
    std::map<std::pair<int32_t, std::string>, int32_t> keys;
    std::vector<MergeKey> &known = loaded.problem.mergeKeys;
    for (NodeId node : candidates) {
      int32_t &key = loaded.problem.nodes[node].mergeKey;
      std::string name = *bucketNameOf(cast<CollectiveOpInterface>(loaded.nodes[node]));
      auto [own, isNew] = keys.try_emplace({key, std::move(name)}, static_cast<int32_t>(known.size()));
      if (isNew)
        known.push_back(known[key]);
      key = own->second;
    }
  }

  /// Sorts the members of each bucket as the option `member-order` says. Those without a place in the signature stay
  /// behind the others, in the order of the program.
  void sortMembers(const LoadedBlock &loaded, std::vector<Bucket> &buckets) const {
    if (memberOrder == MemberOrder::Program)
      return;
    auto placeOf = [&](NodeId member) {
      std::optional<unsigned> place = signaturePlaceOf(cast<CollectiveOpInterface>(loaded.nodes[member]));
      return std::tuple(!place.has_value(), place.value_or(0), member);
    };
    for (Bucket &bucket : buckets)
      llvm::sort(bucket.members, [&](NodeId a, NodeId b) { return placeOf(a) < placeOf(b); });
  }

  bool stampsUnchanged() const final { return true; }

  LoadOptions loadOptions() const final {
    LoadOptions options;
    options.bucketing = true;
    // Which collectives go together is for the caps to say; each bucket is priced by its members afterwards.
    options.separatesMeasured = false;
    if (mixedTypes)
      options.mixedTypes = form == BucketForm::Packed ? MixedTypes::Gathers : MixedTypes::All;
    return options;
  }

  /// The starts that may be merged; says of the others what is in the way.
  std::vector<NodeId> findCandidates(const LoadedBlock &loaded, BlockVoice &voice) const {
    std::vector<NodeId> candidates;
    for (NodeId node = 0; node < loaded.problem.size(); ++node) {
      auto start = dyn_cast<CollectiveOpInterface>(loaded.nodes[node]);
      if (!start)
        continue;
      if (StringRef obstacle = findObstacle(start, loaded.problem, node); !obstacle.empty())
        sayRefused(start, obstacle.str(), voice);
      else
        candidates.push_back(node);
    }
    return candidates;
  }

  GreedyBucketOptions bucketOptions() const {
    GreedyBucketOptions options;
    options.caps.assign(capBytes.begin(), capBytes.end());
    options.capsOfKind[CollectiveKind::AllGather].assign(allGatherCapBytes.begin(), allGatherCapBytes.end());
    options.capsOfKind[CollectiveKind::ReduceScatter].assign(reduceScatterCapBytes.begin(),
                                                             reduceScatterCapBytes.end());
    options.capsOfKind[CollectiveKind::AllReduce].assign(allReduceCapBytes.begin(), allReduceCapBytes.end());
    options.form = form;
    return options;
  }

  LogicalResult solveBlock(BlockWork &work, BlockVoice &voice) const final {
    LoadedBlock &loaded = work.loaded;
    std::vector<NodeId> candidates = findCandidates(loaded, voice);
    if (!names.empty())
      separateByName(loaded, candidates);
    std::vector<Bucket> buckets = greedyBuckets(loaded.problem, candidates, bucketOptions());
    sortMembers(loaded, buckets);
    saySingles(loaded, candidates, buckets, voice);
    priceBuckets(loaded, buckets, OperationCosts(*model));
    llvm::Expected<Schedule> schedule = mergeInOrder(loaded.problem, std::move(buckets));
    if (!schedule)
      return emitError(loaded.nodes.getBlock().getParentOp()->getLoc())
             << "comm-bucket: " << llvm::toString(schedule.takeError());
    work.schedule = std::move(*schedule);
    measure(loaded.problem, work.schedule);
    work.schedule.claims = {makespanOf(work.schedule.expanded.problem, work.schedule.order), work.schedule.peak};
    return success();
  }

  void sayRefused(Operation *op, std::string reason, BlockVoice &voice) const {
    voice.say([loc = op->getLoc(), kind = remarkKind(op), reason = std::move(reason), pass = getArgument()] {
      remarkMissed(loc, kind, pass, reason);
    });
  }

  /// Says which candidates found no company.
  void saySingles(const LoadedBlock &loaded, ArrayRef<NodeId> candidates, ArrayRef<Bucket> buckets,
                  BlockVoice &voice) const {
    std::vector<bool> merged(loaded.problem.size(), false);
    for (const Bucket &bucket : buckets)
      for (NodeId member : bucket.members)
        merged[member] = true;
    for (NodeId node : candidates) {
      if (merged[node])
        continue;
      std::string reason = "no other collective of its kind, group, element type and reduction";
      if (!names.empty())
        reason += ", and of its name,";
      reason += " fits in its bucket";
      if (mixedTypes && form == BucketForm::Packed && !isa<AllGatherOp>(loaded.nodes[node]))
        reason += "; a reduction computes with its elements and cannot mix types";
      sayRefused(loaded.nodes[node], std::move(reason), voice);
    }
  }

  void explainBlock(const BlockWork &work, BlockVoice &voice) const final {
    for (const Bucket &bucket : work.schedule.buckets) {
      Bytes bytes = 0;
      for (NodeId member : bucket.members)
        bytes += work.loaded.problem.nodes[member].bytes;
      std::string what =
          std::to_string(bucket.members.size()) + " collectives merged into one, " + stringify(bucket.form).str();
      Operation *first = work.loaded.nodes[bucket.members.front()];
      voice.say([loc = first->getLoc(), kind = remarkKind(first), pass = getArgument(), what = std::move(what), bytes] {
        remarkPassed(loc, kind, pass, what, bytes);
      });
    }
  }

  void reportTraffic(Location loc, const Traffic &before, const Traffic &after, BlockVoice &voice) const final {
    voice.say([loc, before, after, pass = getArgument()] {
      auto remark = remark::analysis(loc, remark::RemarkOpts::name("traffic").category(pass));
      remark << remark::metric("CollectivesBefore", before.collectives)
             << remark::metric("CollectivesAfter", after.collectives) << remark::metric("BytesBefore", before.bytes)
             << remark::metric("BytesAfter", after.bytes);
      describeRemark(remark, "block", kNoLimitingFactor,
                     "collectives " + std::to_string(after.collectives) + ", were " +
                         std::to_string(before.collectives) + "; bytes " + formatBytes(after.bytes) + ", were " +
                         formatBytes(before.bytes));
    });
  }
};

} // namespace
