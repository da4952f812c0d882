//===- CommFsdpOps.cpp - Copy-in, copy-out and parameter storage ------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

using commsched::comm::detail::EffectList;

static ShapedType shaped(Value value) { return cast<ShapedType>(value.getType()); }

/// Elements of all values together; none where a size is dynamic.
static std::optional<int64_t> countElements(ValueRange values) {
  int64_t count = 0;
  for (Value value : values) {
    if (!shaped(value).hasStaticShape())
      return std::nullopt;
    count += shaped(value).getNumElements();
  }
  return count;
}

/// On memrefs: reads every operand of `sources`, writes every operand of `dests`.
static void addCopyEffects(MutableArrayRef<OpOperand> sources, MutableArrayRef<OpOperand> dests, EffectList &effects) {
  for (OpOperand &source : sources)
    if (isa<MemRefType>(source.get().getType()))
      effects.emplace_back(MemoryEffects::Read::get(), &source);
  for (OpOperand &dest : dests)
    if (isa<MemRefType>(dest.get().getType()))
      effects.emplace_back(MemoryEffects::Write::get(), &dest);
}

/// A destination on memrefs is required and has the type of the result that it becomes.
static LogicalResult verifyDest(Operation *op, StringRef constraint, Value result, Value dest) {
  if (!dest && isa<MemRefType>(result.getType()))
    return op->emitOpError() << constraint << ": on memrefs a destination is needed";
  if (dest && dest.getType() != result.getType())
    return op->emitOpError() << constraint << ": a destination of type " << dest.getType() << " for a result of type "
                             << result.getType();
  return success();
}

/// C1 of the packing operations: flat.
static LogicalResult verifyFlat(Operation *op, Value value, StringRef name) {
  if (shaped(value).getRank() != 1)
    return op->emitOpError() << "C1: the " << name << " must be one-dimensional, not " << value.getType();
  return success();
}

/// Checks that piece `index` has `elements` elements of the source's type.
static LogicalResult verifyPiece(Operation *op, StringRef constraint, Value source, Value piece, int64_t index,
                                 std::optional<int64_t> elements) {
  if (shaped(piece).getElementType() != shaped(source).getElementType())
    return op->emitOpError() << constraint << ": result #" << index << " of " << shaped(piece).getElementType()
                             << " from a source of " << shaped(source).getElementType();
  if (elements && shaped(piece).hasStaticShape() && shaped(piece).getNumElements() != *elements)
    return op->emitOpError() << constraint << ": result #" << index << " has " << shaped(piece).getNumElements()
                             << " elements, its pieces have " << *elements;
  return success();
}

//===-----------------------------------------------------------------------------------------===//
// FsdpAllGatherCopyInOp
//===-----------------------------------------------------------------------------------------===//

LogicalResult FsdpAllGatherCopyInOp::verify() {
  if (getInputs().empty())
    return emitOpError() << "C1: nothing to pack";
  if (failed(verifyFlat(*this, getSlice(), "slice")) || failed(verifyFlat(*this, getBuffer(), "buffer")))
    return failure();
  if (shaped(getSlice()).getElementType() != shaped(getBuffer()).getElementType())
    return emitOpError() << "C1: slice and buffer have different element types";
  int64_t slice = shaped(getSlice()).getDimSize(0);
  if (std::optional<int64_t> packed = countElements(getInputs());
      packed && !ShapedType::isDynamic(slice) && *packed != slice)
    return emitOpError() << "C2: the inputs have " << *packed << " elements, the slice " << slice;
  return verifyDest(*this, "C4", getBuffer(), getDest());
}

LogicalResult FsdpAllGatherCopyInOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return comm::detail::verifyGroupUse(getOperation(), symbols);
}

void FsdpAllGatherCopyInOp::getEffects(EffectList &effects) {
  addCopyEffects(getInputsMutable(), getDestMutable(), effects);
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

LogicalResult FsdpSplitWithSizesCopyOp::verify() {
  if (failed(verifyFlat(*this, getSource(), "source")))
    return failure();
  int64_t total = 0;
  for (int64_t size : getSizes()) {
    if (size < 0)
      return emitOpError() << "C1: a negative size";
    total += size;
  }
  int64_t numElements = shaped(getSource()).getDimSize(0);
  bool known = !ShapedType::isDynamic(numElements);
  if (known && (total == 0 ? numElements != 0 : numElements % total != 0))
    return emitOpError() << "C1: a source of " << numElements << " elements is no multiple of pieces of " << total;
  int64_t numPieces = getSizes().size();
  int64_t numMembers = getMembers() ? getMembers()->size() : numPieces;
  if (numMembers != static_cast<int64_t>(getNumResults()))
    return emitOpError() << "C2: " << getNumResults() << " results for " << numMembers << " pieces";
  llvm::SmallSet<int64_t, 8> seen;
  for (auto [index, piece] : llvm::enumerate(getPieces())) {
    int64_t member = getMembers() ? (*getMembers())[index] : index;
    if (member < 0 || member >= numPieces || !seen.insert(member).second)
      return emitOpError() << "C2: piece " << member << " does not exist or is listed twice";
    std::optional<int64_t> elements;
    if (known)
      elements = total == 0 ? 0 : numElements / total * getSizes()[member];
    Value dest = getDests().empty() ? Value() : index < getDests().size() ? getDests()[index] : Value();
    if (failed(verifyPiece(*this, "C3", getSource(), piece, index, elements)) ||
        failed(verifyDest(*this, "C4", piece, dest)))
      return failure();
  }
  if (!getDests().empty() && getDests().size() != getNumResults())
    return emitOpError() << "C4: " << getDests().size() << " destinations for " << getNumResults() << " results";
  return success();
}

void FsdpSplitWithSizesCopyOp::getEffects(EffectList &effects) {
  addCopyEffects(getSourceMutable(), getDestsMutable(), effects);
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
  int64_t total = 0;
  for (int64_t size : getSizes()) {
    if (size < 0)
      return emitOpError() << "C1: a negative size";
    total += size;
  }
  int64_t numElements = shaped(getSource()).getDimSize(0);
  if (!ShapedType::isDynamic(numElements) && total != numElements)
    return emitOpError() << "C1: sizes add up to " << total << ", the source has " << numElements << " elements";
  if (getSizes().size() != getNumResults())
    return emitOpError() << "C2: " << getNumResults() << " results for " << getSizes().size() << " sizes";
  for (auto [index, piece] : llvm::enumerate(getPieces()))
    if (failed(verifyPiece(*this, "C2", getSource(), piece, index, getSizes()[index])))
      return failure();
  return success();
}

void FsdpSplitWithSizesOp::getEffects(EffectList &) {}

std::optional<unsigned> FsdpSplitWithSizesOp::getAliasedOperand(unsigned) { return 0; }

bool FsdpSplitWithSizesOp::mutatesOperand(unsigned) { return false; }

//===-----------------------------------------------------------------------------------------===//
// FsdpChunkCatOp
//===-----------------------------------------------------------------------------------------===//

LogicalResult FsdpChunkCatOp::verify() {
  if (getInputs().empty() || static_cast<int64_t>(getChunks()) <= 0)
    return emitOpError() << "C1: needs at least one input and at least one chunk";
  if (failed(verifyFlat(*this, getResult(), "result")))
    return failure();
  int64_t padded = 0;
  bool known = shaped(getResult()).hasStaticShape();
  for (Value input : getInputs()) {
    ShapedType type = shaped(input);
    if (!type.hasStaticShape()) {
      known = false;
      continue;
    }
    int64_t rows = type.getRank() == 0 ? 1 : type.getDimSize(0);
    int64_t rowElements = rows == 0 ? 0 : type.getNumElements() / rows;
    padded += llvm::alignTo(rows, getChunks()) * rowElements;
  }
  if (known && padded != shaped(getResult()).getDimSize(0))
    return emitOpError() << "C2: the padded inputs have " << padded << " elements, the result "
                         << shaped(getResult()).getDimSize(0);
  return verifyDest(*this, "C3", getResult(), getDest());
}

void FsdpChunkCatOp::getEffects(EffectList &effects) { addCopyEffects(getInputsMutable(), getDestMutable(), effects); }

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
    return emitOpError() << "C1: cannot copy " << getSource().getType() << " into " << getDest().getType();
  return success();
}

void FsdpCopyOp::getEffects(EffectList &effects) {
  addCopyEffects(getSourceMutable(), getDestMutable(), effects);
  effects.emplace_back(MemoryEffects::Write::get(), ParameterStorageResource::get());
}

std::optional<unsigned> FsdpCopyOp::getAliasedOperand(unsigned) { return std::nullopt; }

bool FsdpCopyOp::mutatesOperand(unsigned operand) { return operand == 1; }

LogicalResult ResizeStorageOp::verify() {
  if (static_cast<int64_t>(getBytes()) < 0)
    return emitOpError() << "C1: a negative size";
  return success();
}

void ResizeStorageOp::getEffects(EffectList &effects) {
  addCopyEffects({}, getValueMutable(), effects);
  effects.emplace_back(MemoryEffects::Write::get(), ParameterStorageResource::get());
}

std::optional<unsigned> ResizeStorageOp::getAliasedOperand(unsigned) { return std::nullopt; }

bool ResizeStorageOp::mutatesOperand(unsigned) { return true; }
