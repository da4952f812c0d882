//===- StorageSources.cpp - Sources of the storage of a result --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A view shares its source, and a result may take over a destination. A select, a branch or a call passes on what it is
// given. A loop does not: bufferization treats the tensors that a loop carries as destinations, and copies those whose
// contents are needed later. That its result may be what it is given all the same, StorageOrigins.h says.
//
//===------------------------------------------------------------------------------------------===//

#include "StorageSources.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Dialect/Comm/Effects.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

bool commsched::detail::hasStorage(Value value) { return isa<ShapedType, FutureType>(value.getType()); }

//===-----------------------------------------------------------------------------------------===//
// Results that operations pass on
//===-----------------------------------------------------------------------------------------===//

/// Adds the values of `values` that have storage.
static void addSources(StorageSources &sources, ValueRange values) {
  llvm::copy_if(values, std::back_inserter(sources.values), hasStorage);
}

/// What the regions of an operation yield for a result. What no branch names may be anything that the operation is
/// given or that its blocks pass on.
static void addYielded(StorageSources &sources, OpResult result) {
  Operation *op = result.getOwner();
  if (auto branch = dyn_cast<RegionBranchOpInterface>(op)) {
    RegionBranchInverseSuccessorMapping mapping;
    branch.getSuccessorInputOperandMapping(mapping);
    auto named = mapping.find(result);
    if (named != mapping.end()) {
      for (OpOperand *operand : named->second)
        addSources(sources, operand->get());
      return;
    }
  }
  SmallVector<Value> yielded;
  for (Region &region : op->getRegions())
    for (Block &block : region)
      if (!block.empty() && block.back().hasTrait<OpTrait::IsTerminator>())
        llvm::copy_if(block.back().getOperands(), std::back_inserter(yielded), hasStorage);
  if (yielded.empty())
    return;
  addSources(sources, op->getOperands());
  addSources(sources, yielded);
}

bool commsched::detail::isAllocated(OpResult result) {
  auto effects = dyn_cast<MemoryEffectOpInterface>(result.getOwner());
  return effects && effects.getEffectOnValue<MemoryEffects::Allocate>(result).has_value();
}

static bool hasNamedEffects(OpOperand &operand) {
  auto effects = dyn_cast<MemoryEffectOpInterface>(operand.getOwner());
  SmallVector<MemoryEffects::EffectInstance> named;
  if (effects)
    effects.getEffectsOnValue(operand.get(), named);
  return !named.empty();
}

/// An operation that returns a memref and reads an operand has found the address in memory. One that reads none passes
/// an operand on.
static void addAddressSources(StorageSources &sources, Operation *op) {
  sources.unknown = true;
  for (OpOperand &operand : op->getOpOperands())
    if (!hasNamedEffects(operand))
      addSources(sources, operand.get());
    else
      sources.loaded = true;
}

bool commsched::detail::mayKeepAddress(OpOperand &operand) {
  Operation *op = operand.getOwner();
  // A function may also take the buffer of a tensor.
  if (hasUndeclaredEffects(op))
    return hasStorage(operand.get());
  if (!isa<BaseMemRefType>(operand.get().getType()))
    return false;
  if (isa<StorageOpInterface, CollectiveOpInterface, ViewLikeOpInterface>(op) || op->getNumRegions() > 0 ||
      op->hasTrait<OpTrait::IsTerminator>())
    return false;
  bool hidesAddress =
      isa<memref::ExtractAlignedPointerAsIndexOp>(op) || llvm::any_of(op->getResultTypes(), [](Type type) {
        return !isa<ShapedType, IndexType, IntegerType, FloatType, FutureType>(type);
      });
  return !hasNamedEffects(operand) && (hidesAddress || !isMemoryEffectFree(op));
}

/// Whether the operation may pass an operand on by other ways than its results, or to code that is not seen.
static bool mayPassOn(OpOperand &operand) {
  Operation *op = operand.getOwner();
  // The regions of structured operations on memory see elements alone.
  bool passesToRegions = op->getNumRegions() > 0 && !isa<DestinationStyleOpInterface>(op);
  return passesToRegions || isa<CallOpInterface, BranchOpInterface>(op) || op->hasTrait<OpTrait::IsTerminator>() ||
         hasUndeclaredEffects(op) || mayKeepAddress(operand);
}

/// How many uses a search looks at before it gives up, so that it takes no longer than the rest of the analysis.
static constexpr size_t kMostUses = 4096;

bool commsched::detail::isPrivateAllocation(Value value) {
  auto result = dyn_cast<OpResult>(value);
  if (!result || !isa<BaseMemRefType>(result.getType()) || !isAllocated(result))
    return false;
  llvm::SetVector<Value> names;
  names.insert(value);
  size_t uses = 0;
  for (size_t index = 0; index < names.size(); ++index)
    for (OpOperand &use : Value(names[index]).getUses()) {
      if (++uses > kMostUses || mayPassOn(use))
        return false;
      for (Value other : use.getOwner()->getResults())
        if (!isa<IntegerType, IndexType, FloatType>(other.getType()))
          names.insert(other);
    }
  return true;
}

/// Adds the names that an operation gives to what it is given as `name`. Control flow may give it all of its names.
static void addNames(llvm::SetVector<Value> &names, Operation *op, Value name) {
  auto addAll = [&](auto values) {
    for (Value value : values)
      if (hasStorage(value))
        names.insert(value);
  };
  auto addRegions = [&](Operation *around) {
    addAll(around->getResults());
    for (Region &region : around->getRegions())
      for (Block &block : region)
        addAll(block.getArguments());
  };
  for (OpResult result : op->getResults())
    if (isa<FutureType>(result.getType()) || isa<WaitOp, SelectLikeOpInterface>(op) || getAliasedValue(result) == name)
      addAll(ValueRange(result));
  for (Block *successor : op->getSuccessors())
    addAll(successor->getArguments());
  if (op->getNumRegions() > 0)
    addRegions(op);
  else if (op->hasTrait<OpTrait::IsTerminator>() && !isa<FunctionOpInterface>(op->getParentOp()))
    addRegions(op->getParentOp());
}

bool commsched::detail::isGivenAway(Value tensor) {
  llvm::SetVector<Value> names;
  names.insert(tensor);
  size_t uses = 0;
  for (size_t index = 0; index < names.size(); ++index)
    for (OpOperand &use : Value(names[index]).getUses()) {
      if (++uses > kMostUses || mayKeepAddress(use))
        return true;
      addNames(names, use.getOwner(), use.get());
    }
  return false;
}

/// The sources of a result that is neither a view nor a destination.
static StorageSources getPassedSources(OpResult result) {
  Operation *op = result.getOwner();
  StorageSources sources;
  if (auto select = dyn_cast<SelectLikeOpInterface>(op)) {
    addSources(sources, {select.getTrueValue(), select.getFalseValue()});
    return sources;
  }
  bool isTensor = isa<TensorType>(result.getType());
  if (op->getNumRegions() > 0) {
    bool isCopied = isTensor && isa<LoopLikeOpInterface, DestinationStyleOpInterface>(op);
    if (!isCopied)
      addYielded(sources, result);
    sources.fresh = sources.values.empty();
    return sources;
  }
  if (isa<bufferization::AllocTensorOp>(op)) { // It names no effects, and copies what it is given.
    sources.fresh = true;
    return sources;
  }
  if (isa<FutureType>(result.getType()) || isa<CallOpInterface>(op) || hasUndeclaredEffects(op)) {
    addSources(sources, op->getOperands());
    sources.fresh = isTensor;
    sources.unknown = sources.loaded = isa<BaseMemRefType>(result.getType());
    return sources;
  }
  if (isa<BaseMemRefType>(result.getType()) && !isAllocated(result)) {
    addAddressSources(sources, op);
    return sources;
  }
  sources.fresh = true;
  return sources;
}

//===-----------------------------------------------------------------------------------------===//
// Views and destinations
//===-----------------------------------------------------------------------------------------===//

bool commsched::detail::isInPlace(Operation *op) {
  return isa<tensor::InsertSliceOp>(op) && op->hasAttr(kInPlaceAttrName);
}

/// The operand of which a result is a view, even if the operation overwrites its contents; null for other results.
static Value getViewedValue(OpResult result) {
  Operation *op = result.getOwner();
  if (isInPlace(op))
    return cast<tensor::InsertSliceOp>(op).getSource();
  if (auto storage = dyn_cast<StorageOpInterface>(op)) {
    std::optional<unsigned> operand = storage.getAliasedOperand(result.getResultNumber());
    return operand ? op->getOperand(*operand) : Value();
  }
  if (auto view = dyn_cast<ViewLikeOpInterface>(op))
    return result.getResultNumber() == 0 ? view.getViewSource() : Value();
  if (isForeignView(op))
    return op->getOperand(result.getResultNumber());
  if (isa<tensor::CastOp, tensor::BitcastOp, tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ReshapeOp,
          tensor::ExtractSliceOp, bufferization::ToTensorOp, bufferization::ToBufferOp>(op))
    return op->getOperand(0);
  return {};
}

/// The source of a value's storage: the value of which it is a view, or the destination of a collective's result.
static Value getStorageSource(OpResult result) {
  auto wait = dyn_cast<WaitOp>(result.getOwner());
  if (!wait)
    return getViewedValue(result);
  auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>();
  return start && !start.getCollectiveDests().empty() ? start.getCollectiveDests()[result.getResultNumber()] : Value();
}

/// Returns true if `value` is the only way to its storage, and the storage belongs to the block. Then the value has one
/// use, is not an argument, and is a view only of such values. O(views that lead to it).
static bool isLastAlias(Value value) {
  while (value.hasOneUse() && value.getDefiningOp()) {
    if (isInPlace(value.getDefiningOp())) // There are other ways, through the other parts.
      return false;
    auto wait = value.getDefiningOp<WaitOp>();
    if (wait && !wait.getFuture().hasOneUse())
      return false;
    auto result = cast<OpResult>(value);
    Value source = getStorageSource(result);
    if (!source)
      return wait || getPassedSources(result).values.empty();
    value = source;
  }
  return false;
}

/// A tensor destination becomes the result's storage if no other operation needs its old contents.
static Value getReusedDestination(OpResult result) {
  auto op = dyn_cast<DestinationStyleOpInterface>(result.getOwner());
  if (!op || !isa<TensorType>(result.getType()))
    return {};
  Value dest = op.getTiedOpOperand(result)->get();
  return isLastAlias(dest) ? dest : Value();
}

Value commsched::getAliasedValue(OpResult result) {
  if (Value viewed = getViewedValue(result))
    return viewed;
  return isa<StorageOpInterface, ViewLikeOpInterface>(result.getOwner()) ? Value() : getReusedDestination(result);
}

bool commsched::mutatesOperand(OpOperand &operand) {
  if (isInPlace(operand.getOwner()))
    return false;
  if (auto storage = dyn_cast<StorageOpInterface>(operand.getOwner()))
    return storage.mutatesOperand(operand.getOperandNumber());
  auto op = dyn_cast<DestinationStyleOpInterface>(operand.getOwner());
  if (!op || !op.isDpsInit(&operand) || !isa<TensorType>(operand.get().getType()))
    return false;
  return static_cast<bool>(getReusedDestination(op.getTiedOpResult(&operand)));
}

StorageSources commsched::detail::getStorageSources(OpResult result) {
  if (Value source = getAliasedValue(result)) {
    StorageSources sources;
    sources.values.push_back(source);
    return sources;
  }
  return getPassedSources(result);
}

/// The same wait for all that wait for a future, or null if no operation of its users is one.
static WaitOp findOneWait(Value future) {
  for (Operation *user : future.getUsers())
    if (auto wait = dyn_cast<WaitOp>(user))
      return wait;
  return {};
}

StorageSources commsched::detail::getCapturedSources(Value value) {
  StorageSources sources;
  auto result = dyn_cast<OpResult>(value);
  if (!result) {
    sources.fresh = true;
    return sources;
  }
  Operation *op = result.getOwner();
  if (auto start = dyn_cast<CollectiveOpInterface>(op)) {
    addSources(sources, op->getOperands());
    sources.fresh = start.getCollectiveDests().empty();
    return sources;
  }
  auto copyIn = dyn_cast<FsdpAllGatherCopyInOp>(op);
  Value source = copyIn && value == copyIn.getSlice() ? copyIn.getBuffer() : getStorageSource(result);
  if (auto wait = dyn_cast<WaitOp>(op); wait && !source) {
    // Without destinations the only wait returns new storage. Several waits return the same, that of one of them. The
    // inputs of the collective, which its future stands for as well, are not returned.
    bool isStarted = static_cast<bool>(wait.getFuture().getDefiningOp<CollectiveOpInterface>());
    WaitOp other = isStarted ? findOneWait(wait.getFuture()) : WaitOp();
    sources.fresh = other && other == wait;
    if (other && other != wait)
      sources.values.push_back(other->getResult(cast<OpResult>(value).getResultNumber()));
    else if (!other)
      sources.values.push_back(wait.getFuture());
    return sources;
  }
  if (!source)
    return getStorageSources(result);
  sources.values.push_back(source);
  return sources;
}
