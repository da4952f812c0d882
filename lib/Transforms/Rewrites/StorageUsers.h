//===- StorageUsers.h - Who touches which storage of a block ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The operations of a block that touch each storage class, in order, and whether a class is the block's own.
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

  /// Why storage is not the block's own, "the input" or whatever `noun` says being what is talked of; empty where it
  /// is: one class of static size, made here, seen neither by the caller nor by constants.
  std::string findObstacle(llvm::ArrayRef<StorageId> ids, mlir::Type type, llvm::StringRef noun) const;

  /// Whether a value is less than all of its (only) storage.
  bool isPart(llvm::ArrayRef<StorageId> ids, mlir::Type type) const;

  /// The first operation but the waits of `start` that touches a class after `start`; null for none.
  mlir::Operation *findLaterUser(comm::CollectiveOpInterface start, StorageId id) const;

  /// The first operation strictly between two of the block that touches a class; null for none.
  mlir::Operation *findUserBetween(mlir::Operation *begin, mlir::Operation *end, StorageId id) const;

  /// Place of an operation in the block.
  int64_t positionOf(mlir::Operation *op) const { return positions.lookup(op); }

  const StorageMap storage;

private:
  std::vector<llvm::SmallVector<mlir::Operation *>> usersOf;
  llvm::DenseMap<mlir::Operation *, int64_t> positions;
  mlir::Block &block;
};

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_REWRITES_STORAGEUSERS_H
