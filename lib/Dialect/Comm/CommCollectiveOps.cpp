//===- CommCollectiveOps.cpp - Verifiers of the collectives -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The numbered constraints of CommCollectiveOps.td. Constraints on the group's size are checked when symbols are
// resolved (verifyGroupUse). The operations' own verifiers check all other constraints.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringExtras.h"
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
    return op->emitOpError() << constraint << ": expected only tensors or only memrefs, got both";
  return success();
}

/// C5: a collective on memrefs has destinations, and destinations have the types of the future's values.
static LogicalResult verifyDests(CollectiveOpInterface op) {
  ArrayRef<Type> values = valueTypes(op);
  OperandRange dests = op.getCollectiveDests();
  if (!dests.empty() && dests.size() != values.size())
    return op->emitOpError() << "C1: expected one destination per value of the future (" << values.size() << "), got "
                             << dests.size();
  for (auto [index, dest] : llvm::enumerate(dests))
    if (dest.getType() != values[index])
      return op->emitOpError() << "C5: expected destination #" << index << " of type " << values[index] << ", got "
                               << dest.getType();
  if (dests.empty() && llvm::any_of(values, llvm::IsaPred<MemRefType>))
    return op->emitOpError() << "C5: expected destinations for a collective on memrefs, got none";
  return comm::detail::verifySameContainers(op, "C5", op.getCollectiveInputs().getTypes(), values);
}

/// C1, C4 and C5: one value per input, equal element types, and destinations.
static LogicalResult verifyMembers(CollectiveOpInterface op) {
  ArrayRef<Type> values = valueTypes(op);
  OperandRange inputs = op.getCollectiveInputs();
  if (inputs.empty())
    return op->emitOpError() << "C1: expected at least one input, got none";
  if (inputs.size() != values.size())
    return op->emitOpError() << "C1: expected one input per value of the future (" << values.size() << "), got "
                             << inputs.size();
  for (auto [index, input, value] : llvm::enumerate(inputs, values))
    if (elementType(input.getType()) != elementType(value))
      return op->emitOpError() << "C4: expected input #" << index << " with the element type of its value ("
                               << elementType(value) << "), got " << elementType(input.getType());
  return verifyDests(op);
}

/// C2: `dim` is a dimension of every input.
static LogicalResult verifyDim(CollectiveOpInterface op, int64_t dim, StringRef name = "dim") {
  for (Value input : op.getCollectiveInputs()) {
    int64_t rank = cast<ShapedType>(input.getType()).getRank();
    if (dim < 0 || dim >= rank)
      return op->emitOpError() << "C2: '" << name << "' (" << dim << ") is out of range for " << input.getType();
  }
  return success();
}

/// C3: each value has the shape of its input. A dynamic size matches any size.
static LogicalResult verifySameShapes(CollectiveOpInterface op) {
  for (auto [index, input, value] : llvm::enumerate(op.getCollectiveInputs(), valueTypes(op)))
    if (failed(verifyCompatibleShape(input.getType(), value)))
      return op->emitOpError() << "C3: expected value #" << index << " to have the shape of its input, "
                               << input.getType() << ", got " << value;
  return success();
}

/// Returns true if the reduction combines elements of this type.
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

/// C7 of reductions: `scale` is present exactly for scaled_sum, and the reduction combines the element types.
static LogicalResult verifyReduction(CollectiveOpInterface op, ReductionKind kind, bool hasScale) {
  if (hasScale != (kind == ReductionKind::scaled_sum))
    return op->emitOpError() << "C7: expected " << (hasScale ? "no 'scale' with " : "'scale' with ")
                             << stringifyReductionKind(kind) << ", got " << (hasScale ? "one" : "none");
  for (Value input : op.getCollectiveInputs())
    if (!canReduce(kind, elementType(input.getType())))
      return op->emitOpError() << "C7: expected an element type that " << stringifyReductionKind(kind)
                               << " combines, got " << elementType(input.getType());
  return success();
}

//===-----------------------------------------------------------------------------------------===//
// Verifiers of one operation
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
    return emitOpError() << "C8: expected sum with 'one_shot', got " << stringifyReductionKind(getReduction());
  if (getOneShot())
    for (auto [index, dest] : llvm::enumerate(getDests()))
      if (llvm::is_contained(getInputs(), dest))
        return emitOpError() << "C9: expected destinations other than the inputs with 'one_shot', got an input as "
                                "destination #"
                             << index << ", which other ranks may still read";
  return success();
}

/// C7 and C8 of one list of splits: one operand per dynamic entry, and no negative entry. If all entries are constants,
/// their sum is the size of the dimension.
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
      return op.emitOpError() << "C7: expected non-negative " << which << " splits, got " << split;
    if (llvm::AddOverflow(sum, split, sum))
      return op.emitOpError() << "C8: expected " << which << " splits that add up to less than 2^63, got more";
  }
  if (places > 0)
    return success();
  for (Type type : types) {
    int64_t size = cast<ShapedType>(type).getDimSize(op.getSplitDim());
    if (!ShapedType::isDynamic(size) && size != sum)
      return op.emitOpError() << "C8: expected " << which << " splits that add up to the dimension's size (" << size
                              << "), got " << sum;
  }
  return success();
}

/// C3 of an exchange with splits: an input and its value differ at most in the dimension that is split.
static LogicalResult verifyOtherDims(AllToAllOp op) {
  for (auto [index, input, value] : llvm::enumerate(op.getInputs(), valueTypes(op))) {
    SmallVector<int64_t> expected(cast<ShapedType>(input.getType()).getShape());
    expected[op.getSplitDim()] = ShapedType::kDynamic;
    if (failed(verifyCompatibleShape(expected, cast<ShapedType>(value).getShape())))
      return op.emitOpError() << "C3: expected value #" << index << " to differ from its input, " << input.getType()
                              << ", in dimension " << op.getSplitDim() << " only, got " << value;
  }
  return success();
}

LogicalResult AllToAllOp::verify() {
  if (failed(verifyMembers(*this)) || failed(verifyDim(*this, getSplitDim(), "split")) ||
      failed(verifyDim(*this, getConcatDim(), "concat")))
    return failure();
  if (hasSplits() != getStaticOutputSplits().has_value())
    return emitOpError() << "C7: expected input and output splits, got only " << (hasSplits() ? "input" : "output")
                         << " splits";
  if (hasSplits() && getSplitDim() != getConcatDim())
    return emitOpError() << "C7: expected equal split and concat dimensions for an exchange with splits, got "
                         << getSplitDim() << " and " << getConcatDim();
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
    return emitOpError() << "C7: expected an even number of places in 'pairs', got " << getPairs().size();
  llvm::SmallSet<int64_t, 8> sources, targets;
  for (auto [index, place] : llvm::enumerate(getPairs()))
    if (!(index % 2 ? targets : sources).insert(place).second)
      return emitOpError() << "C8: place " << place << " appears twice as a " << (index % 2 ? "target" : "source");
  return success();
}

/// C7 of sends and receives: the tag is not negative.
static LogicalResult verifyTag(Operation *op, int64_t tag) {
  if (tag < 0)
    return op->emitOpError() << "C7: expected a non-negative 'tag', got " << tag;
  return success();
}

LogicalResult SendOp::verify() {
  if (!getDests().empty() || !valueTypes(*this).empty())
    return emitOpError() << "C1: expected no destinations and an empty future, got " << getDests().size()
                         << " destinations and " << valueTypes(*this).size() << " values";
  if (failed(verifyTag(*this, getTag())))
    return failure();
  return comm::detail::verifySameContainers(*this, "C5", getInputs().getTypes(), {});
}

LogicalResult RecvOp::verify() {
  if (!getInputs().empty() || valueTypes(*this).empty())
    return emitOpError() << "C1: expected no inputs and at least one value in the future, got " << getInputs().size()
                         << " inputs and " << valueTypes(*this).size() << " values";
  return failure(failed(verifyTag(*this, getTag())) || failed(verifyDests(*this)));
}

LogicalResult BarrierOp::verify() {
  if (!getInputs().empty() || !getDests().empty() || !valueTypes(*this).empty())
    return emitOpError() << "C1: expected no inputs, no destinations and an empty future, got " << getInputs().size()
                         << " inputs, " << getDests().size() << " destinations and " << valueTypes(*this).size()
                         << " values";
  return success();
}

//===-----------------------------------------------------------------------------------------===//
// Constraints on the group
//===-----------------------------------------------------------------------------------------===//

/// Emits an error at `op` with a note that points at the group.
static InFlightDiagnostic emitGroupError(Operation *op, GroupOp group) {
  InFlightDiagnostic diagnostic = op->emitOpError();
  diagnostic.attachNote(group.getLoc()) << "the group has " << group.getGroupSize() << " ranks";
  return diagnostic;
}

/// Sizes of a shape, separated by "x"; "?" stands for a dynamic size.
static std::string formatShape(ArrayRef<int64_t> shape) {
  return llvm::join(
      llvm::map_range(
          shape, [](int64_t size) { return ShapedType::isDynamic(size) ? std::string("?") : std::to_string(size); }),
      "x");
}

/// C3: each value has the shape of its input, with dimension `grow` multiplied and dimension `shrink` divided by the
/// group's size. -1 stands for no dimension.
static LogicalResult verifyScaledShapes(CollectiveOpInterface op, int64_t grow, int64_t shrink, GroupOp group) {
  int64_t size = group.getGroupSize();
  for (auto [inputValue, valueType] : llvm::zip(op.getCollectiveInputs(), valueTypes(op))) {
    auto input = cast<ShapedType>(inputValue.getType()), value = cast<ShapedType>(valueType);
    SmallVector<int64_t> expected(input.getShape());
    if (shrink >= 0 && !ShapedType::isDynamic(expected[shrink])) {
      if (expected[shrink] % size != 0)
        return emitGroupError(op, group) << "C3: expected dimension " << shrink << " of " << input
                                         << " to be a multiple of the group's size (" << size << "), got "
                                         << expected[shrink];
      expected[shrink] /= size;
    }
    if (grow >= 0 && !ShapedType::isDynamic(expected[grow]) && llvm::MulOverflow(expected[grow], size, expected[grow]))
      return emitGroupError(op, group) << "C3: expected dimension " << grow << " of " << input
                                       << ", times the group's size (" << size << "), to be less than 2^63, got more";
    if (failed(verifyCompatibleShape(expected, value.getShape())))
      return emitGroupError(op, group) << "C3: expected a value of shape " << formatShape(expected) << " from " << input
                                       << " over " << size << " ranks, got " << value;
  }
  return success();
}

/// Checks that `place` is at least 0 and less than the group's size.
static LogicalResult verifyPlace(Operation *op, StringRef constraint, StringRef name, int64_t place, GroupOp group) {
  if (place < 0 || place >= group.getGroupSize())
    return emitGroupError(op, group) << constraint << ": expected '" << name << "' from 0 to "
                                     << group.getGroupSize() - 1 << ", got " << place;
  return success();
}

/// C3 without splits, C7 with splits.
static LogicalResult verifyAllToAllUse(AllToAllOp op, GroupOp group) {
  if (!op.hasSplits())
    return verifyScaledShapes(op, op.getConcatDim(), op.getSplitDim(), group);
  int64_t numInputs = op.getStaticInputSplits()->size(), numOutputs = op.getStaticOutputSplits()->size();
  if (numInputs != group.getGroupSize() || numOutputs != group.getGroupSize())
    return emitGroupError(op, group) << "C7: expected one split per rank of the group (" << group.getGroupSize()
                                     << "), got " << numInputs << " input splits and " << numOutputs
                                     << " output splits";
  return success();
}

LogicalResult comm::detail::verifyGroupUse(CollectiveOpInterface op, SymbolTableCollection &symbols) {
  GroupOp group = lookupGroup(op, symbols);
  if (!group)
    return op->emitOpError() << "C6: expected " << op.getGroupAttr() << " to name a comm.group";
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case<AllGatherOp>([&](auto start) { return verifyScaledShapes(start, start.getDim(), -1, group); })
      .Case<ReduceScatterOp>([&](auto start) { return verifyScaledShapes(start, -1, start.getDim(), group); })
      .Case<AllToAllOp>([&](auto start) { return verifyAllToAllUse(start, group); })
      .Case<BroadcastOp>([&](auto start) { return verifyPlace(op, "C7", "root", start.getRoot(), group); })
      .Case<ReduceOp>([&](auto start) { return verifyPlace(op, "C8", "root", start.getRoot(), group); })
      .Case<GatherOp>([&](auto start) {
        return failure(failed(verifyPlace(op, "C7", "root", start.getRoot(), group)) ||
                       failed(verifyScaledShapes(start, start.getDim(), -1, group)));
      })
      .Case<ScatterOp>([&](auto start) {
        return failure(failed(verifyPlace(op, "C7", "root", start.getRoot(), group)) ||
                       failed(verifyScaledShapes(start, -1, start.getDim(), group)));
      })
      .Case<PermuteOp>([&](auto start) {
        for (int64_t place : start.getPairs())
          if (failed(verifyPlace(op, "C7", "pairs", place, group)))
            return failure();
        return success();
      })
      .Case<SendOp, RecvOp>([&](auto start) { return verifyPlace(op, "C7", "peer", start.getPeer(), group); })
      .Default([](Operation *) { return success(); });
}
