//===- OperationCosts.cpp - What an operation costs on a machine ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/OperationCosts.h"
#include "CommSched/Analysis/Storage.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

ElementType commsched::elementTypeOf(Type type) {
  Type element = getElementTypeOrSelf(type);
  if (isa<FloatType>(element)) {
    if (element.isBF16())
      return ElementType::BF16;
    switch (element.getIntOrFloatBitWidth()) {
    case 64:
      return ElementType::F64;
    case 32:
      return ElementType::F32;
    case 19:
      return ElementType::TF32;
    case 16:
      return ElementType::F16;
    case 8:
      return ElementType::F8;
    case 4:
      return ElementType::F4;
    default:
      return ElementType::Other;
    }
  }
  if (!isa<IntegerType>(element))
    return ElementType::Other;
  switch (element.getIntOrFloatBitWidth()) {
  case 64:
    return ElementType::I64;
  case 32:
    return ElementType::I32;
  case 16:
    return ElementType::I16;
  case 8:
    return ElementType::I8;
  default:
    return ElementType::Other;
  }
}

/// Bytes of all shaped values together.
static Bytes bytesOf(ValueRange values) {
  Bytes bytes = 0;
  for (Value value : values)
    bytes += getStaticBytes(value.getType()).value_or(0);
  return bytes;
}

//===-----------------------------------------------------------------------------------------===//
// Collectives
//===-----------------------------------------------------------------------------------------===//

/// The shape of the largest group of a partition.
static GroupShape shapeOfGroups(ReplicaGroupsInterface groups, int64_t ranksPerNode) {
  GroupShape worst;
  SmallVector<int64_t> ranks(groups.getGroupSize());
  // All groups of a partition are alike in the layouts that occur; the first and the last one tell.
  for (int64_t group : {int64_t(0), groups.getNumGroups() - 1}) {
    for (auto [index, rank] : llvm::enumerate(ranks))
      rank = groups.getRank(group, index);
    GroupShape shape = shapeOfRanks(ranks, ranksPerNode);
    if (worst.nodes < shape.nodes || worst.ranks < shape.ranks)
      worst = shape;
  }
  return worst;
}

GroupShape OperationCosts::shapeOf(CollectiveOpInterface start) const {
  GroupOp group = lookupGroup(start, symbols);
  if (!group)
    return {};
  auto [it, inserted] = shapes.try_emplace(group);
  if (inserted)
    it->second = shapeOfGroups(group.getGroups(), machine().ranksPerNode);
  return it->second;
}

/// The type whose elements a collective moves.
static ElementType elementOf(CollectiveOpInterface start) {
  ArrayRef<Type> values = cast<FutureType>(start.getCollectiveFuture().getType()).getTypes();
  if (!start.getCollectiveInputs().empty())
    return elementTypeOf(start.getCollectiveInputs().front().getType());
  return values.empty() ? ElementType::Other : elementTypeOf(values.front());
}

std::shared_ptr<const CollectiveCurve> OperationCosts::curveOf(CollectiveOpInterface start) const {
  return costs.curve(start.getCollectiveKind(), shapeOf(start), elementOf(start), start.getGroupAttr().getValue());
}

OpCost OperationCosts::costOfCollective(CollectiveOpInterface start) const {
  return {(*curveOf(start))(getCollectiveBytes(start)), 0, OpCostSource::Collective};
}

//===-----------------------------------------------------------------------------------------===//
// Kernels
//===-----------------------------------------------------------------------------------------===//

/// Nothing runs: views, constants, allocations, bookkeeping on scalars.
static bool isFree(Operation *op) {
  if (isa<WaitOp, RecordOp, AwaitEventOp, ResizeStorageOp, tensor::EmptyOp, tensor::DimOp, memref::AllocOp,
          memref::AllocaOp, memref::DeallocOp, memref::GetGlobalOp, memref::DimOp, bufferization::AllocTensorOp>(op) ||
      matchPattern(op, m_Constant()))
    return true;
  auto isShaped = [](Value value) { return isa<ShapedType>(value.getType()); };
  if (llvm::none_of(op->getOperands(), isShaped) && llvm::none_of(op->getResults(), isShaped))
    return op->getNumRegions() == 0 && !isa<ComputeOp>(op);
  bool mutates = llvm::any_of(op->getOpOperands(), [](OpOperand &operand) { return mutatesOperand(operand); });
  return !mutates && op->getNumResults() > 0 &&
         llvm::all_of(op->getResults(), [](OpResult result) { return static_cast<bool>(getAliasedValue(result)); });
}

/// The copies of FSDP, which the scheduler's buckets are made of; none for other operations.
static std::optional<std::pair<Bytes, Bytes>> getCopiedBytes(Operation *op) {
  if (auto copyIn = dyn_cast<FsdpAllGatherCopyInOp>(op))
    return std::pair(bytesOf(copyIn.getInputs()), bytesOf(copyIn.getSlice()));
  if (auto split = dyn_cast<FsdpSplitWithSizesCopyOp>(op))
    return std::pair(bytesOf(split.getPieces()), bytesOf(split.getPieces()));
  if (auto cat = dyn_cast<FsdpChunkCatOp>(op))
    return std::pair(bytesOf(cat.getInputs()), bytesOf(cat.getResult()));
  if (auto copy = dyn_cast<FsdpCopyOp>(op))
    return std::pair(bytesOf(copy.getSource()), bytesOf(copy.getDest()));
  return std::nullopt;
}

OpCost OperationCosts::costOfCompute(Operation *op) const {
  if (isFree(op))
    return {0, 0, OpCostSource::Free};
  if (std::optional<std::pair<Bytes, Bytes>> copied = getCopiedBytes(op))
    return {costs.costOfCopy(copied->first, copied->second), 0, OpCostSource::Roofline};
  Bytes bytes = bytesOf(op->getOperands()) + bytesOf(op->getResults());
  return {costs.costOfKernel(0, bytes, ElementType::Other, ComputeUnits::Vector), 0, OpCostSource::Guess};
}

OpCost OperationCosts::costOf(Operation *op) const {
  auto start = dyn_cast<CollectiveOpInterface>(op);
  auto attr = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
  if (!attr)
    return start ? costOfCollective(start) : costOfCompute(op);
  OpCost cost;
  if (attr.getTime())
    cost = {std::min(kMaxNs, *attr.getTime()), 0, OpCostSource::Measured};
  else if (start || !(attr.getFlops() || attr.getBytes()))
    cost = start ? costOfCollective(start) : costOfCompute(op);
  else {
    ElementType element = op->getNumOperands() > 0 ? elementTypeOf(op->getOperand(0).getType()) : ElementType::Other;
    Bytes bytes = attr.getBytes().value_or(bytesOf(op->getOperands()) + bytesOf(op->getResults()));
    cost = {costs.costOfKernel(attr.getFlops().value_or(0), bytes, element, ComputeUnits::Matrix), 0, OpCostSource::Roofline};
  }
  cost.workspace = attr.getWorkspace().value_or(cost.workspace);
  return cost;
}
