//===- Storage.cpp - Values of a block that share storage -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One walk in program order. A result is a view of an operand, takes over a destination, or has new storage. A wait
// returns the values that its start put in flight.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Storage.h"
#include "CommSched/Dialect/Comm/CommSizes.h"
#include "RegionAliases.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

//===-----------------------------------------------------------------------------------------===//
// Storage of one operation
//===-----------------------------------------------------------------------------------------===//

/// Returns true for an insertion of a source that is computed in its place.
static bool isInPlace(Operation *op) { return isa<tensor::InsertSliceOp>(op) && op->hasAttr(kInPlaceAttrName); }

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
    Value source = getStorageSource(cast<OpResult>(value));
    if (!source)
      return true;
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

//===-----------------------------------------------------------------------------------------===//
// StorageMap
//===-----------------------------------------------------------------------------------------===//

StorageMap::StorageMap(Block &block) {
  slices.reserve(2 * block.getOperations().size());
  findPlaces(block);
  for (BlockArgument argument : block.getArguments())
    if (isa<ShapedType, FutureType>(argument.getType()))
      addArgument(argument);
  for (Operation &op : block) {
    if (&op == &block.back() && op.hasTrait<OpTrait::IsTerminator>())
      visitTerminator(&op);
    else
      visit(&op, /*nested=*/false);
  }
}

ArrayRef<StorageId> StorageMap::of(Value value) const {
  auto it = slices.find(value);
  if (it == slices.end())
    return {};
  return ArrayRef<StorageId>(pool).slice(it->second.first, it->second.second);
}

ArrayRef<StorageId> StorageMap::ofFutureValue(Value future, unsigned index) const {
  auto it = futureValues.find(future);
  if (it == futureValues.end())
    return {};
  auto [begin, size] = it->second[index];
  return ArrayRef<StorageId>(pool).slice(begin, size);
}

StorageId StorageMap::allocate(Operation *def, Bytes bytes, bool nested) {
  StorageClass entry;
  entry.bytes = bytes;
  entry.def = nested ? nullptr : def;
  entry.inner = nested;
  storage.push_back(entry);
  return static_cast<StorageId>(storage.size()) - 1;
}

StorageId StorageMap::allocate(Operation *def, Value value, Bytes bytes, bool nested) {
  auto known = nested ? wholeOf.end() : wholeOf.find(value);
  if (known == wholeOf.end())
    return allocate(def, bytes, nested);
  Whole &whole = wholes[known->second];
  if (whole.id < 0)
    whole.id = allocate(def, whole.bytes, nested);
  else if (storage[whole.id].def != def)
    allocators[def].push_back(storage[whole.id].def);
  return whole.id;
}

ArrayRef<Operation *> StorageMap::allocatorsOfPlaces(Operation *op) const {
  auto it = allocators.find(op);
  return it == allocators.end() ? ArrayRef<Operation *>() : it->second;
}

/// The value, or future, whose operation allocates the storage of `value`; null for an argument.
static Value findAllocated(Value value) {
  while (auto result = dyn_cast_if_present<OpResult>(value)) {
    if (auto wait = dyn_cast<WaitOp>(result.getOwner())) {
      auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>();
      return start && start.getCollectiveDests().empty() && start.getCollectiveInputs().size() == 1 ? wait.getFuture()
                                                                                                    : Value();
    }
    Value source = getAliasedValue(result);
    if (!source)
      return result;
    value = source;
  }
  return {};
}

/// Finds the chains of insertions in place, and what is computed in its place.
void StorageMap::findPlaces(Block &block) {
  // Indexed by value: the whole of which it is an intermediate state.
  llvm::DenseMap<Value, int32_t> chains;
  for (auto insert : block.getOps<tensor::InsertSliceOp>()) {
    if (!isInPlace(insert))
      continue;
    auto [known, isNew] = chains.try_emplace(insert.getDest(), static_cast<int32_t>(wholes.size()));
    if (isNew)
      wholes.push_back({std::min(getStaticBytes(insert.getType()).value_or(0), INT64_MAX / 2), -1});
    int32_t whole = known->second;
    chains[insert.getResult()] = whole;
    if (Value allocated = findAllocated(insert.getSource()))
      wholeOf.try_emplace(allocated, whole);
  }
}

StorageMap::Slice StorageMap::addSlice(ArrayRef<StorageId> ids) {
  Slice slice(static_cast<int32_t>(pool.size()), static_cast<int32_t>(ids.size()));
  llvm::SmallVector<StorageId, 4> copy(ids); // `ids` may be a slice of the pool itself
  pool.insert(pool.end(), copy.begin(), copy.end());
  return slice;
}

llvm::SmallVector<StorageId, 4> StorageMap::unionOf(ValueRange sources) const {
  llvm::SmallVector<StorageId, 4> ids;
  for (Value source : sources)
    llvm::append_range(ids, of(source));
  llvm::sort(ids);
  ids.erase(llvm::unique(ids), ids.end());
  return ids;
}

/// Largest size that a hint may give, the same limit as for sizes of types.
static constexpr Bytes kLargestBytes = Bytes(1) << 60;

Bytes StorageMap::bytesOf(Value value, std::optional<Bytes> known) {
  if (!known)
    unknown.push_back(value);
  return std::min(known.value_or(0), kLargestBytes);
}

/// Attribute `name` of a function's argument.
static Attribute getArgumentAttr(BlockArgument argument, StringRef name) {
  auto function = dyn_cast_if_present<FunctionOpInterface>(argument.getOwner()->getParentOp());
  if (!function || !argument.getOwner()->isEntryBlock())
    return {};
  return function.getArgAttr(argument.getArgNumber(), name);
}

void StorageMap::addArgument(BlockArgument argument) {
  Bytes bytes = 0;
  if (auto future = dyn_cast<FutureType>(argument.getType())) {
    std::optional<Bytes> hint;
    if (auto attr = dyn_cast_if_present<IntegerAttr>(getArgumentAttr(argument, CommDialect::kBytesHintAttrName)))
      hint = attr.getInt();
    for (Type type : future.getTypes()) {
      std::optional<Bytes> size = getStaticBytes(type);
      size = size ? size : std::exchange(hint, hint ? std::optional<Bytes>(0) : std::nullopt);
      bytes = std::min(bytes + bytesOf(argument, size), INT64_MAX - kLargestBytes);
    }
  } else {
    bytes = bytesOf(argument, getKnownBytes(argument));
  }
  StorageId id = allocate(nullptr, bytes, /*nested=*/false);
  storage[id].donated = static_cast<bool>(getArgumentAttr(argument, CommDialect::kDonatedAttrName));
  storage[id].unknownOrigin = isa<BaseMemRefType>(argument.getType()) && !getArgumentAttr(argument, "llvm.noalias");
  if (!storage[id].donated)
    numArgumentBytes = std::min(numArgumentBytes, INT64_MAX - bytes) + bytes;
  refer(argument, id);
}

static bool hasStorage(Value value) { return isa<ShapedType, FutureType>(value.getType()); }

/// A memref from an operation that does not allocate it.
static bool isPassedMemref(OpResult result) {
  return isa<BaseMemRefType>(result.getType()) && !isAllocated(result) && !getAliasedValue(result);
}

/// An argument of a region has the storage of what the operation gives it, from outside or in an earlier iteration. A
/// memref that the operation returns is what its regions were entered or left with. Values that may have one storage
/// share a slice; results that have none from outside are left out.
void StorageMap::addRegionValues(Operation *op) {
  SmallVector<Value> values;
  for (Region &region : op->getRegions())
    for (Block &block : region)
      llvm::copy_if(block.getArguments(), std::back_inserter(values), hasStorage);
  if (op->getNumRegions() > 0)
    llvm::copy_if(op->getResults(), std::back_inserter(values),
                  [](Value value) { return isPassedMemref(cast<OpResult>(value)); });
  if (values.empty())
    return;
  RegionAliases aliases(op);
  llvm::DenseMap<unsigned, Slice> ofClass;
  for (Value value : values) {
    if (!aliases.knows(value)) {
      if (isa<BlockArgument>(value))
        addCaptured(value);
      continue;
    }
    auto [known, isNew] = ofClass.try_emplace(aliases.classOf(value));
    if (isNew) {
      ValueRange sources = aliases.outsideOf(known->first);
      llvm::for_each(sources, [&](Value source) { addCaptured(source); });
      known->second = addSlice(unionOf(sources));
    }
    if (isa<BlockArgument>(value) || known->second.second > 0)
      slices[value] = known->second;
  }
}

void StorageMap::addCaptured(Value value) {
  if (!isa<ShapedType, FutureType>(value.getType()) || slices.count(value))
    return;
  StorageId id = allocate(nullptr, 0, /*nested=*/false);
  storage[id].unknownOrigin = isa<BaseMemRefType>(value.getType());
  refer(value, id);
}

void StorageMap::visit(Operation *op, bool nested) {
  for (Value operand : op->getOperands())
    addCaptured(operand);
  addRegionValues(op);
  for (Region &region : op->getRegions())
    for (Block &inner : region)
      for (Operation &innerOp : inner)
        visit(&innerOp, /*nested=*/true);
  if (auto start = dyn_cast<CollectiveOpInterface>(op))
    return visitStart(start, nested);
  if (auto wait = dyn_cast<WaitOp>(op))
    return visitWait(wait, nested);
  if (auto copyIn = dyn_cast<FsdpAllGatherCopyInOp>(op))
    return visitCopyIn(copyIn, nested);
  for (OpResult result : op->getResults())
    visitResult(result, nested);
}

/// The slice is part of the buffer: both have one storage.
void StorageMap::visitCopyIn(FsdpAllGatherCopyInOp copyIn, bool nested) {
  visitResult(cast<OpResult>(copyIn.getBuffer()), nested);
  refer(copyIn.getSlice(), of(copyIn.getBuffer()));
}

void StorageMap::visitStart(CollectiveOpInterface start, bool nested) {
  Value future = start.getCollectiveFuture();
  llvm::SmallVector<Slice, 1> &values = futureValues[future];
  llvm::SmallVector<StorageId, 4> inFlight;
  for (unsigned index = 0, size = cast<FutureType>(future.getType()).getTypes().size(); index < size; ++index) {
    llvm::SmallVector<StorageId, 2> ids;
    if (!start.getCollectiveDests().empty())
      ids = llvm::to_vector<2>(of(start.getCollectiveDests()[index]));
    else
      ids.push_back(allocate(start, future, bytesOf(future, getKnownFutureBytes(start, index)), nested));
    values.push_back(addSlice(ids));
    llvm::append_range(inFlight, ids);
  }
  for (Value input : start.getCollectiveInputs())
    llvm::append_range(inFlight, of(input));
  llvm::sort(inFlight);
  inFlight.erase(llvm::unique(inFlight), inFlight.end());
  refer(future, inFlight);
  starts[future] = start;
}

void StorageMap::visitWait(WaitOp wait, bool nested) {
  auto known = futureValues.find(wait.getFuture());
  for (OpResult result : wait->getResults()) {
    if (known != futureValues.end()) {
      auto [begin, size] = known->second[result.getResultNumber()];
      refer(result, ArrayRef<StorageId>(pool).slice(begin, size));
    } else if (!of(wait.getFuture()).empty()) {
      refer(result, of(wait.getFuture())); // a future that came in: one class for all that it carries
    } else {
      refer(result, allocate(wait, bytesOf(result, getKnownBytes(result)), nested));
    }
  }
}

void StorageMap::visitResult(OpResult result, bool nested) {
  Operation *op = result.getOwner();
  if (isa<FutureType>(result.getType()))
    return visitPassedFuture(result);
  if (!isa<ShapedType>(result.getType()))
    return;
  if (Value source = getAliasedValue(result); source && !of(source).empty())
    return refer(result, of(source));
  if (isa<arith::SelectOp>(op))
    return refer(result, unionOf(op->getOperands().drop_front()));
  if (isPassedMemref(result)) {
    if (slices.contains(result))
      return;
    // It is one of the operation's operands, or of unknown origin. All results share one slice.
    OpResult sibling = op->getResult(0);
    bool hasSibling = op->getNumRegions() == 0 && sibling != result && isPassedMemref(sibling);
    if (hasSibling && !of(sibling).empty()) {
      slices[result] = slices.lookup(sibling);
      return;
    }
    if (op->getNumRegions() == 0)
      refer(result, unionOf(op->getOperands()));
    if (!of(result).empty())
      return;
    StorageId id = allocate(nullptr, 0, nested);
    storage[id].unknownOrigin = true;
    return refer(result, id);
  }
  // What a chain of insertions in place begins with is no storage of its own.
  if (isa<tensor::EmptyOp>(op) && !result.use_empty() && llvm::all_of(result.getUsers(), isInPlace))
    return;
  refer(result, allocate(op, result, bytesOf(result, getKnownBytes(result)), nested));
}

/// A future from an operation that starts no collective itself is one of its operands, or one that its regions return.
/// Storage that was allocated in a region is not included.
void StorageMap::visitPassedFuture(OpResult result) {
  SmallVector<Value> sources(result.getOwner()->getOperands());
  for (Region &region : result.getOwner()->getRegions())
    for (Block &block : region)
      if (!block.empty() && block.back().hasTrait<OpTrait::IsTerminator>())
        llvm::copy_if(block.back().getOperands(), std::back_inserter(sources), [&](Value value) {
          return isa<FutureType>(value.getType()) &&
                 llvm::none_of(of(value), [&](StorageId id) { return storage[id].inner; });
        });
  refer(result, unionOf(sources));
}

void StorageMap::visitTerminator(Operation *terminator) {
  for (Value operand : terminator->getOperands()) {
    addCaptured(operand);
    for (StorageId id : of(operand))
      storage[id].liveOut = true;
  }
}
