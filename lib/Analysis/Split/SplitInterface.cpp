//===- SplitInterface.cpp - Interface for splitting an operation ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Split/SplitInterface.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "SplitModels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"
#include <numeric>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

#include "CommSched/Analysis/Split/SplitInterface.cpp.inc"

//===-----------------------------------------------------------------------------------------===//
// Types
//===-----------------------------------------------------------------------------------------===//

RankedTensorType commsched::getSplitType(Type type) {
  if (auto future = dyn_cast<FutureType>(type))
    type = future.getTypes().size() == 1 ? future.getTypes().front() : Type();
  auto tensor = dyn_cast_if_present<RankedTensorType>(type);
  bool isPlain = tensor && tensor.hasStaticShape() && tensor.getNumElements() > 0 && !tensor.getEncoding();
  return isPlain ? tensor : RankedTensorType();
}

Type commsched::getPartType(Type type, int64_t dim, int64_t parts) {
  RankedTensorType tensor = getSplitType(type);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[dim] /= parts;
  Type part = tensor.clone(shape);
  return isa<FutureType>(type) ? FutureType::get(type.getContext(), part) : part;
}

std::optional<ArrayRef<int64_t>> commsched::detail::shapeOf(Value value) {
  RankedTensorType type = getSplitType(value.getType());
  return type ? std::optional<ArrayRef<int64_t>>(type.getShape()) : std::nullopt;
}

//===-----------------------------------------------------------------------------------------===//
// Axes
//===-----------------------------------------------------------------------------------------===//

SplitAxis commsched::detail::makeAxis(Operation *op) {
  SplitAxis axis;
  axis.operands.assign(op->getNumOperands(), kWholeOperand);
  axis.results.assign(op->getNumResults(), kWholeOperand);
  return axis;
}

SplitAxes commsched::detail::elementwiseAxes(Operation *op) {
  if (op->getNumResults() == 0)
    return {};
  std::optional<ArrayRef<int64_t>> first = shapeOf(op->getResult(0));
  if (!first || llvm::any_of(op->getResults(), [&](Value result) { return shapeOf(result) != first; }))
    return {};
  int64_t rank = first->size();
  SplitAxes axes;
  for (int64_t dim = 0; dim < rank; ++dim) {
    SplitAxis axis = makeAxis(op);
    axis.results.assign(op->getNumResults(), dim);
    for (OpOperand &operand : op->getOpOperands()) {
      if (!isa<ShapedType>(operand.get().getType()))
        continue;
      std::optional<ArrayRef<int64_t>> shape = shapeOf(operand.get());
      if (!shape || static_cast<int64_t>(shape->size()) > rank)
        return {};
      int64_t own = dim - (rank - static_cast<int64_t>(shape->size()));
      if (own < 0 || (*shape)[own] == 1)
        continue;
      if ((*shape)[own] != (*first)[dim])
        return {};
      axis.operands[operand.getOperandNumber()] = own;
    }
    axes.push_back(std::move(axis));
  }
  return axes;
}

SplitAxes commsched::detail::reshapeAxes(Operation *op) {
  if (op->getNumOperands() == 0 || op->getNumResults() != 1)
    return {};
  std::optional<ArrayRef<int64_t>> from = shapeOf(op->getOperand(0)), to = shapeOf(op->getResult(0));
  if (!from || !to || ShapedType::getNumElements(*from) != ShapedType::getNumElements(*to) ||
      ShapedType::getNumElements(*from) == 0)
    return {};
  // Dimensions with equally many elements before them begin together: their parts are the same elements.
  SplitAxes axes;
  int64_t before = 1, beforeTo = 1;
  for (size_t i = 0, j = 0; i < from->size() && j < to->size();) {
    if ((*from)[i] == 1 || before < beforeTo) {
      before *= (*from)[i++];
    } else if ((*to)[j] == 1 || beforeTo < before) {
      beforeTo *= (*to)[j++];
    } else {
      SplitAxis axis = makeAxis(op);
      axis.operands[0] = static_cast<int64_t>(i);
      axis.results[0] = static_cast<int64_t>(j);
      axes.push_back(std::move(axis));
      before *= (*from)[i++];
    }
  }
  return axes;
}

SplitAxes commsched::detail::sameSizeAxes(Operation *op) {
  if (op->getNumResults() == 0)
    return {};
  std::optional<ArrayRef<int64_t>> first = shapeOf(op->getResult(0));
  if (!first)
    return {};
  SplitAxes axes;
  for (int64_t dim = 0; dim < static_cast<int64_t>(first->size()); ++dim) {
    auto matches = [&](Value value) {
      std::optional<ArrayRef<int64_t>> shape = shapeOf(value);
      return shape && shape->size() == first->size() && (*shape)[dim] == (*first)[dim];
    };
    if (!llvm::all_of(op->getOperands(), matches) || !llvm::all_of(op->getResults(), matches))
      continue;
    SplitAxis axis = makeAxis(op);
    axis.operands.assign(op->getNumOperands(), dim);
    axis.results.assign(op->getNumResults(), dim);
    axes.push_back(std::move(axis));
  }
  return axes;
}

//===-----------------------------------------------------------------------------------------===//
// Any operation
//===-----------------------------------------------------------------------------------------===//

/// The axes that the attribute `comm.split` lists. The dialect has verified it. There, -1 also says that a result is a
/// sum.
static SplitAxes axesOfAttribute(Operation *op, ArrayAttr ways) {
  SplitAxes axes;
  for (Attribute way : ways) {
    ArrayRef<int64_t> dims = cast<DenseI64ArrayAttr>(way).asArrayRef();
    SplitAxis &axis = axes.emplace_back();
    llvm::append_range(axis.operands, dims.take_front(op->getNumOperands()));
    for (int64_t dim : dims.drop_front(op->getNumOperands()))
      axis.results.push_back(dim < 0 ? kPartialResult : dim);
  }
  return axes;
}

/// Returns true if partial results of this type can be added.
static bool isSummable(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !getSplitType(tensor))
    return false;
  Type element = tensor.getElementType();
  return isa<FloatType>(element) || (element.isSignlessInteger() && !element.isInteger(1));
}

/// Returns the greatest common divisor of the sizes that are split along `axis`, and of its units; 0 if a value cannot
/// be split.
static int64_t countUnits(Operation *op, const SplitAxis &axis) {
  int64_t units = axis.units;
  auto visit = [&](Value value, int64_t dim) {
    std::optional<ArrayRef<int64_t>> shape = shapeOf(value);
    if (!shape || dim >= static_cast<int64_t>(shape->size()))
      return false;
    units = std::gcd(units, (*shape)[dim]);
    return true;
  };
  for (auto [operand, dim] : llvm::zip_equal(op->getOperands(), axis.operands))
    if (dim != kWholeOperand && !visit(operand, dim))
      return 0;
  for (auto [result, dim] : llvm::zip_equal(op->getResults(), axis.results))
    if (dim == kPartialResult ? !isSummable(result.getType()) : dim == kWholeOperand || !visit(result, dim))
      return 0;
  return units;
}

/// Returns true if a part of `op` cannot stand for its part of the results alone.
static bool isBarrier(Operation *op) {
  if (auto compute = dyn_cast<ComputeOp>(op))
    if (compute.getSideEffects() || !compute.getMutates().value_or(ArrayRef<int64_t>()).empty())
      return true;
  return op->getNumResults() == 0 || op->hasTrait<OpTrait::IsTerminator>() ||
         op->hasAttr(CommDialect::kHybridAttrName) || op->hasAttr(CommDialect::kUnitAttrName) ||
         op->hasAttr(CommDialect::kStreamAttrName) || op->hasAttr(CommDialect::kSymmetricAttrName);
}

SplitAxes commsched::getSplitAxes(Operation *op) {
  if (isBarrier(op))
    return {};
  SplitAxes axes;
  if (auto ways = op->getAttrOfType<ArrayAttr>(CommDialect::kSplitAttrName))
    axes = axesOfAttribute(op, ways);
  else if (auto splittable = dyn_cast<SplittableOpInterface>(op))
    axes = splittable.getSplitAxes();
  for (SplitAxis &axis : axes)
    axis.units = countUnits(op, axis);
  // What a collective moves is no sum of what it moves for parts: the parts are added before it.
  bool communicates = isa<CollectiveOpInterface, WaitOp>(op);
  llvm::erase_if(axes,
                 [&](const SplitAxis &axis) { return axis.units < 2 || (communicates && axis.hasPartialResults()); });
  return axes;
}

bool commsched::isExact(Operation *op, const SplitAxis &axis) {
  return llvm::all_of(llvm::zip_equal(op->getResults(), axis.results), [](auto entry) {
    auto [result, dim] = entry;
    return dim != kPartialResult || getElementTypeOrSelf(result).isInteger();
  });
}

Operation *commsched::createStrand(OpBuilder &builder, Operation *op, const SplitAxis &axis, ValueRange operands,
                                   TypeRange types) {
  if (auto splittable = dyn_cast<SplittableOpInterface>(op))
    return splittable.createStrand(builder, axis, operands, types);
  return cloneAsStrand(builder, op, operands, types);
}

Operation *commsched::cloneAsStrand(OpBuilder &builder, Operation *op, ValueRange operands, TypeRange types) {
  Operation *strand = mlir::clone(builder, op, types, operands);
  // The list is about the sizes of the whole operation, and parts are not split again.
  strand->removeAttr(CommDialect::kSplitAttrName);
  return strand;
}

bool commsched::isGenerator(Operation *op) {
  if (!op || op->getNumResults() != 1 || !getSplitType(op->getResult(0).getType()))
    return false;
  if (isa<tensor::EmptyOp>(op))
    return true;
  if (auto fill = dyn_cast<linalg::FillOp>(op))
    return isGenerator(fill.getDpsInits()[0].getDefiningOp());
  auto constant = dyn_cast<arith::ConstantOp>(op);
  auto value = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  return value && value.isSplat();
}

void commsched::registerSplitModels(DialectRegistry &registry) {
  registerArithSplitModels(registry);
  registerCommSplitModels(registry);
  registerLinalgSplitModels(registry);
  registerTensorSplitModels(registry);
}
