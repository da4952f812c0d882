//===- Storage.h - Values of a block that share storage ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Maps every shaped value of a block to the storage that it may refer to, through views, destination-passing, mutation
// and futures in flight. The memory model and the dependences both use this map.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_STORAGE_H
#define COMMSCHED_ANALYSIS_STORAGE_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Support/Units.h"
#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include <vector>

namespace commsched {

namespace detail {
class StorageOrigins;
} // namespace detail

/// Index of a storage class within a StorageMap.
using StorageId = int32_t;

/// On a tensor.insert_slice: the operation that computes the source writes it into its place in the destination. The
/// sources of a chain of such insertions and its result share one storage, and the insertions are views. The chain
/// begins with a tensor.empty.
inline constexpr llvm::StringLiteral kInPlaceAttrName = "in_place";

/// Storage that one operation allocates. A value refers to one class, or (the result of a select, a branch or a call,
/// an unknown memref) to several.
struct StorageClass {
  Bytes bytes = 0;
  /// The operation of the block that allocates the storage; null for arguments, captured values and globals.
  mlir::Operation *def = nullptr;
  /// A donated argument: live from the beginning, and freed after its last use.
  bool donated = false;
  /// The terminator uses it, directly or through a future: live until the end.
  bool liveOut = false;
  /// Allocated in a region of an operation of the block: part of that operation's workspace, not a buffer of the block.
  bool inner = false;
  /// Memrefs of unknown origin may have this storage. All such classes may be the same memory.
  bool unknownOrigin = false;
  /// The other classes that may be the same memory, ascending: a loop, or a branch to another basic block, passes on a
  /// tensor or a copy of it. They imply order alone. Bytes count as if each were a copy.
  llvm::SmallVector<StorageId, 0> mayBe;

  /// Live throughout the block, whatever the order: an argument that is not donated, or a captured value.
  bool liveThroughout() const { return !def && !donated && !inner; }
};

/// The storage classes of one block and the values that refer to them.
class StorageMap {
public:
  /// Analyses `block` and all nested operations. O(operations + operands), times the depth of regions with arguments,
  /// and for each value that loops and branches pass on O(values on the ways to its origins).
  explicit StorageMap(mlir::Block &block);

  llvm::ArrayRef<StorageClass> classes() const { return storage; }

  /// The classes that a shaped value may refer to. For a future, all classes in flight with it. Empty for values
  /// without storage.
  llvm::ArrayRef<StorageId> of(mlir::Value value) const;

  /// The classes of value `index` of a future whose start is in the block or in one of its regions; empty for other
  /// futures.
  llvm::ArrayRef<StorageId> ofFutureValue(mlir::Value future, unsigned index) const;

  /// The classes that may have new contents after a wait for the future: the destinations of its start. All that is in
  /// flight with it, if the start is not known.
  llvm::ArrayRef<StorageId> writtenBy(mlir::Value future) const;

  /// The start of a future, if it is in the block or in one of its regions; null for a future from outside.
  mlir::Operation *startOf(mlir::Value future) const { return starts.lookup(future); }

  /// The operations that allocate the storage into which `op` writes parts of it (see kInPlaceAttrName), if `op` does
  /// not allocate it itself. They come before `op` in every order.
  llvm::ArrayRef<mlir::Operation *> allocatorsOfPlaces(mlir::Operation *op) const;

  /// The classes of tensors that the block did not make in this run, and for each the value that made it: one from
  /// outside, or one that the block made in an earlier run.
  llvm::ArrayRef<std::pair<mlir::Value, StorageId>> tensorsFromElsewhere() const { return elsewhere; }

  /// Bytes of the block's arguments that are live throughout.
  Bytes argumentBytes() const { return numArgumentBytes; }

  /// Values, and futures of values, of dynamic size without a hint. They count as 0 bytes.
  llvm::ArrayRef<mlir::Value> unknownSizes() const { return unknown; }

private:
  /// A range of `pool`.
  using Slice = std::pair<int32_t, int32_t>;

  void findPlaces(mlir::Block &block);
  void addRegionValues(mlir::Operation *op);
  void addArgument(mlir::BlockArgument argument);
  void addCaptured(mlir::Value value);
  void addOrigins(StorageId id, mlir::Value passed);
  bool isInside(mlir::Value value) const;
  llvm::SmallVector<StorageId, 4> withOrigins(llvm::ArrayRef<StorageId> ids) const;
  void visit(mlir::Operation *op, bool nested);
  void visitStart(comm::CollectiveOpInterface start, bool nested);
  void visitWait(comm::WaitOp wait, bool nested);
  llvm::SmallVector<StorageId, 4> classesOfReceived(mlir::OpResult result);
  llvm::ArrayRef<StorageId> receivedStorage(mlir::Value value);
  void visitCopyIn(comm::FsdpAllGatherCopyInOp copyIn, bool nested);
  void visitResult(mlir::OpResult result, bool nested);
  llvm::SmallVector<StorageId, 4> dropInner(llvm::SmallVectorImpl<StorageId> &ids, bool nested) const;
  void visitTerminator(mlir::Operation *terminator);

  StorageId unknownStorage();
  StorageId globalStorage(mlir::StringAttr name);
  StorageId allocate(mlir::Operation *def, Bytes bytes, bool nested);
  /// The storage of a new value, or future, of the block: its own, or that of the whole in which it has its place.
  StorageId allocate(mlir::Operation *def, mlir::Value value, Bytes bytes, bool nested);
  /// Records `value` if its size is unknown.
  Bytes bytesOf(mlir::Value value, std::optional<Bytes> known);
  Bytes bytesOfFuture(mlir::Value future, std::optional<Bytes> hint);
  Slice addSlice(llvm::ArrayRef<StorageId> ids);
  void refer(mlir::Value value, llvm::ArrayRef<StorageId> ids) { slices[value] = addSlice(ids); }
  llvm::SmallVector<StorageId, 4> unionOf(mlir::ValueRange sources) const;

  std::vector<StorageClass> storage;
  std::vector<StorageId> pool;
  llvm::DenseMap<mlir::Value, Slice> slices;
  /// Used during construction only.
  mlir::Block *block;
  detail::StorageOrigins *origins = nullptr;
  /// Indexed by value that is defined in the block: its storage in an earlier run of the block.
  llvm::DenseMap<mlir::Value, StorageId> earlier;
  llvm::SmallVector<std::pair<mlir::Value, StorageId>, 0> elsewhere;
  /// Indexed by future with a known start: the start, and the classes of each value.
  llvm::DenseMap<mlir::Value, mlir::Operation *> starts;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Slice, 1>> futureValues;
  /// Indexed by future: see writtenBy().
  llvm::DenseMap<mlir::Value, Slice> written;
  /// Indexed by future from outside whose start has no destinations: the class of each value that it receives.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<StorageId, 1>> received;
  /// The classes whose addresses some operation may keep. If an operation may load such an address, their origin is as
  /// unknown as that of the loaded memref.
  std::vector<StorageId> kept;
  bool loadsAddresses = false;
  StorageId unknownId = -1;                            ///< -1 until an operation finds memory by itself
  llvm::DenseMap<mlir::StringAttr, StorageId> globals; ///< indexed by the name of a memref.global
  Bytes numArgumentBytes = 0;
  std::vector<mlir::Value> unknown;

  /// Storage that several operations write, each its part.
  struct Whole {
    Bytes bytes = 0;
    /// -1 until the first part has been visited.
    StorageId id = -1;
  };
  std::vector<Whole> wholes;
  /// Indexed by value, or future, that is computed in its place: the index in `wholes`.
  llvm::DenseMap<mlir::Value, int32_t> wholeOf;
  /// Indexed by operation: see allocatorsOfPlaces().
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Operation *, 1>> allocators;
};

/// The operand whose storage a result shares, from the operation itself: its StorageOpInterface, a view, or a
/// destination if nothing else can see the destination's storage. Null if the result has storage of its own.
mlir::Value getAliasedValue(mlir::OpResult result);

/// Returns true if an operation writes the storage of an operand of tensor type. For memrefs, use its memory effects.
bool mutatesOperand(mlir::OpOperand &operand);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_STORAGE_H
