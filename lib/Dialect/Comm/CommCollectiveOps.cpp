//===- CommCollectiveOps.cpp - Verifiers of the collectives -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The numbered constraints of CommCollectiveOps.td. What needs the group's size is checked when symbols are resolved
// (verifyGroupUse), the rest by the operations' own verifiers.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

static ArrayRef<Type> valueTypes(CollectiveOpInterface op) {
  return cast<FutureType>(op.getCollectiveFuture().getType()).getTypes();
}

static Type elementType(Type type) { return cast<ShapedType>(type).getElementType(); }

LogicalResult comm::detail::verifySameContainers(Operation *op, StringRef constraint, TypeRange first,
                                                 TypeRange second) {
  bool tensors = llvm::any_of(first, llvm::IsaPred<TensorType>) || llvm::any_of(second, llvm::IsaPred<TensorType>);
  bool memrefs =
      llvm::any_of(first, llvm::IsaPred<BaseMemRefType>) || llvm::any_of(second, llvm::IsaPred<BaseMemRefType>);
  if (tensors && memrefs)
    return op->emitOpError() << constraint << ": tensors and memrefs are mixed";
  return success();
}

/// C5: on memrefs a destination is given, with the future's types.
static LogicalResult verifyDests(CollectiveOpInterface op) {
  ArrayRef<Type> values = valueTypes(op);
  OperandRange dests = op.getCollectiveDests();
  if (!dests.empty() && dests.size() != values.size())
    return op->emitOpError() << "C1: " << dests.size() << " destinations for " << values.size()
                             << " values of the future";
  for (auto [dest, value] : llvm::zip(dests, values))
    if (dest.getType() != value)
      return op->emitOpError() << "C5: a destination of type " << dest.getType() << " for a value of type " << value;
  if (dests.empty() && llvm::any_of(values, llvm::IsaPred<MemRefType>))
    return op->emitOpError() << "C5: a collective on memrefs needs destinations";
  return comm::detail::verifySameContainers(op, "C5", op.getCollectiveInputs().getTypes(), values);
}

/// C1, C4 and C5: as many values as inputs, matching element types, destinations.
static LogicalResult verifyMembers(CollectiveOpInterface op) {
  ArrayRef<Type> values = valueTypes(op);
  OperandRange inputs = op.getCollectiveInputs();
  if (inputs.empty() || inputs.size() != values.size())
    return op->emitOpError() << "C1: " << inputs.size() << " inputs for " << values.size() << " values of the future";
  for (auto [input, value] : llvm::zip(inputs, values))
    if (elementType(input.getType()) != elementType(value))
      return op->emitOpError() << "C4: an input of " << elementType(input.getType()) << " for a value of "
                               << elementType(value);
  return verifyDests(op);
}

/// C2: a dimension of every input.
static LogicalResult verifyDim(CollectiveOpInterface op, int64_t dim, StringRef name = "dim") {
  for (Value input : op.getCollectiveInputs()) {
    int64_t rank = cast<ShapedType>(input.getType()).getRank();
    if (dim < 0 || dim >= rank)
      return op->emitOpError() << "C2: '" << name << "' " << dim << " is no dimension of " << input.getType();
  }
  return success();
}

/// C3: equal shapes of inputs and values; dynamic sizes match any.
static LogicalResult verifySameShapes(CollectiveOpInterface op) {
  for (auto [input, value] : llvm::zip(op.getCollectiveInputs(), valueTypes(op)))
    if (failed(verifyCompatibleShape(input.getType(), value)))
      return op->emitOpError() << "C3: an input of type " << input.getType() << " for a value of type " << value;
  return success();
}

/// Whether elements of this type can be combined by this kind.
static bool canReduce(ReductionKind kind, Type element) {
  bool ordered = kind == ReductionKind::min || kind == ReductionKind::max;
  bool divides = kind == ReductionKind::avg || kind == ReductionKind::scaled_sum;
  if (element.isInteger(1))
    return ordered;
  if (element.isIntOrIndex())
    return !divides;
  if (isa<ComplexType>(element))
    return !ordered && kind != ReductionKind::product;
  return isa<FloatType>(element);
}

/// C7 of reductions: scale, and what the element types allow.
static LogicalResult verifyReduction(CollectiveOpInterface op, ReductionKind kind, bool hasScale) {
  if (hasScale != (kind == ReductionKind::scaled_sum))
    return op->emitOpError() << "C7: 'scale' is for scaled_sum, and scaled_sum needs it";
  for (Value input : op.getCollectiveInputs())
    if (!canReduce(kind, elementType(input.getType())))
      return op->emitOpError() << "C7: " << stringifyReductionKind(kind) << " cannot combine elements of type "
                               << elementType(input.getType());
  return success();
}

//===-----------------------------------------------------------------------------------------===//
// What one operation alone can say
//===-----------------------------------------------------------------------------------------===//

LogicalResult AllGatherOp::verify() {
  return failure(failed(verifyMembers(*this)) || failed(verifyDim(*this, getDim())));
}

LogicalResult ReduceScatterOp::verify() {
  return failure(failed(verifyMembers(*this)) || failed(verifyDim(*this, getDim())) ||
                 failed(verifyReduction(*this, getReduction(), getScale().has_value())));
}

LogicalResult AllReduceOp::verify() {
  if (failed(verifyMembers(*this)) || failed(verifySameShapes(*this)) ||
      failed(verifyReduction(*this, getReduction(), getScale().has_value())))
    return failure();
  if (getOneShot() && getReduction() != ReductionKind::sum)
    return emitOpError() << "C8: 'one_shot' is for sum only";
  if (getOneShot())
    for (Value dest : getDests())
      if (llvm::is_contained(getInputs(), dest))
        return emitOpError() << "C9: 'one_shot' writes an input, which the other ranks read meanwhile";
  return success();
}

/// C7 and C8 of one list of splits: as many operands as the list has places for, no negative entry, and where nothing
/// is left to the run time the sum is the dimension's size.
static LogicalResult verifySplits(AllToAllOp op, StringRef which, std::optional<ArrayRef<int64_t>> splits,
                                  ValueRange operands, ArrayRef<Type> types) {
  int64_t places = splits ? llvm::count(*splits, ShapedType::kDynamic) : 0;
  if (places != static_cast<int64_t>(operands.size()))
    return op.emitOpError() << "C7: expected " << places << " operands for the " << which << " splits, got "
                            << operands.size();
  if (!splits)
    return success();
  int64_t sum = 0;
  for (int64_t split : *splits) {
    if (ShapedType::isDynamic(split))
      continue;
    if (split < 0)
      return op.emitOpError() << "C7: a negative split";
    if (llvm::AddOverflow(sum, split, sum))
      return op.emitOpError() << "C8: the " << which << " splits add up to more than 2^63";
  }
  if (places > 0)
    return success();
  for (Type type : types) {
    int64_t size = cast<ShapedType>(type).getDimSize(op.getSplitDim());
    if (!ShapedType::isDynamic(size) && size != sum)
      return op.emitOpError() << "C8: the " << which << " splits add up to " << sum << ", the dimension is " << size;
  }
  return success();
}

/// C3 of an exchange with splits: inputs and values agree in all dimensions but the one that is split.
static LogicalResult verifyOtherDims(AllToAllOp op) {
  for (auto [input, value] : llvm::zip(op.getInputs(), valueTypes(op))) {
    SmallVector<int64_t> expected(cast<ShapedType>(input.getType()).getShape());
    expected[op.getSplitDim()] = ShapedType::kDynamic;
    if (failed(verifyCompatibleShape(expected, cast<ShapedType>(value).getShape())))
      return op.emitOpError() << "C3: an input of type " << input.getType() << " for a value of type " << value
                              << ": they may differ in dimension " << op.getSplitDim() << " only";
  }
  return success();
}

LogicalResult AllToAllOp::verify() {
  if (failed(verifyMembers(*this)) || failed(verifyDim(*this, getSplitDim(), "split")) ||
      failed(verifyDim(*this, getConcatDim(), "concat")))
    return failure();
  if (hasSplits() != getStaticOutputSplits().has_value())
    return emitOpError() << "C7: input and output splits go together";
  if (hasSplits() && getSplitDim() != getConcatDim())
    return emitOpError() << "C7: splits need equal split and concat dimensions";
  if (hasSplits() && failed(verifyOtherDims(*this)))
    return failure();
  SmallVector<Type> inputs(getInputs().getTypes());
  return failure(failed(verifySplits(*this, "input", getStaticInputSplits(), getInputSplits(), inputs)) ||
                 failed(verifySplits(*this, "output", getStaticOutputSplits(), getOutputSplits(), valueTypes(*this))));
}

SmallVector<OpFoldResult> AllToAllOp::getMixedInputSplits() {
  return getMixedValues(getStaticInputSplits().value_or(ArrayRef<int64_t>()), getInputSplits(), getContext());
}

SmallVector<OpFoldResult> AllToAllOp::getMixedOutputSplits() {
  return getMixedValues(getStaticOutputSplits().value_or(ArrayRef<int64_t>()), getOutputSplits(), getContext());
}

LogicalResult BroadcastOp::verify() { return failure(failed(verifyMembers(*this)) || failed(verifySameShapes(*this))); }

LogicalResult ReduceOp::verify() {
  return failure(failed(verifyMembers(*this)) || failed(verifySameShapes(*this)) ||
                 failed(verifyReduction(*this, getReduction(), getScale().has_value())));
}

LogicalResult GatherOp::verify() { return failure(failed(verifyMembers(*this)) || failed(verifyDim(*this, getDim()))); }

LogicalResult ScatterOp::verify() {
  return failure(failed(verifyMembers(*this)) || failed(verifyDim(*this, getDim())));
}

LogicalResult PermuteOp::verify() {
  if (failed(verifyMembers(*this)) || failed(verifySameShapes(*this)))
    return failure();
  if (getPairs().size() % 2 != 0)
    return emitOpError() << "C7: 'pairs' needs an even number of places";
  llvm::SmallSet<int64_t, 8> sources, targets;
  for (auto [index, place] : llvm::enumerate(getPairs()))
    if (!(index % 2 ? targets : sources).insert(place).second)
      return emitOpError() << "C8: place " << place << " is twice a " << (index % 2 ? "target" : "source");
  return success();
}

/// C7 of sends and receives.
static LogicalResult verifyTag(Operation *op, int64_t tag) {
  if (tag < 0)
    return op->emitOpError() << "C7: 'tag' " << tag << " is negative";
  return success();
}

LogicalResult SendOp::verify() {
  if (!getDests().empty() || !valueTypes(*this).empty())
    return emitOpError() << "C1: a send has no destinations and an empty future";
  if (failed(verifyTag(*this, getTag())))
    return failure();
  return comm::detail::verifySameContainers(*this, "C5", getInputs().getTypes(), {});
}

LogicalResult RecvOp::verify() {
  if (!getInputs().empty() || valueTypes(*this).empty())
    return emitOpError() << "C1: a recv has no inputs and at least one value";
  return failure(failed(verifyTag(*this, getTag())) || failed(verifyDests(*this)));
}

LogicalResult BarrierOp::verify() {
  if (!getInputs().empty() || !getDests().empty() || !valueTypes(*this).empty())
    return emitOpError() << "C1: a barrier has no inputs, no destinations and an empty future";
  return success();
}

//===-----------------------------------------------------------------------------------------===//
// What needs the group
//===-----------------------------------------------------------------------------------------===//

/// C3: `value` is `input` with `grow` multiplied and `shrink` divided by `size` (-1: none).
static LogicalResult verifyScaledShapes(CollectiveOpInterface op, int64_t grow, int64_t shrink, int64_t size) {
  for (auto [inputValue, valueType] : llvm::zip(op.getCollectiveInputs(), valueTypes(op))) {
    auto input = cast<ShapedType>(inputValue.getType()), value = cast<ShapedType>(valueType);
    SmallVector<int64_t> expected(input.getShape());
    if (shrink >= 0 && !ShapedType::isDynamic(expected[shrink])) {
      if (expected[shrink] % size != 0)
        return op->emitOpError() << "C3: dimension " << shrink << " of " << input << " does not divide by the " << size
                                 << " ranks of the group";
      expected[shrink] /= size;
    }
    bool tooLarge =
        grow >= 0 && !ShapedType::isDynamic(expected[grow]) && llvm::MulOverflow(expected[grow], size, expected[grow]);
    if (tooLarge || failed(verifyCompatibleShape(expected, value.getShape())))
      return op->emitOpError() << "C3: an input of type " << input << " over " << size
                               << " ranks does not give a value of type " << value;
  }
  return success();
}

static LogicalResult verifyPlace(Operation *op, StringRef constraint, StringRef name, int64_t place, int64_t size) {
  if (place < 0 || place >= size)
    return op->emitOpError() << constraint << ": '" << name << "' " << place << " is no place in a group of " << size;
  return success();
}

static LogicalResult verifyAllToAllUse(AllToAllOp op, int64_t size) {
  if (!op.hasSplits())
    return verifyScaledShapes(op, op.getConcatDim(), op.getSplitDim(), size);
  if (static_cast<int64_t>(op.getStaticInputSplits()->size()) != size ||
      static_cast<int64_t>(op.getStaticOutputSplits()->size()) != size)
    return op.emitOpError() << "C7: one split per rank expected, the group has " << size;
  return success();
}

LogicalResult comm::detail::verifyGroupUse(CollectiveOpInterface op, SymbolTableCollection &symbols) {
  GroupOp group = lookupGroup(op, symbols);
  if (!group)
    return op->emitOpError() << "C6: no comm.group " << op.getGroupAttr();
  int64_t size = group.getGroupSize();
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case<AllGatherOp>([&](auto start) { return verifyScaledShapes(start, start.getDim(), -1, size); })
      .Case<ReduceScatterOp>([&](auto start) { return verifyScaledShapes(start, -1, start.getDim(), size); })
      .Case<AllToAllOp>([&](auto start) { return verifyAllToAllUse(start, size); })
      .Case<BroadcastOp>([&](auto start) { return verifyPlace(op, "C7", "root", start.getRoot(), size); })
      .Case<ReduceOp>([&](auto start) { return verifyPlace(op, "C8", "root", start.getRoot(), size); })
      .Case<GatherOp>([&](auto start) {
        return failure(failed(verifyPlace(op, "C7", "root", start.getRoot(), size)) ||
                       failed(verifyScaledShapes(start, start.getDim(), -1, size)));
      })
      .Case<ScatterOp>([&](auto start) {
        return failure(failed(verifyPlace(op, "C7", "root", start.getRoot(), size)) ||
                       failed(verifyScaledShapes(start, -1, start.getDim(), size)));
      })
      .Case<PermuteOp>([&](auto start) {
        for (int64_t place : start.getPairs())
          if (failed(verifyPlace(op, "C7", "pairs", place, size)))
            return failure();
        return success();
      })
      .Case<SendOp, RecvOp>([&](auto start) { return verifyPlace(op, "C7", "peer", start.getPeer(), size); })
      .Default([](Operation *) { return success(); });
}
