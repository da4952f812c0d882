//===- CommRealizeBuffers.cpp - The pass comm-realize-buffers ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Decides which storage collectives use, as the lowering of PyTorch Inductor does. Repeated waits are removed. A result
// whose only use is a copy into a parameter is written there directly. Small sums become one-shot: every rank reads the
// inputs of the others itself. Other all-reduces, and broadcasts, write their input if no later operation reads it.
// Inputs and outputs move to symmetric memory. The last three steps need storage of static size that the block itself
// allocates and that neither the caller nor a constant shares.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Analysis/TensorPlaces.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/SymmetricMemory.h"
#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "RewriteRemarks.h"
#include "StorageUsers.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringSet.h"
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

/// Sets `dests` as the destinations of `start`, which has none.
static void setDestinations(CollectiveOpInterface start, ValueRange dests) {
  llvm::TypeSwitch<Operation *>(start)
      .Case<AllGatherOp, ReduceScatterOp, AllReduceOp, AllToAllOp, BroadcastOp, ReduceOp, GatherOp, ScatterOp,
            PermuteOp, RecvOp>([&](auto op) { op.getDestsMutable().assign(dests); });
}

/// Returns true if a tensor is what a loop carries or returns. Nobody knows here whether the loop copies what it is
/// given.
static bool comesFromLoop(Value tensor) {
  Operation *from = nullptr;
  while (auto result = dyn_cast<OpResult>(tensor)) {
    Value source = getAliasedValue(result);
    from = result.getOwner();
    if (!source)
      break;
    tensor = source;
  }
  if (isa<BlockArgument>(tensor))
    from = tensor.getParentBlock()->getParentOp();
  auto branch = dyn_cast_if_present<RegionBranchOpInterface>(from);
  return branch && branch.hasLoop();
}

namespace {

struct CommRealizeBuffersPass : public commsched::impl::CommRealizeBuffersBase<CommRealizeBuffersPass> {
  using CommRealizeBuffersBase::CommRealizeBuffersBase;

  void runOnOperation() final {
    if (failed(checkPeerGroups()))
      return signalPassFailure();
    TrafficCheck before(getOperation());
    places = std::make_shared<TensorPlaces>(getOperation());
    for (Block *block : findSchedulableBlocks(getOperation())) {
      removeUselessWaits(*block);
      writeWhereCopied(*block);
      decideStorage(*block);
    }
    if (failed(before.compare(TrafficCheck(getOperation()), getOperation()->getLoc(), getArgument())))
      signalPassFailure();
  }

private:
  /// Fails if the option names a group that does not exist: every other group would lose its symmetric memory.
  LogicalResult checkPeerGroups() {
    llvm::StringSet<> names;
    Operation *scope = getOperation();
    if (auto module = scope->getParentOfType<ModuleOp>())
      scope = module;
    scope->walk([&](GroupOp group) { names.insert(group.getSymName()); });
    for (StringRef name : peerGroups)
      if (!names.contains(name))
        return emitError(getOperation()->getLoc())
               << getArgument() << ": peer-groups=" << name << ": expected the name of a comm.group";
    return success();
  }

  //===- Waits ------------------------------------------------------------------------------===//

  /// Removes a wait that an earlier wait of the same future makes redundant. A wait keeps the buffers in flight alive,
  /// so the earlier one must keep at least the same buffers.
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
          remarkMissed(wait, getArgument(), "the wait keeps a buffer that the earlier one does not");
          continue;
        }
        remarkPassed(wait, getArgument(), "wait removed: an earlier wait returns the same values", 0);
        wait.replaceAllUsesWith(earlier.getResults());
        wait.erase();
        break;
      }
    }
  }

  //===- Destinations -----------------------------------------------------------------------===//

  /// The copy that is the only use of a collective's result, or null.
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

  /// Returns why the collective cannot write the destination of the copy, or an empty string if it can.
  static std::string findObstacle(CollectiveOpInterface start, FsdpCopyOp copy, const StorageUsers &users) {
    Value dest = copy.getDest();
    if (dest.getType() != futureTypes(start).front())
      return "the result is copied to a value of another type";
    Operation *def = dest.getDefiningOp();
    if (def && def->getBlock() == start->getBlock() && !def->isBeforeInBlock(start))
      return "the destination of the copy is made after the start, by " + def->getName().getStringRef().str();
    ArrayRef<StorageId> ids = users.storage.of(dest);
    if (ids.size() != 1)
      return "the destination of the copy may have one of several storages";
    for (Value input : start.getCollectiveInputs())
      if (llvm::is_contained(users.storage.of(input), ids.front()))
        return "the result is copied to the storage of an input";
    if (Operation *user = users.findUserBetween(start, copy, ids.front()))
      return "the destination of the copy is used before the copy by " + user->getName().getStringRef().str();
    return "";
  }

  /// Lets collectives write the destination of the copy that is the only use of their result.
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
      // The map does not know the destinations that this loop has set, so each storage is used once.
      if (obstacle.empty() && !written.insert(users.storage.of(copy.getDest()).front()).second)
        obstacle = "another collective already writes this destination";
      if (!obstacle.empty()) {
        remarkMissed(start, getArgument(), obstacle);
        continue;
      }
      setDestinations(start, copy.getDest());
      remarkPassed(start, getArgument(), "the result is written directly to the destination of its copy",
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
    // Setting a destination to the input leaves the map valid for other values; a separate result does not.
    auto users = std::make_unique<StorageUsers>(block);
    findSliced(block, *users);
    if (takeSumsOutOfPlace(starts, *users))
      users = std::make_unique<StorageUsers>(block);
    groupOf.clear();
    findSliced(block, *users);
    for (CollectiveOpInterface start : starts)
      for (Value input : start.getCollectiveInputs())
        if (isPlacedByRank(start, input, *users))
          placedByRank.insert_range(users->storage.of(input));
    findUncertain(starts, *users);
    findCarried(block, *users);
    for (CollectiveOpInterface start : starts)
      decideStorage(start, *users);
  }

  /// Finds the storage in which each rank has a slice of its own.
  void findSliced(Block &block, const StorageUsers &users) {
    sliced.clear();
    placedByRank.clear();
    for (auto copyIn : block.getOps<FsdpAllGatherCopyInOp>())
      for (StorageId id : users.storage.of(copyIn.getSlice()))
        sliced.insert(id);
  }

  /// Finds the storage that is in flight until the end of the block, because no wait is certain to run.
  void findUncertain(ArrayRef<CollectiveOpInterface> starts, const StorageUsers &users) {
    inFlightFrom.clear();
    for (CollectiveOpInterface start : starts) {
      auto isCertain = [&](Operation *user) { return isa<WaitOp>(user) && user->getBlock() == start->getBlock(); };
      if (llvm::any_of(start.getCollectiveFuture().getUsers(), isCertain))
        continue;
      for (Value input : start.getCollectiveInputs())
        for (StorageId id : users.storage.of(input))
          inFlightFrom.try_emplace(id, users.positionOf(start));
    }
  }

  /// Finds the storage that loops carry, each of which may copy what it is given.
  void findCarried(Block &block, const StorageUsers &users) {
    carried.clear();
    block.walk([&](RegionBranchOpInterface branch) {
      if (!branch.hasLoop())
        return;
      for (Value operand : branch->getOperands())
        if (isa<TensorType>(operand.getType()))
          for (StorageId id : users.storage.of(operand))
            carried.insert(id);
    });
  }

  /// Returns true if the input may be at another offset of its storage on each rank. Libraries want one offset on all
  /// ranks, except where a gather finds its own part in its output.
  bool isPlacedByRank(CollectiveOpInterface start, Value input, const StorageUsers &users) const {
    ArrayRef<StorageId> ids = users.storage.of(input);
    auto isSlice = [&](StorageId id) { return sliced.contains(id) && users.isPart(id, input.getType()); };
    return llvm::any_of(ids, isSlice) && !(isa<AllGatherOp>(*start) && writesAnInput(start, users));
  }

  void decideStorage(CollectiveOpInterface start, const StorageUsers &users) {
    bool inPlace = isa<AllReduceOp, BroadcastOp>(*start) && !start->hasAttr("one_shot") && reduce(start, users);
    decideSymmetric(start, users, inPlace);
  }

  /// Returns why the collective can have no symmetric memory whatever its inputs are, or an empty string if it can.
  /// Symmetric buffers belong to all ranks of the job, which make them in one order. A region, or a function that
  /// others call, may be one that only some ranks run, unless a group of all ranks meets there.
  std::string findGroupObstacle(CollectiveOpInterface start) {
    std::string group = "@" + start.getGroupAttr().getValue().str();
    if (!peerGroups.empty() && !llvm::is_contained(peerGroups, group.substr(1)))
      return group + " is not among the peer groups";
    auto function = dyn_cast<FunctionOpInterface>(start->getParentOp());
    if (function && function.isPublic() && start->getBlock()->isEntryBlock())
      return "";
    return isOfAllRanks(start) ? "" : "only some ranks may come here, and " + group + " is not one group of all ranks";
  }

  bool isOfAllRanks(CollectiveOpInterface start) {
    auto group = SymbolTable::lookupNearestSymbolFrom<GroupOp>(start, start.getGroupAttr());
    if (!group || group.getGroups().getNumGroups() != 1)
      return false;
    Operation *table = group->getParentOp();
    if (worldSizes.try_emplace(table, 0).second)
      for (auto other : table->getRegion(0).getOps<GroupOp>())
        worldSizes[table] = std::max(worldSizes[table], other.getGroups().getWorldSize());
    return group.getGroupSize() == worldSizes[table];
  }

  bool isSmallSum(CollectiveOpInterface start) {
    auto allReduce = dyn_cast<AllReduceOp>(*start);
    return allReduce && allReduce.getReduction() == ReductionKind::sum &&
           !start->hasAttr(CommDialect::kVariantAttrName) && getCollectiveBytes(start) <= oneShotThresholdBytes &&
           findGroupObstacle(start).empty();
  }

  static bool writesAnInput(CollectiveOpInterface start, const StorageUsers &users) {
    return llvm::any_of(start.getCollectiveDests(), [&](Value dest) {
      return llvm::any_of(start.getCollectiveInputs(), [&](Value input) {
        return llvm::any_of(users.storage.of(dest),
                            [&](StorageId id) { return llvm::is_contained(users.storage.of(input), id); });
      });
    });
  }

  /// Gives small sums that write their input a result of their own, with a copy into places after the wait, because in
  /// one shot other ranks read the input. Returns true if any sum changed.
  bool takeSumsOutOfPlace(ArrayRef<CollectiveOpInterface> starts, const StorageUsers &users) {
    bool changed = false;
    for (CollectiveOpInterface start : starts) {
      if (!isSmallSum(start) || start->hasAttr("one_shot") || !writesAnInput(start, users) ||
          llvm::any_of(start.getCollectiveInputs(), [&](Value input) {
            return isPlacedByRank(start, input, users) ||
                   !users.findObstacle(users.storage.of(input), input.getType(), "the input").empty();
          }))
        continue;
      Value future = start.getCollectiveFuture();
      auto wait = future.hasOneUse() ? dyn_cast<WaitOp>(*future.user_begin()) : WaitOp();
      if (!isOnTensors(start) || !wait || wait->getBlock() != start->getBlock()) {
        remarkMissed(start, getArgument(),
                     isOnTensors(start)
                         ? "not in one shot: it writes an input and does not have exactly one wait, in its block"
                         : "not in one shot: it writes an input, which other ranks read");
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
    bool isCopied = false;
    for (auto [value, dest] : llvm::zip_equal(wait.getValues(), start.getDests())) {
      // Nobody finds the sum under the old name of a value, and pure operations may read its old contents there.
      if (!places->isPlace(dest))
        continue;
      isCopied = true;
      auto copy = FsdpCopyOp::create(builder, wait.getLoc(), value, dest);
      value.replaceAllUsesExcept(dest, copy);
    }
    start.getDestsMutable().clear();
    start.setOneShot(true);
    remarkPassed(start, getArgument(),
                 isCopied ? "done in one shot, then copied to the input" : "done in one shot, out of place",
                 getCollectiveBytes(cast<CollectiveOpInterface>(*start)));
  }

  /// Makes a collective one-shot or in-place. Returns true if it is in-place.
  bool reduce(CollectiveOpInterface start, const StorageUsers &users) {
    auto refuse = [&](const std::string &reason) {
      remarkMissed(start, getArgument(), reason);
      return false;
    };
    for (Value input : start.getCollectiveInputs())
      if (std::string obstacle = users.findObstacle(users.storage.of(input), input.getType(), "the input");
          !obstacle.empty())
        return isOnTensors(start) ? refuse(obstacle) : false;
    int64_t bytes = getCollectiveBytes(start);
    bool isPlaced =
        llvm::any_of(start.getCollectiveInputs(), [&](Value input) { return isPlacedByRank(start, input, users); });
    if (isSmallSum(start) && !writesAnInput(start, users) && !isPlaced) {
      cast<AllReduceOp>(*start).setOneShot(true);
      remarkPassed(start, getArgument(), "done in one shot", bytes);
      return false;
    }
    if (!isOnTensors(start) || !start.getCollectiveDests().empty())
      return false;
    llvm::SmallDenseSet<StorageId> seen;
    for (auto [input, type] : llvm::zip_equal(start.getCollectiveInputs(), futureTypes(start))) {
      StorageId id = users.storage.of(input).front();
      if (comesFromLoop(input))
        return refuse("the input comes from a loop, which may hand on what it was given");
      if (carried.contains(id))
        return refuse("a loop carries the input, and may copy it");
      if (users.isPart(id, input.getType()))
        return refuse("the input is only a part of its storage");
      if (!seen.insert(id).second)
        return refuse("two inputs share their storage");
      if (input.getType() != type)
        return refuse("the input does not have the result's type");
      if (auto from = inFlightFrom.find(id); from != inFlightFrom.end() && from->second < users.positionOf(start))
        return refuse("the input is in flight until the end of the block");
      if (Operation *later = users.findLaterUser(start, id))
        return refuse("the input's storage is used afterwards by " + later->getName().getStringRef().str());
      if (places->becomesPlace(input, start))
        return refuse("the input's storage may be read afterwards");
    }
    setDestinations(start, llvm::to_vector(start.getCollectiveInputs()));
    remarkPassed(start, getArgument(), "written in place", bytes);
    return true;
  }

  /// Returns why an input or output cannot be in symmetric memory of the start's group, or an empty string if it can.
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
    // A one-shot collective reads the inputs of other ranks, so these must be symmetric.
    if ((!symmetric && !start->hasAttr("one_shot")) || start->hasAttr(CommDialect::kSymmetricAttrName))
      return;
    if (std::string obstacle = findGroupObstacle(start); !obstacle.empty())
      return remarkMissed(start, getArgument(), "no symmetric memory: " + obstacle);
    SmallVector<bool> marks;
    int64_t bytes = 0;
    auto decide = [&](ArrayRef<StorageId> ids, Value buffer, Type type, StringRef noun, bool leaves) {
      std::string obstacle = findSymmetricObstacle(ids, type, noun, start.getGroupAttr(), users);
      if (obstacle.empty() && placedByRank.contains(ids.front()))
        obstacle = (noun + "'s storage is sent from another offset on each rank").str();
      if (obstacle.empty() && leaves)
        obstacle = (noun + "'s storage leaves the block").str();
      if (obstacle.empty() && isa<MemRefType>(type))
        obstacle = makeSymmetric(buffer, start.getGroupAttr());
      marks.push_back(obstacle.empty());
      if (!obstacle.empty())
        remarkMissed(start, getArgument(), "no symmetric memory: " + obstacle);
      else if (groupOf.try_emplace(ids.front(), start.getGroupAttr()).second)
        bytes += users.storage.classes()[ids.front()].bytes;
    };
    auto outputOf = [&](size_t index) { return users.storage.ofFutureValue(start.getCollectiveFuture(), index); };
    auto isLiveOut = [&](StorageId id) { return users.storage.classes()[id].liveOut; };
    for (auto [index, input] : llvm::enumerate(start.getCollectiveInputs()))
      decide(users.storage.of(input), input, input.getType(), "the input",
             inPlace && llvm::any_of(outputOf(index), isLiveOut));
    if (inPlace) // The outputs are the inputs.
      for (size_t index = 0, count = marks.size(); index < count; ++index)
        marks.push_back(marks[index]);
    else
      for (auto [index, type] : llvm::enumerate(futureTypes(start)))
        decide(outputOf(index), isOnTensors(start) ? Value() : start.getCollectiveDests()[index], type, "the output",
               false);
    if (!llvm::is_contained(marks, true))
      return;
    remarkPassed(start, getArgument(), "symmetric memory", bytes);
    if (isOnTensors(start))
      start->setAttr(CommDialect::kSymmetricAttrName, DenseBoolArrayAttr::get(start.getContext(), marks));
  }

  /// Of the program as given.
  std::shared_ptr<TensorPlaces> places;
  /// Indexed by symbol table: the ranks of its largest group.
  llvm::DenseMap<Operation *, int64_t> worldSizes;
  /// Indexed by storage class that is planned to be symmetric: its group.
  llvm::DenseMap<StorageId, FlatSymbolRefAttr> groupOf;
  /// Indexed by storage class that collectives without a certain wait read: the position of the first of them.
  llvm::DenseMap<StorageId, int64_t> inFlightFrom;
  /// Storage that loops carry.
  llvm::DenseSet<StorageId> carried;
  /// Storage in which each rank has a slice of its own (comm.fsdp.all_gather_copy_in).
  llvm::DenseSet<StorageId> sliced;
  /// Storage of which a collective sends such a slice.
  llvm::DenseSet<StorageId> placedByRank;
};

} // namespace
