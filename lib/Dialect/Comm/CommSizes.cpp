//===- CommSizes.cpp - Bytes of values, as far as types and hints tell ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A dynamic size is known by a hint: on the value itself, or on the value that it is a view, a cast or a collective of.
// What stays unknown is none, so that nobody takes it for no bytes.
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

/// Operations between a value and the hint that tells its size: longer chains are not followed.
static constexpr unsigned kMaxSteps = 64;

static std::optional<int64_t> findBytes(Value value, unsigned steps);

bool comm::isCastName(StringRef name) {
  return llvm::StringSwitch<bool>(name)
      .Cases({"prims.convert_element_type.default", "aten._to_copy.default", "aten.to.dtype", "cast"}, true)
      .Default(false);
}

/// What an operation's `comm.bytes_hint` says of a result.
static std::optional<int64_t> getHint(OpResult result) {
  auto hint = result.getOwner()->getAttrOfType<DenseI64ArrayAttr>(CommDialect::kBytesHintAttrName);
  if (!hint || result.getResultNumber() >= hint.size())
    return std::nullopt;
  return hint[result.getResultNumber()];
}

/// What a function's `comm.bytes_hint` says of an argument.
static std::optional<int64_t> getHint(BlockArgument argument) {
  auto function = dyn_cast_if_present<FunctionOpInterface>(argument.getOwner()->getParentOp());
  if (!function || !argument.getOwner()->isEntryBlock())
    return std::nullopt;
  auto hint = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(), CommDialect::kBytesHintAttrName);
  return hint ? std::optional<int64_t>(hint.getInt()) : std::nullopt;
}

/// Width of an element in bits; 0 where it has none.
static int64_t widthOf(Type type) {
  Type element = cast<ShapedType>(type).getElementType();
  return element.isIntOrFloat() ? element.getIntOrFloatBitWidth() : element.isIndex() ? 64 : 0;
}

/// bytes x numerator / denominator.
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
  if (std::optional<int64_t> hint = getHint(future)) // of all values together: the first one gets it
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
  default: // as many as went in; of an exchange with splits this is a guess
    return input;
  }
}

/// The operand that a result is as large as but for the width of its elements; null where none is known to be.
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
  // A view has bytes of the operand, whatever the width of its elements.
  auto storage = dyn_cast<StorageOpInterface>(result.getOwner());
  bool isView = storage && storage.getAliasedOperand(result.getResultNumber());
  return isView ? findBytes(equal, steps - 1)
                : scale(findBytes(equal, steps - 1), widthOf(value.getType()), widthOf(equal.getType()));
}

std::optional<int64_t> comm::getKnownBytes(Value value) { return findBytes(value, kMaxSteps); }

std::optional<int64_t> comm::getKnownFutureBytes(CollectiveOpInterface start, unsigned index) {
  return findFutureBytes(start, index, kMaxSteps);
}

/// The values that a collective's cost is a function of; the second is whether all of them are known.
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
  // The hint of a start is for all values of its future together.
  if (!llvm::all_of(types, [](Type type) { return getStaticBytes(type).has_value(); }))
    if (std::optional<int64_t> hint = getHint(future))
      return {*hint, true};
  for (unsigned index = 0; index < types.size(); ++index)
    add(getKnownFutureBytes(collective, index));
  return sum;
}

int64_t comm::getCollectiveBytes(CollectiveOpInterface collective) { return addUp(collective).first; }

bool comm::hasKnownBytes(CollectiveOpInterface collective) { return addUp(collective).second; }
