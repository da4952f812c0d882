//===- MemoryRanges.cpp - The bytes that a value names ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "MemoryRanges.h"
#include "CommSched/Analysis/Storage.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Bytes of a memref of static shape without gaps; none for others.
static std::optional<int64_t> getBytes(Value memref) {
  auto type = dyn_cast<MemRefType>(memref.getType());
  if (!type || !type.hasStaticShape() || !type.getLayout().isIdentity() || !type.getElementType().isIntOrFloat())
    return std::nullopt;
  int64_t bytes = llvm::PowerOf2Ceil(llvm::divideCeil(type.getElementTypeBitWidth(), 8));
  for (int64_t size : type.getShape())
    if (llvm::MulOverflow(bytes, size, bytes))
      return std::nullopt;
  return bytes;
}

Value commsched::findSource(Value value) {
  auto result = dyn_cast<OpResult>(value);
  if (!result)
    return {};
  if (auto wait = dyn_cast<WaitOp>(result.getOwner())) {
    auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>();
    bool known = start && result.getResultNumber() < start.getCollectiveDests().size();
    return known ? start.getCollectiveDests()[result.getResultNumber()] : Value();
  }
  return getAliasedValue(result);
}

Value commsched::findRoot(Value value) {
  for (Value source = findSource(value); source; source = findSource(value))
    value = source;
  return value;
}

/// The bytes from the first to the last element of a part, counted from the beginning of the memref whose part it is.
/// The base is null. Without bytes if they are not constants.
static ByteRange findPart(MemRefType type) {
  llvm::SmallVector<int64_t> strides;
  int64_t offset, last = 0, begin, end;
  if (!type.hasStaticShape() || !type.getElementType().isIntOrFloat() || type.getNumElements() == 0 ||
      failed(type.getStridesAndOffset(strides, offset)) || ShapedType::isDynamic(offset) ||
      llvm::any_of(strides, [](int64_t stride) { return ShapedType::isDynamic(stride) || stride < 0; }))
    return {};
  int64_t element = llvm::PowerOf2Ceil(llvm::divideCeil(type.getElementTypeBitWidth(), 8));
  for (auto [size, stride] : llvm::zip_equal(type.getShape(), strides))
    if (int64_t way; llvm::MulOverflow(size - 1, stride, way) || llvm::AddOverflow(last, way, last))
      return {};
  if (llvm::MulOverflow(offset, element, begin) || llvm::AddOverflow(offset, last, end) ||
      llvm::AddOverflow(end, int64_t(1), end) || llvm::MulOverflow(end, element, end))
    return {};
  return {Value(), begin, end};
}

std::optional<ByteRange> commsched::findRange(Value memref) {
  // The offset of a part's type counts from where its outermost source begins, if that has none.
  ByteRange part;
  for (Value source = findSource(memref); source && !memref.getDefiningOp<memref::ViewOp>();
       source = findSource(memref)) {
    if (memref.getDefiningOp<memref::SubViewOp>() && part.end == 0)
      part = findPart(cast<MemRefType>(memref.getType()));
    // Other views count with all bytes of their source.
    else if (!memref.getDefiningOp<memref::SubViewOp>() && !memref.getDefiningOp<WaitOp>())
      part = {};
    memref = source;
  }
  std::optional<int64_t> bytes = getBytes(memref);
  int64_t begin = 0, end;
  if (auto type = dyn_cast<MemRefType>(memref.getType()); part.end > 0 && type && type.getLayout().isIdentity()) {
    begin = part.begin;
    bytes = part.end - part.begin;
  }
  for (auto view = memref.getDefiningOp<memref::ViewOp>(); view; view = memref.getDefiningOp<memref::ViewOp>()) {
    std::optional<int64_t> shift = getConstantIntValue(view.getByteShift());
    if (!shift || llvm::AddOverflow(begin, *shift, begin))
      return std::nullopt;
    memref = view.getSource();
  }
  if (!bytes || llvm::AddOverflow(begin, *bytes, end) || findSource(memref))
    return std::nullopt;
  return ByteRange{memref, begin, end};
}

/// The results of comm.fsdp.split_with_sizes that a value is a view of, indexed by operation.
static llvm::DenseMap<Operation *, unsigned> findPieces(Value value) {
  llvm::DenseMap<Operation *, unsigned> pieces;
  for (; value; value = findSource(value))
    if (auto split = value.getDefiningOp<FsdpSplitWithSizesOp>())
      pieces[split] = cast<OpResult>(value).getResultNumber();
  return pieces;
}

bool commsched::areApart(Value a, Value b) {
  if (a == b)
    return false;
  if (llvm::DenseMap<Operation *, unsigned> pieces = findPieces(a); !pieces.empty())
    for (auto [split, piece] : findPieces(b))
      if (auto other = pieces.find(split); other != pieces.end() && other->second != piece)
        return true;
  if (!isa<MemRefType>(a.getType()) || !isa<MemRefType>(b.getType()))
    return false;
  Value rootOfA = findRoot(a), rootOfB = findRoot(b);
  auto isAllocation = [](Value root) {
    return isa_and_present<memref::AllocOp, memref::AllocaOp>(root.getDefiningOp());
  };
  if (rootOfA != rootOfB && isAllocation(rootOfA) && isAllocation(rootOfB))
    return true;
  std::optional<ByteRange> left = findRange(a), right = findRange(b);
  return left && right && left->base == right->base && (left->end <= right->begin || right->end <= left->begin);
}

MemoryAccess commsched::getAccess(OpOperand &operand) {
  if (!isa<BaseMemRefType>(operand.get().getType()))
    return {true, mutatesOperand(operand)};
  auto effects = dyn_cast<MemoryEffectOpInterface>(operand.getOwner());
  if (!effects)
    return {};
  llvm::SmallVector<MemoryEffects::EffectInstance, 4> found;
  effects.getEffectsOnValue(operand.get(), found);
  MemoryAccess access;
  for (const MemoryEffects::EffectInstance &effect : found) {
    access.reads |= isa<MemoryEffects::Read>(effect.getEffect());
    access.writes |= isa<MemoryEffects::Write, MemoryEffects::Free>(effect.getEffect());
  }
  return access;
}
