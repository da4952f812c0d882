//===- CommDialect.cpp - The comm dialect -----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Dialect/Comm/Effects.h"
#include "CommSched/Support/CollectiveVariant.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/InliningUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

#include "CommSched/Dialect/Comm/CommAttrInterfaces.cpp.inc"
#include "CommSched/Dialect/Comm/CommDialect.cpp.inc"
#include "CommSched/Dialect/Comm/CommEnums.cpp.inc"
#include "CommSched/Dialect/Comm/CommOpInterfaces.cpp.inc"

namespace {

/// Every operation may be inlined: groups are symbols of the module, futures are plain values.
struct CommInlinerInterface : public DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
};

} // namespace

void CommDialect::initialize() {
  registerAttributes();
  registerTypes();
  registerOps();
  addInterfaces<CommInlinerInterface>();
}

void CommDialect::registerOps() {
  addOperations<
#define GET_OP_LIST
#include "CommSched/Dialect/Comm/CommOps.cpp.inc"
      >();
}

/// Returns true if `attribute` is an i64 array with one non-negative size per result of `op`.
static bool isBytesHint(Operation *op, Attribute attribute) {
  auto hint = dyn_cast<DenseI64ArrayAttr>(attribute);
  return hint && hint.size() == static_cast<int64_t>(op->getNumResults()) &&
         llvm::none_of(hint.asArrayRef(), [](int64_t bytes) { return bytes < 0; });
}

bool comm::runsOnOneStream(Operation *op) {
  return !isa<RegionBranchOpInterface, CallOpInterface, FunctionOpInterface, SymbolOpInterface, RecordOp, AwaitEventOp>(
             op) &&
         !op->hasTrait<OpTrait::IsTerminator>() && !op->hasTrait<OpTrait::SymbolTable>();
}

static LogicalResult verifyStream(Operation *op, Attribute value) {
  StringRef name = CommDialect::kStreamAttrName;
  if (!runsOnOneStream(op))
    return op->emitError() << "expected '" << name
                           << "' on an operation that one stream runs, got it on a terminator, a symbol, an anchor, "
                              "control flow or a call";
  auto number = dyn_cast<IntegerAttr>(value);
  if (number && number.getType().isSignlessInteger(64) && number.getInt() >= 0 &&
      number.getInt() < CommDialect::kMaxStreams)
    return success();
  return op->emitError() << "expected '" << name << "' to be an i64 from 0 to " << CommDialect::kMaxStreams - 1
                         << ", got " << value;
}

static LogicalResult verifyVariant(Operation *op, Attribute value) {
  StringRef name = CommDialect::kVariantAttrName;
  auto start = dyn_cast<CollectiveOpInterface>(op);
  if (!start || op->hasAttr("one_shot"))
    return op->emitError() << "expected '" << name << "' on the start of a collective that is not a one-shot sum";
  auto text = dyn_cast<StringAttr>(value);
  std::optional<VariantName> variant = text ? VariantName::parse(text.getValue()) : std::nullopt;
  if (!variant)
    return op->emitError() << "expected '" << name << "' to be " << VariantName::expected() << ", got " << value;
  if (variant->means == VariantName::CopyEngine && start.getCollectiveReduction())
    return op->emitError() << "expected '" << name
                           << "' of a reduction not to be \"copy-engine\": copy engines cannot "
                              "reduce";
  return success();
}

/// The rank of a tensor, or of the only tensor of a future; 0 for other types.
static int64_t rankOf(Type type) {
  if (auto future = dyn_cast<FutureType>(type))
    type = future.getTypes().size() == 1 ? future.getTypes().front() : Type();
  auto shaped = dyn_cast_if_present<ShapedType>(type);
  return shaped && shaped.hasRank() ? shaped.getRank() : 0;
}

/// Returns true if `value` is a list of ways to split `op`.
static bool isSplit(Operation *op, Attribute value) {
  auto ways = dyn_cast<ArrayAttr>(value);
  return ways && llvm::all_of(ways, [&](Attribute way) {
           auto dims = dyn_cast<DenseI64ArrayAttr>(way);
           if (!dims || dims.size() != op->getNumOperands() + op->getNumResults())
             return false;
           for (auto [index, dim] : llvm::enumerate(dims.asArrayRef())) {
             bool isOperand = index < op->getNumOperands();
             Type type =
                 isOperand ? op->getOperand(index).getType() : op->getResult(index - op->getNumOperands()).getType();
             if (dim < -1 || dim >= rankOf(type))
               return false;
           }
           return true;
         });
}

LogicalResult CommDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  StringRef name = attribute.getName();
  Attribute value = attribute.getValue();
  auto require = [&](bool condition, StringRef what) -> LogicalResult {
    if (condition)
      return success();
    return op->emitError() << "expected '" << name << "' to be " << what << ", got " << value;
  };
  if (name == kCostAttrName)
    return require(isa<CostAttr>(value), "a #comm.cost attribute");
  if (name == kPinnedAttrName)
    return require(isa<UnitAttr>(value), "a unit attribute");
  if (name == kNoEffectsAttrName)
    return require(isNoEffects(value), "a unit attribute, or an array of names of dialects and operations");
  if (name == kUnitAttrName || name == kAfterUnitAttrName) {
    auto number = dyn_cast<IntegerAttr>(value);
    if (name == kAfterUnitAttrName && !op->hasAttr(kUnitAttrName))
      return op->emitError() << "expected '" << name << "' on an operation with '" << kUnitAttrName << "'";
    return require(number && number.getType().isSignlessInteger(64), "an i64 integer");
  }
  if (name == kStreamAttrName)
    return verifyStream(op, value);
  if (name == kVariantAttrName)
    return verifyVariant(op, value);
  if (name == kBytesHintAttrName)
    return require(isBytesHint(op, value), "an i64 array with one non-negative size per result");
  if (name == kHybridAttrName) {
    if (isa<CollectiveOpInterface, WaitOp>(op))
      return op->emitError() << "expected '" << name << "' on an operation that is not a start or a wait";
    return require(isa<FlatSymbolRefAttr>(value), "the symbol of a comm.group");
  }
  if (name == kSymmetricAttrName) {
    auto marks = dyn_cast<DenseBoolArrayAttr>(value);
    auto start = dyn_cast<CollectiveOpInterface>(op);
    return require(marks && start &&
                       marks.size() == static_cast<int64_t>(
                                           start.getCollectiveInputs().size() +
                                           cast<FutureType>(start.getCollectiveFuture().getType()).getTypes().size()),
                   "an i1 array on a collective, with one entry per input and per value of its future");
  }
  if (name == kSplitAttrName)
    return require(isSplit(op, value), "an array of i64 arrays, each with a dimension, or -1, for each operand and "
                                       "each result");
  if (name == kRowsAttrName) {
    auto rows = dyn_cast<DenseI64ArrayAttr>(value);
    return require(rows && rows.size() == 2 && rows[0] >= 0 && rows[0] < rows[1],
                   "an i64 array of the first row and the larger number of all rows");
  }
  if (name == kSignatureAttrName)
    return require(isa<StringAttr>(value) && isa<FunctionOpInterface>(op), "a string on a function");
  if (name == kNumericsAttrName)
    return require(isa<DictionaryAttr>(value) && isa<FunctionOpInterface>(op), "a dictionary on a function");
  if (name == kDonatedAttrName || name == kReadyAttrName)
    return op->emitError() << "expected '" << name << "' on an argument of a function, got it on an operation";
  return op->emitError() << "'" << name << "' is not an attribute of the comm dialect";
}

LogicalResult CommDialect::verifyRegionArgAttribute(Operation *op, unsigned regionIndex, unsigned argIndex,
                                                    NamedAttribute attribute) {
  StringRef name = attribute.getName();
  auto expect = [&](const Twine &what) -> LogicalResult {
    return op->emitError() << "expected '" << name << "' of argument #" << argIndex << " " << what;
  };
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function || argIndex >= function.getNumArguments())
    return expect("to be on an argument of a function");
  if (name == kDonatedAttrName)
    return isa<UnitAttr>(attribute.getValue()) ? success() : expect("to be a unit attribute");
  if (name != kBytesHintAttrName && name != kReadyAttrName)
    return op->emitError() << "'" << name << "' of argument #" << argIndex
                           << " is not an argument attribute of the comm dialect";
  auto value = dyn_cast<IntegerAttr>(attribute.getValue());
  if (!value || !value.getType().isSignlessInteger(64) || value.getInt() < 0)
    return expect("to be a non-negative i64");
  if (name == kReadyAttrName && !isa<FutureType>(function.getArgumentTypes()[argIndex]))
    return expect("to be on a future");
  return success();
}

LogicalResult CommDialect::verifyRegionResultAttribute(Operation *op, unsigned regionIndex, unsigned resultIndex,
                                                       NamedAttribute attribute) {
  return op->emitError() << "'" << attribute.getName().getValue() << "' of result #" << resultIndex
                         << " is not a result attribute of the comm dialect";
}

//===-----------------------------------------------------------------------------------------===//
// Sizes
//===-----------------------------------------------------------------------------------------===//

std::optional<int64_t> comm::getStaticElements(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped || !shaped.hasStaticShape())
    return std::nullopt;
  int64_t elements = 1;
  bool overflow = false;
  for (int64_t size : shaped.getShape()) {
    if (size == 0)
      return 0;
    overflow |= llvm::MulOverflow(elements, size, elements) != 0;
  }
  if (overflow)
    return std::nullopt;
  return elements;
}

/// Bits of one element; none if the element type has no width.
static std::optional<int64_t> getElementBits(Type element) {
  if (element.isIndex())
    return 64;
  if (element.isIntOrFloat())
    return element.getIntOrFloatBitWidth();
  if (auto complex = dyn_cast<ComplexType>(element))
    // Each half takes whole bytes.
    if (complex.getElementType().isIntOrFloat())
      return 2 * llvm::alignTo(complex.getElementType().getIntOrFloatBitWidth(), 8);
  return std::nullopt;
}

std::optional<int64_t> comm::getStaticBytes(Type type) {
  std::optional<int64_t> elements = getStaticElements(type);
  if (!elements)
    return std::nullopt;
  std::optional<int64_t> elementBits = getElementBits(cast<ShapedType>(type).getElementType());
  int64_t bits;
  if (!elementBits || llvm::MulOverflow(*elements, *elementBits, bits))
    return std::nullopt;
  return bits / 8 + (bits % 8 != 0);
}
