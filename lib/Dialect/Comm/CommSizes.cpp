//===- CommSizes.cpp - Bytes of values, from types and hints ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A dynamic size is known if there is a hint on the value itself, or on the value from which a view, a cast or a
// collective makes it. An unknown size is std::nullopt, so that no caller mistakes it for zero bytes.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommSizes.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Maximum number of operations between a value and the hint that gives its size. It bounds the cost of one query.
static constexpr unsigned kMaxSteps = 64;

static std::optional<int64_t> findBytes(Value value, unsigned steps);

bool comm::isCastName(StringRef name) {
  return llvm::StringSwitch<bool>(name)
      .Cases({"prims.convert_element_type.default", "aten._to_copy.default", "aten.to.dtype", "cast"}, true)
      .Default(false);
}

/// The entry of an operation's `comm.bytes_hint` for a result; none without a hint.
static std::optional<int64_t> getHint(OpResult result) {
  auto hint = result.getOwner()->getAttrOfType<DenseI64ArrayAttr>(CommDialect::kBytesHintAttrName);
  if (!hint || result.getResultNumber() >= hint.size())
    return std::nullopt;
  return hint[result.getResultNumber()];
}

/// A function's `comm.bytes_hint` for an argument; none without a hint.
static std::optional<int64_t> getHint(BlockArgument argument) {
  auto function = dyn_cast_if_present<FunctionOpInterface>(argument.getOwner()->getParentOp());
  if (!function || !argument.getOwner()->isEntryBlock())
    return std::nullopt;
  auto hint = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(), CommDialect::kBytesHintAttrName);
  return hint ? std::optional<int64_t>(hint.getInt()) : std::nullopt;
}

/// Width of an element in bits; 0 if the element type has no width.
static int64_t widthOf(Type type) {
  Type element = cast<ShapedType>(type).getElementType();
  return element.isIntOrFloat() ? element.getIntOrFloatBitWidth() : element.isIndex() ? 64 : 0;
}

/// bytes x numerator / denominator, rounded down; none if `bytes` is none or the product exceeds int64_t.
static std::optional<int64_t> scale(std::optional<int64_t> bytes, int64_t numerator, int64_t denominator) {
  int64_t product;
  if (!bytes || denominator <= 0 || llvm::MulOverflow(*bytes, numerator, product))
    return std::nullopt;
  return product / denominator;
}

/// Bytes of value `index` of a start's future.
static std::optional<int64_t> findFutureBytes(CollectiveOpInterface start, unsigned index, unsigned steps) {
  auto future = cast<OpResult>(start.getCollectiveFuture());
  if (std::optional<int64_t> bytes = getStaticBytes(cast<FutureType>(future.getType()).getTypes()[index]))
    return bytes;
  if (std::optional<int64_t> hint = getHint(future)) // The hint counts all values together: the first value gets it.
    return index == 0 ? *hint : 0;
  if (!start.getCollectiveDests().empty())
    return findBytes(start.getCollectiveDests()[index], steps);
  if (index >= start.getCollectiveInputs().size())
    return std::nullopt;
  std::optional<int64_t> input = findBytes(start.getCollectiveInputs()[index], steps);
  if (!input)
    return std::nullopt;
  switch (start.getCollectiveKind()) {
  case CollectiveKind::AllGather:
  case CollectiveKind::Gather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::Scatter: {
    auto group = SymbolTable::lookupNearestSymbolFrom<GroupOp>(start, start.getGroupAttr());
    if (!group)
      return std::nullopt;
    bool grows =
        start.getCollectiveKind() == CollectiveKind::AllGather || start.getCollectiveKind() == CollectiveKind::Gather;
    return scale(input, grows ? group.getGroupSize() : 1, grows ? 1 : group.getGroupSize());
  }
  default: // The value has the bytes of the input. For an exchange with splits this is an estimate.
    return input;
  }
}

/// The operand that has as many elements as the result; null if no such operand is known.
static Value findEqual(OpResult result) {
  Operation *op = result.getOwner();
  if (auto storage = dyn_cast<StorageOpInterface>(op))
    if (std::optional<unsigned> operand = storage.getAliasedOperand(result.getResultNumber()))
      return op->getOperand(*operand);
  if (auto compute = dyn_cast<ComputeOp>(op))
    return isCastName(compute.getName()) && op->getNumOperands() == 1 ? op->getOperand(0) : Value();
  if (auto style = dyn_cast<DestinationStyleOpInterface>(op))
    return style.getTiedOpOperand(result)->get();
  if (llvm::StringSwitch<bool>(op->getName().getStringRef())
          .Cases({"tensor.cast", "tensor.collapse_shape", "tensor.expand_shape", "tensor.reshape", "tensor.bitcast",
                  "memref.cast", "memref.collapse_shape", "memref.expand_shape", "memref.memory_space_cast",
                  "bufferization.to_tensor", "bufferization.to_buffer"},
                 true)
          .Default(false))
    return op->getOperand(0);
  if (op->hasTrait<OpTrait::Elementwise>())
    for (Value operand : op->getOperands())
      if (isa<ShapedType>(operand.getType()))
        return operand;
  return {};
}

static std::optional<int64_t> findBytes(Value value, unsigned steps) {
  if (!isa<TensorType, BaseMemRefType>(value.getType()))
    return std::nullopt;
  if (std::optional<int64_t> bytes = getStaticBytes(value.getType()))
    return bytes;
  if (auto argument = dyn_cast<BlockArgument>(value))
    return getHint(argument);
  auto result = cast<OpResult>(value);
  if (std::optional<int64_t> hint = getHint(result))
    return hint;
  if (steps == 0)
    return std::nullopt;
  if (auto wait = dyn_cast<WaitOp>(result.getOwner())) {
    auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>();
    return start ? findFutureBytes(start, result.getResultNumber(), steps - 1) : std::nullopt;
  }
  Value equal = findEqual(result);
  if (!equal || !isa<ShapedType>(equal.getType()))
    return std::nullopt;
  // A view has the operand's bytes, whatever the width of its elements.
  auto storage = dyn_cast<StorageOpInterface>(result.getOwner());
  bool isView = storage && storage.getAliasedOperand(result.getResultNumber());
  return isView ? findBytes(equal, steps - 1)
                : scale(findBytes(equal, steps - 1), widthOf(value.getType()), widthOf(equal.getType()));
}

std::optional<int64_t> comm::getKnownBytes(Value value) { return findBytes(value, kMaxSteps); }

std::optional<int64_t> comm::getKnownFutureBytes(CollectiveOpInterface start, unsigned index) {
  return findFutureBytes(start, index, kMaxSteps);
}

/// The sum of the bytes that determine a collective's cost, and whether all of these sizes are known.
static std::pair<int64_t, bool> addUp(CollectiveOpInterface collective) {
  std::pair<int64_t, bool> sum(0, true);
  auto add = [&](std::optional<int64_t> bytes) {
    if (llvm::AddOverflow(sum.first, bytes.value_or(0), sum.first))
      sum.first = std::numeric_limits<int64_t>::max();
    sum.second &= bytes.has_value();
  };
  bool byResult = collective.getCollectiveKind() == CollectiveKind::AllGather ||
                  collective.getCollectiveKind() == CollectiveKind::Gather ||
                  collective.getCollectiveKind() == CollectiveKind::Recv;
  if (!byResult) {
    for (Value input : collective.getCollectiveInputs())
      add(getKnownBytes(input));
    return sum;
  }
  auto future = cast<OpResult>(collective.getCollectiveFuture());
  ArrayRef<Type> types = cast<FutureType>(future.getType()).getTypes();
  // The hint of a start counts all values of its future together.
  if (!llvm::all_of(types, [](Type type) { return getStaticBytes(type).has_value(); }))
    if (std::optional<int64_t> hint = getHint(future))
      return {*hint, true};
  for (unsigned index = 0; index < types.size(); ++index)
    add(getKnownFutureBytes(collective, index));
  return sum;
}

int64_t comm::getCollectiveBytes(CollectiveOpInterface collective) { return addUp(collective).first; }

bool comm::hasKnownBytes(CollectiveOpInterface collective) { return addUp(collective).second; }
