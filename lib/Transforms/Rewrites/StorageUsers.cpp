//===- StorageUsers.cpp - Operations that access each storage of a block ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One walk. A nested operation counts as the operation of the block that contains it.
//
//===------------------------------------------------------------------------------------------===//

#include "StorageUsers.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

StorageUsers::StorageUsers(Block &block) : storage(block), usersOf(storage.classes().size()), block(block) {
  int64_t position = 0;
  for (Operation &op : block) {
    positions[&op] = position++;
    auto touch = [&](Value value) {
      for (StorageId id : storage.of(value))
        if (usersOf[id].empty() || usersOf[id].back() != &op)
          usersOf[id].push_back(&op);
    };
    op.walk([&](Operation *nested) { llvm::for_each(nested->getOperands(), touch); });
  }
}

std::string StorageUsers::findObstacle(ArrayRef<StorageId> ids, Type type, StringRef noun) const {
  auto say = [&](StringRef what) { return (noun + what).str(); };
  if (!getStaticBytes(type))
    return say(" has no static size");
  if (ids.size() != 1)
    return say(" may have one of several storages");
  const StorageClass &own = storage.classes()[ids.front()];
  if (!own.def || own.inner || own.def->getBlock() != &block)
    return say("'s storage is an argument's, or is made outside of the block");
  if (own.def->hasTrait<OpTrait::ConstantLike>())
    return say(" is a constant");
  if (own.liveOut)
    return say("'s storage leaves the block");
  return "";
}

bool StorageUsers::isPart(ArrayRef<StorageId> ids, Type type) const {
  return storage.classes()[ids.front()].bytes != getStaticBytes(type);
}

Operation *StorageUsers::findLaterUser(CollectiveOpInterface start, StorageId id) const {
  int64_t begin = positions.lookup(start);
  Operation *later = nullptr;
  for (Operation *user : llvm::reverse(usersOf[id])) {
    if (positions.lookup(user) <= begin)
      break;
    auto wait = dyn_cast<WaitOp>(user);
    if (!wait || wait.getFuture() != start.getCollectiveFuture())
      later = user;
  }
  return later;
}

Operation *StorageUsers::findUserBetween(Operation *begin, Operation *end, StorageId id) const {
  ArrayRef<Operation *> users = usersOf[id];
  auto after =
      llvm::partition_point(users, [&](Operation *user) { return positions.lookup(user) <= positions.lookup(begin); });
  bool inside = after != users.end() && positions.lookup(*after) < positions.lookup(end);
  return inside ? *after : nullptr;
}
