//===- JoinBuffers.cpp - Compute parts of a buffer in their places ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "JoinBuffers.h"
#include "CommSched/Analysis/Streams.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// A part of the larger buffer, and the copy that fills it.
struct Part {
  memref::SubViewOp view;
  memref::CopyOp copy;
};

/// Every value that shows the buffer of a part: its allocation, and what waits for collectives into it return.
struct PartBuffer {
  memref::AllocOp alloc;
  SmallVector<Value> values;
  /// The futures of collectives into the buffer.
  SmallVector<Value> futures;
};

/// Joins buffers of one block.
class JoinBuffers {
public:
  explicit JoinBuffers(Block &block) : block(block) {
    int64_t place = 0;
    for (Operation &op : block)
      placeOf[&op] = place++;
  }

  void run() {
    SmallVector<memref::AllocOp> allocs(block.getOps<memref::AllocOp>());
    for (memref::AllocOp alloc : allocs)
      if (!erased.contains(alloc))
        join(alloc);
  }

private:
  static bool isPlain(MemRefType type) {
    return type.hasStaticShape() && type.getLayout().isIdentity() && !type.getMemorySpace();
  }

  void join(memref::AllocOp whole) {
    SmallVector<Part> parts;
    if (!isPlain(whole.getType()) || !findParts(whole, parts))
      return;
    bool isRead = llvm::all_of(whole->getUses(), [&](OpOperand &use) {
      return llvm::any_of(parts, [&](Part &part) { return part.view == use.getOwner(); }) || onlyReads(use);
    });
    for (Part &part : parts)
      if (std::optional<PartBuffer> buffer = findBuffer(part, isRead))
        replace(whole, part, *buffer);
  }

  /// Finds the parts of `whole`. Returns false if they overlap, or if anything else uses it before the last one is
  /// there.
  bool findParts(memref::AllocOp whole, SmallVectorImpl<Part> &parts) const {
    int64_t last = -1;
    SmallVector<Operation *> others;
    for (Operation *user : whole->getUsers()) {
      if (user->getBlock() != &block)
        return false;
      auto view = dyn_cast<memref::SubViewOp>(user);
      auto copy = view && view->hasOneUse() ? dyn_cast<memref::CopyOp>(*view->user_begin()) : memref::CopyOp();
      if (!copy || copy.getTarget() != view.getResult() || copy->getBlock() != &block || !isStatic(view)) {
        others.push_back(user);
        continue;
      }
      last = std::max(last, placeOf.lookup(copy));
      parts.push_back({view, copy});
    }
    if (parts.empty() || parts.size() > kMostJoinedParts)
      return false;
    for (size_t i = 0; i < parts.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (!areDisjoint(parts[i].view, parts[j].view))
          return false;
    return llvm::all_of(others, [&](Operation *other) { return placeOf.lookup(other) > last; });
  }

  static bool isStatic(memref::SubViewOp view) {
    return llvm::none_of(view.getStaticOffsets(), ShapedType::isDynamic) &&
           llvm::none_of(view.getStaticSizes(), ShapedType::isDynamic) &&
           llvm::all_of(view.getStaticStrides(), [](int64_t stride) { return stride == 1; }) &&
           view.getType().getRank() == view.getSourceType().getRank();
  }

  static bool areDisjoint(memref::SubViewOp a, memref::SubViewOp b) {
    for (auto [offsetA, sizeA, offsetB, sizeB] :
         llvm::zip_equal(a.getStaticOffsets(), a.getStaticSizes(), b.getStaticOffsets(), b.getStaticSizes()))
      if (offsetA + sizeA <= offsetB || offsetB + sizeB <= offsetA)
        return true;
    return false;
  }

  /// Returns true if a use reads the buffer, or a view of it that is only read.
  static bool onlyReads(OpOperand &use) {
    Operation *op = use.getOwner();
    if (isa<memref::SubViewOp, memref::CastOp, memref::ReinterpretCastOp, memref::ExpandShapeOp,
            memref::CollapseShapeOp>(op))
      return llvm::all_of(op->getUses(), onlyReads);
    return isa<func::ReturnOp>(op) || isRead(use);
  }

  /// Returns true if an operation that takes buffers of any strides reads this one.
  static bool isRead(OpOperand &use) {
    Operation *op = use.getOwner();
    if (auto compute = dyn_cast<ComputeOp>(op))
      return isPlainCompute(compute) && !llvm::is_contained(*compute.getMutates(), use.getOperandNumber());
    if (auto structured = dyn_cast<linalg::LinalgOp>(op))
      return structured.isDpsInput(&use);
    if (auto copy = dyn_cast<memref::CopyOp>(op))
      return copy.getSource() == use.get() && copy.getTarget() != use.get();
    if (auto start = dyn_cast<CollectiveOpInterface>(op))
      return !op->hasAttr(CommDialect::kSymmetricAttrName) &&
             llvm::is_contained(start.getCollectiveInputs(), use.get()) &&
             !llvm::is_contained(start.getCollectiveDests(), use.get());
    return isa<WaitOp>(op);
  }

  static bool isPlainCompute(ComputeOp compute) {
    return compute->getNumResults() == 0 && !compute.getSideEffects() && compute.getMutates();
  }

  /// Returns true if an operation that takes buffers of any strides writes this one.
  static bool isWritten(OpOperand &use) {
    if (auto compute = dyn_cast<ComputeOp>(use.getOwner()))
      return isPlainCompute(compute);
    if (auto start = dyn_cast<CollectiveOpInterface>(use.getOwner()))
      return !start->hasAttr(CommDialect::kSymmetricAttrName) && start.getCollectiveDests().size() == 1;
    return isa<linalg::LinalgOp, memref::CopyOp>(use.getOwner());
  }

  /// The buffer that is copied into `part`, if a view of the part can take its place: everything before the copy may
  /// write it, and after the copy it is only read. If it is, then the whole must only be read, too.
  std::optional<PartBuffer> findBuffer(Part part, bool wholeIsRead) const {
    PartBuffer buffer;
    Value source = part.copy.getSource();
    if (auto wait = source.getDefiningOp<WaitOp>()) {
      auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>();
      if (!start || start.getCollectiveDests().size() != 1)
        return std::nullopt;
      source = start.getCollectiveDests().front();
    }
    buffer.alloc = source.getDefiningOp<memref::AllocOp>();
    if (!buffer.alloc || buffer.alloc->getBlock() != &block || !isPlain(buffer.alloc.getType()) ||
        buffer.alloc.getType().getShape() != part.view.getType().getShape())
      return std::nullopt;
    buffer.values.push_back(buffer.alloc);
    for (OpOperand &use : buffer.alloc->getUses())
      if (!addFuture(use, buffer))
        return std::nullopt;
    // Collectives copy what is not contiguous.
    bool isContiguous = memref::isStaticShapeAndContiguousRowMajor(part.view.getType());
    int64_t end = placeOf.lookup(part.copy);
    for (Value value : buffer.values)
      for (OpOperand &use : value.getUses()) {
        Operation *op = use.getOwner();
        if (op == part.copy)
          continue;
        if (op->getBlock() != &block || (isa<CollectiveOpInterface>(op) && !isContiguous))
          return std::nullopt;
        bool isAfter = placeOf.lookup(op) > end;
        if (isAfter ? !(isRead(use) && wholeIsRead) : !isRead(use) && !isWritten(use))
          return std::nullopt;
      }
    return buffer;
  }

  /// Adds what waits return if `use` is the destination of a collective. Returns false if the future has other uses.
  bool addFuture(OpOperand &use, PartBuffer &buffer) const {
    auto start = dyn_cast<CollectiveOpInterface>(use.getOwner());
    if (!start || !llvm::is_contained(start.getCollectiveDests(), use.get()))
      return true;
    Value future = start.getCollectiveFuture();
    if (llvm::is_contained(buffer.futures, future))
      return true;
    if (start->getBlock() != &block || start.getCollectiveDests().size() != 1)
      return false;
    buffer.futures.push_back(future);
    for (Operation *user : future.getUsers()) {
      auto wait = dyn_cast<WaitOp>(user);
      if (!wait || wait->getBlock() != &block || wait->getNumResults() != 1)
        return false;
      buffer.values.push_back(wait->getResult(0));
    }
    return true;
  }

  /// Lets the view of `part` take the place of `buffer`.
  void replace(memref::AllocOp whole, Part part, PartBuffer &buffer) {
    int64_t place = placeOf.lookup(buffer.alloc);
    if (place < placeOf.lookup(whole)) {
      whole->moveBefore(buffer.alloc);
      placeOf[whole] = place;
    }
    // The whole is before the buffer now, so the view may be where the buffer was.
    part.view->moveBefore(buffer.alloc);
    placeOf[part.view] = place;
    Type type = part.view.getType();
    for (Value value : buffer.values)
      value.setType(type);
    for (Value future : buffer.futures)
      future.setType(FutureType::get(future.getContext(), type));
    part.copy->erase();
    buffer.alloc.getResult().replaceAllUsesWith(part.view.getResult());
    erased.insert(buffer.alloc);
    buffer.alloc->erase();
  }

  Block &block;
  /// Indexed by operation: its place in the block. A view and a whole that have moved have the place of a buffer.
  llvm::DenseMap<Operation *, int64_t> placeOf;
  llvm::DenseSet<Operation *> erased;
};

} // namespace

void commsched::computePartsInPlace(ModuleOp module) {
  SmallVector<Block *> blocks;
  module.walk([&](Block *block) {
    if (!usesStreams(*block))
      blocks.push_back(block);
  });
  for (Block *block : blocks)
    JoinBuffers(*block).run();
}
