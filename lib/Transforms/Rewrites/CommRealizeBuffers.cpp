//===- CommRealizeBuffers.cpp - The pass comm-realize-buffers ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Decides what storage collectives use, as the lowering of PyTorch Inductor does. Waits for what was waited for already
// go. A result that is only copied into a parameter is written there. Small sums are done in one shot: every rank reads
// the others' inputs itself. Other all-reduces, and broadcasts, write their input where nothing reads it afterwards.
// And what a collective reads and writes goes to symmetric memory. For all of these but the first two the storage has
// to be the block's own: of static size, made here, and seen neither by the caller nor by constants.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/SymmetricMemory.h"
#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "RewriteRemarks.h"
#include "StorageUsers.h"
#include "mlir/IR/Dominance.h"
#include "llvm/ADT/TypeSwitch.h"

namespace commsched {
#define GEN_PASS_DEF_COMMREALIZEBUFFERS
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

static TypeRange futureTypes(CollectiveOpInterface start) {
  return cast<FutureType>(start.getCollectiveFuture().getType()).getTypes();
}

static bool isOnTensors(CollectiveOpInterface start) {
  return llvm::all_of(start.getCollectiveInputs().getTypes(), llvm::IsaPred<TensorType>) &&
         llvm::all_of(futureTypes(start), llvm::IsaPred<TensorType>);
}

/// Lets `start`, which has no destinations, write `dests`.
static void setDestinations(CollectiveOpInterface start, ValueRange dests) {
  llvm::TypeSwitch<Operation *>(start)
      .Case<AllGatherOp, ReduceScatterOp, AllReduceOp, AllToAllOp, BroadcastOp, ReduceOp, GatherOp, ScatterOp,
            PermuteOp, RecvOp>([&](auto op) { op.getDestsMutable().assign(dests); });
}

namespace {

struct CommRealizeBuffersPass : public commsched::impl::CommRealizeBuffersBase<CommRealizeBuffersPass> {
  using CommRealizeBuffersBase::CommRealizeBuffersBase;

  void runOnOperation() final {
    TrafficCheck before(getOperation());
    for (Block *block : findSchedulableBlocks(getOperation())) {
      removeUselessWaits(*block);
      writeWhereCopied(*block);
      decideStorage(*block);
    }
    if (failed(before.compare(TrafficCheck(getOperation()), getOperation()->getLoc(), getArgument())))
      signalPassFailure();
  }

private:
  //===- Waits ------------------------------------------------------------------------------===//

  /// A wait for what was waited for before gives the same values. A wait alone keeps a buffer in flight alive, so it
  /// goes only where the earlier one keeps as much.
  void removeUselessWaits(Block &block) {
    for (WaitOp wait : llvm::make_early_inc_range(block.getOps<WaitOp>())) {
      if (wait.getFuture().hasOneUse())
        continue;
      DominanceInfo &dominance = getAnalysis<DominanceInfo>();
      for (Operation *user : wait.getFuture().getUsers()) {
        auto earlier = dyn_cast<WaitOp>(user);
        if (!earlier || earlier == wait || !dominance.properlyDominates(earlier, wait))
          continue;
        if (!llvm::all_of(wait.getInflight(),
                          [&](Value kept) { return llvm::is_contained(earlier.getInflight(), kept); })) {
          remarkMissed(wait.getLoc(), getArgument(), "the wait keeps a buffer that the earlier one does not");
          continue;
        }
        remarkPassed(wait.getLoc(), getArgument(), "wait removed: waited for already", 0);
        wait.replaceAllUsesWith(earlier.getResults());
        wait.erase();
        break;
      }
    }
  }

  //===- Destinations -----------------------------------------------------------------------===//

  /// The copy that is all that becomes of a collective's result, or null.
  static FsdpCopyOp findOnlyCopy(CollectiveOpInterface start) {
    Value future = start.getCollectiveFuture();
    if (!start.getCollectiveDests().empty() || futureTypes(start).size() != 1 || !future.hasOneUse())
      return {};
    auto wait = dyn_cast<WaitOp>(*future.user_begin());
    if (!wait || wait->getBlock() != start->getBlock() || !wait->getResult(0).hasOneUse())
      return {};
    auto copy = dyn_cast<FsdpCopyOp>(*wait->getResult(0).user_begin());
    return copy && copy.getSource() == wait->getResult(0) && copy->getBlock() == start->getBlock() ? copy
                                                                                                   : FsdpCopyOp();
  }

  /// Why the collective cannot write where its result is copied to; empty where it can.
  static std::string findObstacle(CollectiveOpInterface start, FsdpCopyOp copy, const StorageUsers &users) {
    Value dest = copy.getDest();
    if (dest.getType() != futureTypes(start).front())
      return "the result is copied to another type";
    Operation *def = dest.getDefiningOp();
    if (def && def->getBlock() == start->getBlock() && !def->isBeforeInBlock(start))
      return "what the result is copied to is made after the start, by " + def->getName().getStringRef().str();
    ArrayRef<StorageId> ids = users.storage.of(dest);
    if (ids.size() != 1)
      return "what the result is copied to may have one of several storages";
    for (Value input : start.getCollectiveInputs())
      if (llvm::is_contained(users.storage.of(input), ids.front()))
        return "the result is copied to the storage of an input";
    if (Operation *user = users.findUserBetween(start, copy, ids.front()))
      return "what the result is copied to is used before the copy by " + user->getName().getStringRef().str();
    return "";
  }

  /// A result that is only copied is written where it is copied to.
  void writeWhereCopied(Block &block) {
    SmallVector<std::pair<CollectiveOpInterface, FsdpCopyOp>> copies;
    for (auto start : block.getOps<CollectiveOpInterface>())
      if (FsdpCopyOp copy = isOnTensors(start) ? findOnlyCopy(start) : FsdpCopyOp())
        copies.push_back({start, copy});
    if (copies.empty())
      return;
    StorageUsers users(block);
    llvm::SmallDenseSet<StorageId> written;
    for (auto [start, copy] : copies) {
      std::string obstacle = findObstacle(start, copy, users);
      // The map does not know of destinations that were set meanwhile: one per storage.
      if (obstacle.empty() && !written.insert(users.storage.of(copy.getDest()).front()).second)
        obstacle = "another collective was made to write there";
      if (!obstacle.empty()) {
        remarkMissed(start.getLoc(), getArgument(), obstacle);
        continue;
      }
      setDestinations(start, copy.getDest());
      remarkPassed(start.getLoc(), getArgument(), "written where it was copied to",
                   getStaticBytes(copy.getDest().getType()).value_or(0));
      copy.erase();
    }
  }

  //===- One shot, in place, symmetric ------------------------------------------------------===//

  void decideStorage(Block &block) {
    SmallVector<CollectiveOpInterface> starts;
    for (auto start : block.getOps<CollectiveOpInterface>())
      if (!start.getCollectiveInputs().empty() || !futureTypes(start).empty())
        starts.push_back(start);
    if (starts.empty())
      return;
    // Setting a destination to the input leaves what the map says of other values true; a result of its own does not.
    auto users = std::make_unique<StorageUsers>(block);
    if (takeSumsOutOfPlace(starts, *users))
      users = std::make_unique<StorageUsers>(block);
    groupOf.clear();
    for (CollectiveOpInterface start : starts)
      decideStorage(start, *users);
  }

  void decideStorage(CollectiveOpInterface start, const StorageUsers &users) {
    bool inPlace = isa<AllReduceOp, BroadcastOp>(*start) && !start->hasAttr("one_shot") && reduce(start, users);
    decideSymmetric(start, users, inPlace);
  }

  /// Whether the ranks of the group reach each other's memory.
  bool reachesPeers(CollectiveOpInterface start) const {
    return peerGroups.empty() || llvm::is_contained(peerGroups, start.getGroupAttr().getValue().str());
  }

  bool isSmallSum(CollectiveOpInterface start) const {
    auto allReduce = dyn_cast<AllReduceOp>(*start);
    return allReduce && allReduce.getReduction() == ReductionKind::sum && reachesPeers(start) &&
           getCollectiveBytes(start) <= oneShotThresholdBytes;
  }

  static bool writesAnInput(CollectiveOpInterface start, const StorageUsers &users) {
    return llvm::any_of(start.getCollectiveDests(), [&](Value dest) {
      return llvm::any_of(start.getCollectiveInputs(), [&](Value input) {
        return llvm::any_of(users.storage.of(dest),
                            [&](StorageId id) { return llvm::is_contained(users.storage.of(input), id); });
      });
    });
  }

  /// Small sums that write what they read get results of their own, which are copied there after the wait: in one shot
  /// others read the input meanwhile. Returns whether any did.
  bool takeSumsOutOfPlace(ArrayRef<CollectiveOpInterface> starts, const StorageUsers &users) {
    bool changed = false;
    for (CollectiveOpInterface start : starts) {
      if (!isSmallSum(start) || start->hasAttr("one_shot") || !writesAnInput(start, users) ||
          llvm::any_of(start.getCollectiveInputs(), [&](Value input) {
            return !users.findObstacle(users.storage.of(input), input.getType(), "the input").empty();
          }))
        continue;
      Value future = start.getCollectiveFuture();
      auto wait = future.hasOneUse() ? dyn_cast<WaitOp>(*future.user_begin()) : WaitOp();
      if (!isOnTensors(start) || !wait || wait->getBlock() != start->getBlock()) {
        remarkMissed(start->getLoc(), getArgument(),
                     isOnTensors(start) ? "not in one shot: it writes an input, and has not one wait in its block"
                                        : "not in one shot: it writes an input, which the other ranks read");
        continue;
      }
      takeOutOfPlace(cast<AllReduceOp>(*start), wait);
      changed = true;
    }
    return changed;
  }

  void takeOutOfPlace(AllReduceOp start, WaitOp wait) {
    OpBuilder builder(start.getContext());
    builder.setInsertionPointAfter(wait);
    for (auto [value, dest] : llvm::zip_equal(wait.getValues(), start.getDests())) {
      auto copy = FsdpCopyOp::create(builder, wait.getLoc(), value, dest);
      value.replaceAllUsesExcept(dest, copy);
    }
    start.getDestsMutable().clear();
    start.setOneShot(true);
    remarkPassed(start.getLoc(), getArgument(), "done in one shot, then copied to the input",
                 getCollectiveBytes(cast<CollectiveOpInterface>(*start)));
  }

  /// One shot, or in place: returns whether the latter.
  bool reduce(CollectiveOpInterface start, const StorageUsers &users) {
    auto refuse = [&](const std::string &reason) {
      remarkMissed(start->getLoc(), getArgument(), reason);
      return false;
    };
    for (Value input : start.getCollectiveInputs())
      if (std::string obstacle = users.findObstacle(users.storage.of(input), input.getType(), "the input");
          !obstacle.empty())
        return isOnTensors(start) ? refuse(obstacle) : false;
    int64_t bytes = getCollectiveBytes(start);
    if (isSmallSum(start) && !writesAnInput(start, users)) {
      cast<AllReduceOp>(*start).setOneShot(true);
      remarkPassed(start->getLoc(), getArgument(), "done in one shot", bytes);
      return false;
    }
    if (!isOnTensors(start) || !start.getCollectiveDests().empty())
      return false;
    llvm::SmallDenseSet<StorageId> seen;
    for (auto [input, type] : llvm::zip_equal(start.getCollectiveInputs(), futureTypes(start))) {
      StorageId id = users.storage.of(input).front();
      if (users.isPart(id, input.getType()))
        return refuse("the input is a part of its storage");
      if (!seen.insert(id).second)
        return refuse("two inputs share their storage");
      if (input.getType() != type)
        return refuse("the input does not have the result's type");
      if (Operation *later = users.findLaterUser(start, id))
        return refuse("the input's storage is used afterwards by " + later->getName().getStringRef().str());
    }
    setDestinations(start, llvm::to_vector(start.getCollectiveInputs()));
    remarkPassed(start->getLoc(), getArgument(), "written in place", bytes);
    return true;
  }

  /// Why an input or output cannot be in symmetric memory of the start's group; empty where it can.
  std::string findSymmetricObstacle(ArrayRef<StorageId> ids, Type type, StringRef noun, FlatSymbolRefAttr group,
                                    const StorageUsers &users) const {
    std::string obstacle = users.findObstacle(ids, type, noun);
    if (!obstacle.empty())
      return obstacle;
    FlatSymbolRefAttr planned = groupOf.lookup(ids.front());
    if (planned && planned != group)
      return noun.str() + " is planned for @" + planned.getValue().str() + " already";
    return "";
  }

  void decideSymmetric(CollectiveOpInterface start, const StorageUsers &users, bool inPlace) {
    // One shot reads the other ranks' inputs: these have to be symmetric.
    if ((!symmetric && !start->hasAttr("one_shot")) || start->hasAttr(CommDialect::kSymmetricAttrName))
      return;
    if (!reachesPeers(start)) {
      remarkMissed(start.getLoc(), getArgument(),
                   "no symmetric memory: @" + start.getGroupAttr().getValue().str() + " is not among the peer groups");
      return;
    }
    SmallVector<bool> marks;
    int64_t bytes = 0;
    auto decide = [&](ArrayRef<StorageId> ids, Value buffer, Type type, StringRef noun, bool leaves) {
      std::string obstacle = findSymmetricObstacle(ids, type, noun, start.getGroupAttr(), users);
      if (obstacle.empty() && leaves)
        obstacle = (noun + "'s storage leaves the block").str();
      if (obstacle.empty() && isa<MemRefType>(type))
        obstacle = makeSymmetric(buffer, start.getGroupAttr());
      marks.push_back(obstacle.empty());
      if (!obstacle.empty())
        remarkMissed(start.getLoc(), getArgument(), "no symmetric memory: " + obstacle);
      else if (groupOf.try_emplace(ids.front(), start.getGroupAttr()).second)
        bytes += users.storage.classes()[ids.front()].bytes;
    };
    auto outputOf = [&](size_t index) { return users.storage.ofFutureValue(start.getCollectiveFuture(), index); };
    auto isLiveOut = [&](StorageId id) { return users.storage.classes()[id].liveOut; };
    for (auto [index, input] : llvm::enumerate(start.getCollectiveInputs()))
      decide(users.storage.of(input), input, input.getType(), "the input",
             inPlace && llvm::any_of(outputOf(index), isLiveOut));
    if (inPlace) // the outputs are the inputs
      for (size_t index = 0, count = marks.size(); index < count; ++index)
        marks.push_back(marks[index]);
    else
      for (auto [index, type] : llvm::enumerate(futureTypes(start)))
        decide(outputOf(index), isOnTensors(start) ? Value() : start.getCollectiveDests()[index], type, "the output",
               false);
    if (!llvm::is_contained(marks, true))
      return;
    remarkPassed(start.getLoc(), getArgument(), "symmetric memory", bytes);
    if (isOnTensors(start))
      start->setAttr(CommDialect::kSymmetricAttrName, DenseBoolArrayAttr::get(start.getContext(), marks));
  }

  /// Of each storage class that is planned to be symmetric: the group.
  llvm::DenseMap<StorageId, FlatSymbolRefAttr> groupOf;
};

} // namespace
