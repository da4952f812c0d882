//===- CommRealizeBuffers.cpp - The pass comm-realize-buffers ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// Decides, on tensors, what storage all-reduces and broadcasts use. Small sums are done in one shot: every rank reads
// the others' inputs itself. Others write their input where nothing reads it afterwards. Both need inputs whose storage
// is the block's own: of static size, made here, and seen neither by the caller nor by constants.
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Transforms/Passes.h"
#include "RewriteRemarks.h"

namespace commsched {
#define GEN_PASS_DEF_COMMREALIZEBUFFERS
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// The operations of a block that touch each storage class, in order.
class StorageUsers {
public:
  explicit StorageUsers(Block &block) : storage(block), usersOf(storage.classes().size()), block(block) {
    int64_t position = 0;
    for (Operation &op : block) {
      positions[&op] = position++;
      op.walk([&](Operation *nested) {
        for (Value operand : nested->getOperands())
          for (StorageId id : storage.of(operand))
            if (usersOf[id].empty() || usersOf[id].back() != &op)
              usersOf[id].push_back(&op);
      });
    }
  }

  /// Why the storage of `value` is not the block's own; empty where it is.
  StringRef findObstacle(Value value) const {
    std::optional<int64_t> bytes = getStaticBytes(value.getType());
    if (!bytes)
      return "the input has no static size";
    ArrayRef<StorageId> ids = storage.of(value);
    if (ids.size() != 1)
      return "the input may have one of several storages";
    const StorageClass &own = storage.classes()[ids.front()];
    if (!own.def || own.inner || own.def->getBlock() != &block)
      return "the input's storage is an argument's, or is made outside of the block";
    if (own.def->hasTrait<OpTrait::ConstantLike>())
      return "the input is a constant";
    if (own.liveOut)
      return "the input's storage leaves the block";
    if (own.bytes != *bytes)
      return "the input is a part of its storage";
    return "";
  }

  /// The first operation but the waits of `start` that touches the storage of `value` after `start`; null for none.
  Operation *findLaterUser(CollectiveOpInterface start, Value value) const {
    int64_t begin = positions.lookup(start);
    Operation *later = nullptr;
    for (Operation *user : llvm::reverse(usersOf[storage.of(value).front()])) {
      if (positions.lookup(user) <= begin)
        break;
      auto wait = dyn_cast<WaitOp>(user);
      if (!wait || wait.getFuture() != start.getCollectiveFuture())
        later = user;
    }
    return later;
  }

  StorageId idOf(Value value) const { return storage.of(value).front(); }

private:
  const StorageMap storage;
  std::vector<SmallVector<Operation *>> usersOf;
  llvm::DenseMap<Operation *, int64_t> positions;
  Block &block;
};

struct CommRealizeBuffersPass : public commsched::impl::CommRealizeBuffersBase<CommRealizeBuffersPass> {
  using CommRealizeBuffersBase::CommRealizeBuffersBase;

  void runOnOperation() final {
    for (Block *block : findSchedulableBlocks(getOperation())) {
      SmallVector<CollectiveOpInterface> starts;
      for (auto start : block->getOps<CollectiveOpInterface>())
        if (isCandidate(start))
          starts.push_back(start);
      if (starts.empty())
        continue;
      // Setting a destination to the input leaves what the map says of other values true.
      StorageUsers users(*block);
      for (CollectiveOpInterface start : starts)
        realize(start, users);
    }
  }

private:
  /// All-reduces and broadcasts of tensors that nobody planned yet.
  static bool isCandidate(CollectiveOpInterface start) {
    if (!isa<AllReduceOp, BroadcastOp>(*start) || !start.getCollectiveDests().empty() || start->hasAttr("one_shot"))
      return false;
    return llvm::all_of(start.getCollectiveInputs().getTypes(), llvm::IsaPred<TensorType>);
  }

  void realize(CollectiveOpInterface start, const StorageUsers &users) {
    for (Value input : start.getCollectiveInputs())
      if (StringRef obstacle = users.findObstacle(input); !obstacle.empty())
        return remarkMissed(start->getLoc(), getArgument(), obstacle.str());
    int64_t bytes = getCollectiveBytes(start);
    auto allReduce = dyn_cast<AllReduceOp>(*start);
    if (allReduce && allReduce.getReduction() == ReductionKind::sum && bytes <= oneShotThresholdBytes) {
      allReduce.setOneShot(true);
      return remarkPassed(start->getLoc(), getArgument(), "done in one shot", bytes);
    }
    realizeInPlace(start, users, bytes);
  }

  void realizeInPlace(CollectiveOpInterface start, const StorageUsers &users, int64_t bytes) {
    llvm::SmallDenseSet<StorageId> seen;
    for (auto [input, type] : llvm::zip_equal(start.getCollectiveInputs(),
                                              cast<FutureType>(start.getCollectiveFuture().getType()).getTypes())) {
      if (!seen.insert(users.idOf(input)).second)
        return remarkMissed(start->getLoc(), getArgument(), "two inputs share their storage");
      if (input.getType() != type)
        return remarkMissed(start->getLoc(), getArgument(), "the input does not have the result's type");
      if (Operation *later = users.findLaterUser(start, input)) {
        remarkMissed(start->getLoc(), getArgument(),
                     "the input's storage is used afterwards by " + later->getName().getStringRef().str());
        return;
      }
    }
    SmallVector<Value> inputs(start.getCollectiveInputs());
    if (auto allReduce = dyn_cast<AllReduceOp>(*start))
      allReduce.getDestsMutable().assign(inputs);
    else
      cast<BroadcastOp>(*start).getDestsMutable().assign(inputs);
    remarkPassed(start->getLoc(), getArgument(), "written in place", bytes);
  }
};

} // namespace
