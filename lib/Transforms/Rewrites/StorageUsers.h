//===- StorageUsers.h - Operations that access each storage of a block ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The operations of a block that access each storage class, in order, and whether a class is private to the block.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_REWRITES_STORAGEUSERS_H
#define COMMSCHED_LIB_TRANSFORMS_REWRITES_STORAGEUSERS_H

#include "CommSched/Analysis/Storage.h"

namespace commsched {

class StorageUsers {
public:
  /// O(operations + operands).
  explicit StorageUsers(mlir::Block &block);

  /// Returns why the storage is not private to the block, or an empty string if it is. `noun` names the value in the
  /// message, for example "the input". Private storage is one class of static size that the block allocates, and that
  /// neither the caller nor a constant shares.
  std::string findObstacle(llvm::ArrayRef<StorageId> ids, mlir::Type type, llvm::StringRef noun) const;

  /// Returns true if a value is smaller than its (only) storage.
  bool isPart(llvm::ArrayRef<StorageId> ids, mlir::Type type) const;

  /// The first operation after `start`, other than its waits, that accesses a class; null if there is none.
  mlir::Operation *findLaterUser(comm::CollectiveOpInterface start, StorageId id) const;

  /// The first operation strictly between two operations of the block that accesses a class; null if there is none.
  mlir::Operation *findUserBetween(mlir::Operation *begin, mlir::Operation *end, StorageId id) const;

  /// Position of an operation in the block.
  int64_t positionOf(mlir::Operation *op) const { return positions.lookup(op); }

  const StorageMap storage;

private:
  std::vector<llvm::SmallVector<mlir::Operation *>> usersOf;
  llvm::DenseMap<mlir::Operation *, int64_t> positions;
  mlir::Block &block;
};

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_REWRITES_STORAGEUSERS_H
