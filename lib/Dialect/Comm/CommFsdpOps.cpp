//===- CommFsdpOps.cpp - Copy-in, copy-out and parameter storage ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

using commsched::comm::detail::addAllocateEffect;
using commsched::comm::detail::addCopyEffects;
using commsched::comm::detail::EffectList;
using commsched::comm::detail::verifySameContainers;

static ShapedType shaped(Value value) { return cast<ShapedType>(value.getType()); }

/// Elements of all values together; none if a size is dynamic or the sum exceeds int64_t.
static std::optional<int64_t> countElements(ValueRange values) {
  int64_t count = 0;
  for (Value value : values) {
    std::optional<int64_t> elements = getStaticElements(value.getType());
    if (!elements || llvm::AddOverflow(count, *elements, count))
      return std::nullopt;
  }
  return count;
}

/// C1 of the splits: no size is negative. Returns the sum of the sizes; fails if it exceeds int64_t.
static FailureOr<int64_t> sumSizes(Operation *op, ArrayRef<int64_t> sizes) {
  int64_t total = 0;
  for (int64_t size : sizes) {
    if (size < 0)
      return op->emitOpError() << "C1: expected non-negative sizes, got " << size;
    if (llvm::AddOverflow(total, size, total))
      return op->emitOpError() << "C1: expected sizes that add up to less than 2^63, got more";
  }
  return total;
}

/// Checks a destination: memrefs require one, and it has the type of the result that it becomes.
static LogicalResult verifyDest(Operation *op, StringRef constraint, Value result, Value dest) {
  if (!dest && isa<MemRefType>(result.getType()))
    return op->emitOpError() << constraint << ": expected a destination for a result on memrefs, got none";
  if (dest && dest.getType() != result.getType())
    return op->emitOpError() << constraint << ": expected a destination of type " << result.getType() << ", got "
                             << dest.getType();
  return success();
}

/// C1 of the packing operations: the value has one dimension.
static LogicalResult verifyFlat(Operation *op, Value value, StringRef name) {
  if (shaped(value).getRank() != 1)
    return op->emitOpError() << "C1: expected a one-dimensional " << name << ", got " << value.getType();
  return success();
}

/// Bytes of an element that a byte view can hold; none if the type is not an integer or float of whole bytes.
static std::optional<int64_t> getWholeBytes(Type element) {
  if (!element.isIntOrFloat() || element.getIntOrFloatBitWidth() % 8 != 0)
    return std::nullopt;
  return element.getIntOrFloatBitWidth() / 8;
}

/// Checks that piece `index` has `elements` elements of the source's type.
static LogicalResult verifyPiece(Operation *op, StringRef constraint, Value source, Value piece, int64_t index,
                                 std::optional<int64_t> elements) {
  if (shaped(piece).getElementType() != shaped(source).getElementType())
    return op->emitOpError() << constraint << ": expected result #" << index << " with the source's element type ("
                             << shaped(source).getElementType() << "), got " << shaped(piece).getElementType();
  std::optional<int64_t> found = getStaticElements(piece.getType());
  if (elements && found && *found != *elements)
    return op->emitOpError() << constraint << ": expected result #" << index << " to have the " << *elements
                             << " elements of its pieces, got " << *found;
  return success();
}

//===-----------------------------------------------------------------------------------------===//
// FsdpAllGatherCopyInOp
//===-----------------------------------------------------------------------------------------===//

/// C6: one type of whole bytes for each input. Returns the bytes of all inputs; none if a size is dynamic or the sum
/// exceeds int64_t.
static FailureOr<std::optional<int64_t>> countBytes(FsdpAllGatherCopyInOp op) {
  if (op.getAs()->size() != op.getInputs().size())
    return op.emitOpError() << "C6: expected one type in 'as' per input (" << op.getInputs().size() << "), got "
                            << op.getAs()->size();
  if (!shaped(op.getSlice()).getElementType().isInteger(8))
    return op.emitOpError() << "C6: expected a slice of 'i8' with 'as', got " << shaped(op.getSlice()).getElementType();
  std::optional<int64_t> total = 0;
  for (auto [input, type] : llvm::zip_equal(op.getInputs(), op.getAs()->getAsValueRange<TypeAttr>())) {
    std::optional<int64_t> width = getWholeBytes(type), elements = getStaticElements(input.getType());
    if (!width)
      return op.emitOpError() << "C6: expected integers or floats of whole bytes in 'as', got " << type;
    int64_t bytes;
    if (!total || !elements || llvm::MulOverflow(*elements, *width, bytes) || llvm::AddOverflow(*total, bytes, *total))
      total = std::nullopt;
  }
  return total;
}

LogicalResult FsdpAllGatherCopyInOp::verify() {
  if (getInputs().empty())
    return emitOpError() << "C1: expected at least one input, got none";
  if (failed(verifyFlat(*this, getSlice(), "slice")) || failed(verifyFlat(*this, getBuffer(), "buffer")))
    return failure();
  if (shaped(getSlice()).getElementType() != shaped(getBuffer()).getElementType())
    return emitOpError() << "C1: expected slice and buffer of one element type, got "
                         << shaped(getSlice()).getElementType() << " and " << shaped(getBuffer()).getElementType();
  int64_t slice = shaped(getSlice()).getDimSize(0);
  std::optional<int64_t> packed;
  if (getAs()) {
    FailureOr<std::optional<int64_t>> bytes = countBytes(*this);
    if (failed(bytes))
      return failure();
    packed = *bytes;
  } else {
    packed = countElements(getInputs());
  }
  if (packed && !ShapedType::isDynamic(slice) && *packed != slice)
    return emitOpError() << "C2: expected a slice of the inputs' " << *packed << (getAs() ? " bytes" : " elements")
                         << ", got " << slice;
  if (failed(verifyDest(*this, "C4", getBuffer(), getDest())))
    return failure();
  return verifySameContainers(*this, "C4", getInputs().getTypes(), getResultTypes());
}

LogicalResult FsdpAllGatherCopyInOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto group = symbols.lookupNearestSymbolFrom<GroupOp>(*this, getGroupAttr());
  if (!group)
    return emitOpError() << "C5: expected " << getGroupAttr() << " to name a comm.group";
  int64_t slice = shaped(getSlice()).getDimSize(0), buffer = shaped(getBuffer()).getDimSize(0), expected;
  if (ShapedType::isDynamic(slice) || ShapedType::isDynamic(buffer))
    return success();
  if (llvm::MulOverflow(slice, group.getGroupSize(), expected) || buffer != expected) {
    InFlightDiagnostic diagnostic = emitOpError();
    diagnostic.attachNote(group.getLoc()) << "the group has " << group.getGroupSize() << " ranks";
    return diagnostic << "C3: expected a buffer of the slice's size (" << slice << ") times the group's size ("
                      << group.getGroupSize() << "), got " << buffer;
  }
  return success();
}

void FsdpAllGatherCopyInOp::getEffects(EffectList &effects) {
  addCopyEffects(getInputsMutable(), getDestMutable(), effects);
  if (!getDest())
    addAllocateEffect(cast<OpResult>(getBuffer()), effects);
}

std::optional<unsigned> FsdpAllGatherCopyInOp::getAliasedOperand(unsigned) {
  if (!getDest())
    return std::nullopt;
  return static_cast<unsigned>(getInputs().size());
}

bool FsdpAllGatherCopyInOp::mutatesOperand(unsigned operand) { return operand >= getInputs().size(); }

//===-----------------------------------------------------------------------------------------===//
// FsdpSplitWithSizesCopyOp
//===-----------------------------------------------------------------------------------------===//

/// C3 for a source of bytes: checks that piece `index` has exactly `bytes` bytes.
static LogicalResult verifyBytes(Operation *op, Value piece, int64_t index, std::optional<int64_t> bytes) {
  std::optional<int64_t> width = getWholeBytes(shaped(piece).getElementType());
  std::optional<int64_t> elements = getStaticElements(piece.getType());
  if (!width)
    return op->emitOpError() << "C3: expected result #" << index << " to have elements of whole bytes, got "
                             << shaped(piece).getElementType();
  if (bytes && elements && (*bytes % *width != 0 || *bytes / *width != *elements))
    return op->emitOpError() << "C3: expected result #" << index << " to have the " << *bytes
                             << " bytes of its pieces, got " << *elements << " elements of " << *width << " bytes";
  return success();
}

LogicalResult FsdpSplitWithSizesCopyOp::verify() {
  if (failed(verifyFlat(*this, getSource(), "source")))
    return failure();
  FailureOr<int64_t> sum = sumSizes(*this, getSizes());
  if (failed(sum))
    return failure();
  int64_t total = *sum;
  int64_t numElements = shaped(getSource()).getDimSize(0);
  bool known = !ShapedType::isDynamic(numElements);
  if (known && (total == 0 ? numElements != 0 : numElements % total != 0))
    return emitOpError() << "C1: expected the source's size to be a multiple of the sum of 'sizes' (" << total
                         << "), got " << numElements;
  int64_t numPieces = getSizes().size();
  int64_t numMembers = getMembers() ? getMembers()->size() : numPieces;
  if (numMembers != static_cast<int64_t>(getNumResults()))
    return emitOpError() << "C2: expected one result per piece (" << numMembers << "), got " << getNumResults();
  llvm::SmallSet<int64_t, 8> seen;
  for (auto [index, piece] : llvm::enumerate(getPieces())) {
    int64_t member = getMembers() ? (*getMembers())[index] : index;
    if (member < 0 || member >= numPieces)
      return emitOpError() << "C2: expected 'members' from 0 to " << numPieces - 1 << ", got " << member;
    if (!seen.insert(member).second)
      return emitOpError() << "C2: piece " << member << " appears twice in 'members'";
    std::optional<int64_t> elements;
    if (known)
      elements = total == 0 ? 0 : numElements / total * getSizes()[member];
    Value dest = index < getDests().size() ? getDests()[index] : Value();
    bool isView = shaped(getSource()).getElementType().isInteger(8) && !shaped(piece).getElementType().isInteger(8);
    LogicalResult fits = isView ? verifyBytes(*this, piece, index, elements)
                                : verifyPiece(*this, "C3", getSource(), piece, index, elements);
    if (failed(fits) || failed(verifyDest(*this, "C4", piece, dest)))
      return failure();
  }
  if (!getDests().empty() && getDests().size() != getNumResults())
    return emitOpError() << "C4: expected one destination per result (" << getNumResults() << "), got "
                         << getDests().size();
  return verifySameContainers(*this, "C4", getSource().getType(), getResultTypes());
}

void FsdpSplitWithSizesCopyOp::getEffects(EffectList &effects) {
  addCopyEffects(getSourceMutable(), getDestsMutable(), effects);
  if (getDests().empty())
    for (OpResult piece : getOperation()->getResults())
      addAllocateEffect(piece, effects);
}

std::optional<unsigned> FsdpSplitWithSizesCopyOp::getAliasedOperand(unsigned result) {
  if (getDests().empty())
    return std::nullopt;
  return 1 + result;
}

bool FsdpSplitWithSizesCopyOp::mutatesOperand(unsigned operand) { return operand > 0; }

//===-----------------------------------------------------------------------------------------===//
// FsdpSplitWithSizesOp
//===-----------------------------------------------------------------------------------------===//

LogicalResult FsdpSplitWithSizesOp::verify() {
  if (failed(verifyFlat(*this, getSource(), "source")))
    return failure();
  FailureOr<int64_t> total = sumSizes(*this, getSizes());
  if (failed(total))
    return failure();
  int64_t numElements = shaped(getSource()).getDimSize(0);
  if (!ShapedType::isDynamic(numElements) && *total != numElements)
    return emitOpError() << "C1: expected sizes that add up to the source's " << numElements << " elements, got "
                         << *total;
  if (getSizes().size() != getNumResults())
    return emitOpError() << "C2: expected one result per size (" << getSizes().size() << "), got " << getNumResults();
  for (auto [index, piece] : llvm::enumerate(getPieces()))
    if (failed(verifyPiece(*this, "C2", getSource(), piece, index, getSizes()[index])))
      return failure();
  return verifySameContainers(*this, "C2", getSource().getType(), getResultTypes());
}

void FsdpSplitWithSizesOp::getEffects(EffectList &) {}

std::optional<unsigned> FsdpSplitWithSizesOp::getAliasedOperand(unsigned) { return 0; }

bool FsdpSplitWithSizesOp::mutatesOperand(unsigned) { return false; }

//===-----------------------------------------------------------------------------------------===//
// FsdpChunkCatOp
//===-----------------------------------------------------------------------------------------===//

/// Elements of all inputs after padding dimension 0 to a multiple of `chunks`; none if a size is dynamic or the sum
/// exceeds int64_t.
static std::optional<int64_t> countPadded(ValueRange inputs, int64_t chunks) {
  int64_t total = 0;
  for (Value input : inputs) {
    std::optional<int64_t> elements = getStaticElements(input.getType());
    if (!elements)
      return std::nullopt;
    int64_t rows = shaped(input).getRank() == 0 ? 1 : shaped(input).getDimSize(0);
    int64_t rowElements = rows == 0 ? 0 : *elements / rows, paddedRows, padded;
    if (llvm::MulOverflow<int64_t>(rows / chunks + (rows % chunks != 0), chunks, paddedRows) ||
        llvm::MulOverflow(paddedRows, rowElements, padded) || llvm::AddOverflow(total, padded, total))
      return std::nullopt;
  }
  return total;
}

LogicalResult FsdpChunkCatOp::verify() {
  if (getInputs().empty() || static_cast<int64_t>(getChunks()) <= 0)
    return emitOpError() << "C1: expected at least one input and at least one chunk, got " << getInputs().size()
                         << " inputs and " << static_cast<int64_t>(getChunks()) << " chunks";
  if (failed(verifyFlat(*this, getResult(), "result")))
    return failure();
  std::optional<int64_t> padded = countPadded(getInputs(), getChunks());
  int64_t size = shaped(getResult()).getDimSize(0);
  if (padded && !ShapedType::isDynamic(size) && *padded != size)
    return emitOpError() << "C2: expected a result of the padded inputs' " << *padded << " elements, got " << size;
  if (failed(verifyDest(*this, "C3", getResult(), getDest())))
    return failure();
  return verifySameContainers(*this, "C3", getInputs().getTypes(), getResult().getType());
}

void FsdpChunkCatOp::getEffects(EffectList &effects) {
  addCopyEffects(getInputsMutable(), getDestMutable(), effects);
  if (!getDest())
    addAllocateEffect(cast<OpResult>(getResult()), effects);
}

std::optional<unsigned> FsdpChunkCatOp::getAliasedOperand(unsigned) {
  if (!getDest())
    return std::nullopt;
  return static_cast<unsigned>(getInputs().size());
}

bool FsdpChunkCatOp::mutatesOperand(unsigned operand) { return operand >= getInputs().size(); }

//===-----------------------------------------------------------------------------------------===//
// FsdpCopyOp, ResizeStorageOp
//===-----------------------------------------------------------------------------------------===//

LogicalResult FsdpCopyOp::verify() {
  if (shaped(getSource()).getElementType() != shaped(getDest()).getElementType() ||
      failed(verifyCompatibleShape(getSource().getType(), getDest().getType())))
    return emitOpError() << "C1: expected a source with the shape and element type of the destination ("
                         << getDest().getType() << "), got " << getSource().getType();
  return verifySameContainers(*this, "C1", getSource().getType(), getDest().getType());
}

void FsdpCopyOp::getEffects(EffectList &effects) {
  addCopyEffects(getSourceMutable(), getDestMutable(), effects);
  if (isa<TensorType>(getDest().getType()))
    effects.emplace_back(MemoryEffects::Write::get(), ParameterStorageResource::get());
}

std::optional<unsigned> FsdpCopyOp::getAliasedOperand(unsigned) { return std::nullopt; }

bool FsdpCopyOp::mutatesOperand(unsigned operand) { return operand == 1; }

LogicalResult ResizeStorageOp::verify() {
  if (static_cast<int64_t>(getBytes()) < 0)
    return emitOpError() << "C1: expected a non-negative size, got " << static_cast<int64_t>(getBytes());
  return success();
}

void ResizeStorageOp::getEffects(EffectList &effects) {
  addCopyEffects({}, getValueMutable(), effects);
  effects.emplace_back(MemoryEffects::Write::get(), ParameterStorageResource::get());
}

std::optional<unsigned> ResizeStorageOp::getAliasedOperand(unsigned) { return std::nullopt; }

bool ResizeStorageOp::mutatesOperand(unsigned) { return true; }
