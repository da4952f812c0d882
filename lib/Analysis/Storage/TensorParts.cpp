//===- TensorParts.cpp - Tensors that are parts of others -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "TensorParts.h"
#include "CommSched/Analysis/Storage.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Returns true if a slice has the first rows of its source, and all elements of each.
static bool isFirstRows(tensor::ExtractSliceOp slice) {
  RankedTensorType source = slice.getSourceType();
  if (slice.getType().getRank() != source.getRank())
    return false;
  auto isAll = [](ArrayRef<OpFoldResult> values, int64_t number) {
    return llvm::all_of(values, [&](OpFoldResult value) { return isConstantIntValue(value, number); });
  };
  return isAll(slice.getMixedOffsets(), 0) && isAll(slice.getMixedStrides(), 1) && source.getRank() > 0 &&
         llvm::equal(slice.getStaticSizes().drop_front(), source.getShape().drop_front()) &&
         llvm::none_of(source.getShape().drop_front(), ShapedType::isDynamic);
}

/// Returns true if the operation that defines a tensor takes it from within its source.
static bool isTakenOut(Value tensor) {
  if (auto slice = tensor.getDefiningOp<tensor::ExtractSliceOp>())
    return !isFirstRows(slice);
  if (tensor.getDefiningOp<FsdpSplitWithSizesOp>())
    return cast<OpResult>(tensor).getResultNumber() > 0;
  auto copyIn = tensor.getDefiningOp<FsdpAllGatherCopyInOp>();
  return copyIn && tensor == copyIn.getSlice();
}

/// The value of which a result is a view, or the destination that a wait returns; null if there is none.
static Value findSource(OpResult result) {
  auto wait = dyn_cast<WaitOp>(result.getOwner());
  if (!wait)
    return getAliasedValue(result);
  auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>();
  return start && !start.getCollectiveDests().empty() ? start.getCollectiveDests()[result.getResultNumber()] : Value();
}

/// Whether a tensor is a part by the operations that define it; none if control flow chooses.
static std::optional<bool> isPart(Value tensor) {
  while (auto result = dyn_cast<OpResult>(tensor)) {
    if (isTakenOut(tensor))
      return true;
    if (result.getOwner()->getNumRegions() > 0 || isa<arith::SelectOp, CallOpInterface>(result.getOwner()))
      return std::nullopt;
    Value source = findSource(result);
    if (!source)
      return false;
    tensor = source;
  }
  // A caller that passes a part is reported itself.
  Block *home = tensor.getParentBlock();
  return isa<FunctionOpInterface>(home->getParentOp()) && home->isEntryBlock() ? std::optional(false) : std::nullopt;
}

bool commsched::mayBePart(Value tensor, ArrayRef<Value> names) {
  std::optional<bool> known = isPart(tensor);
  return known ? *known : llvm::any_of(names, [&](Value name) {
    return name.getType() == tensor.getType() && isPart(name).value_or(false);
  });
}
