//===- Storage.cpp - Values of a block that share storage -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One walk in program order. A result has the storage of its sources (StorageSources.h), or storage of its own. A wait
// returns the values that its start put in flight.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Storage.h"
#include "CommSched/Dialect/Comm/CommSizes.h"
#include "RegionAliases.h"
#include "StorageOrigins.h"
#include "StorageSources.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

//===-----------------------------------------------------------------------------------------===//
// StorageMap
//===-----------------------------------------------------------------------------------------===//

StorageMap::StorageMap(Block &block) : block(&block) {
  StorageOrigins passed;
  origins = &passed;
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
  if (loadsAddresses)
    for (StorageId id : kept)
      storage[id].unknownOrigin = true;
  origins = nullptr;
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

/// Returns true for a memref, and for a future of memrefs.
static bool holdsMemrefs(Value value) {
  if (auto future = dyn_cast<FutureType>(value.getType()))
    return llvm::any_of(future.getTypes(), llvm::IsaPred<BaseMemRefType>);
  return isa<BaseMemRefType>(value.getType());
}

/// The bytes of all that a future carries. `hint` has those of dynamic size.
Bytes StorageMap::bytesOfFuture(Value future, std::optional<Bytes> hint) {
  Bytes bytes = 0;
  for (Type type : cast<FutureType>(future.getType()).getTypes()) {
    std::optional<Bytes> size = getStaticBytes(type);
    size = size ? size : std::exchange(hint, hint ? std::optional<Bytes>(0) : std::nullopt);
    bytes = std::min(bytes + bytesOf(future, size), INT64_MAX - kLargestBytes);
  }
  return bytes;
}

void StorageMap::addArgument(BlockArgument argument) {
  Bytes bytes = 0;
  if (isa<FutureType>(argument.getType())) {
    std::optional<Bytes> hint;
    if (auto attr = dyn_cast_if_present<IntegerAttr>(getArgumentAttr(argument, CommDialect::kBytesHintAttrName)))
      hint = attr.getInt();
    bytes = bytesOfFuture(argument, hint);
  } else {
    bytes = bytesOf(argument, getKnownBytes(argument));
  }
  StorageId id = allocate(nullptr, bytes, /*nested=*/false);
  storage[id].donated = static_cast<bool>(getArgumentAttr(argument, CommDialect::kDonatedAttrName));
  storage[id].unknownOrigin = holdsMemrefs(argument) && !getArgumentAttr(argument, "llvm.noalias");
  if (!storage[id].donated)
    numArgumentBytes = std::min(numArgumentBytes, INT64_MAX - bytes) + bytes;
  refer(argument, id);
  if (StorageOrigins::isPassed(argument))
    addOrigins(id, argument);
}

static void sortUnique(SmallVectorImpl<StorageId> &ids) {
  llvm::sort(ids);
  ids.erase(llvm::unique(ids), ids.end());
}

/// Returns true if the block, or an operation in it, defines a value.
bool StorageMap::isInside(Value value) const {
  Block *home = value.getParentBlock();
  return home == block || (home->getParentOp() && block->findAncestorOpInBlock(*home->getParentOp()));
}

/// Finds what a value that comes into the block may be. What the block made in an earlier run is told apart from what
/// it makes now.
void StorageMap::addOrigins(StorageId id, Value passed) {
  llvm::SmallVector<StorageId, 4> ids;
  for (Value origin : origins->find(passed)) {
    if (isInside(origin)) {
      auto [known, isNew] = earlier.try_emplace(origin, -1);
      if (isNew) {
        known->second = allocate(nullptr, 0, /*nested=*/false);
        elsewhere.push_back({origin, known->second});
      }
      ids.push_back(known->second);
      continue;
    }
    addCaptured(origin);
    llvm::append_range(ids, of(origin));
  }
  sortUnique(ids);
  llvm::erase(ids, id);
  storage[id].mayBe.assign(ids.begin(), ids.end());
}

/// The classes, and those that they may be.
llvm::SmallVector<StorageId, 4> StorageMap::withOrigins(ArrayRef<StorageId> ids) const {
  llvm::SmallVector<StorageId, 4> all(ids);
  for (StorageId id : ids)
    llvm::append_range(all, storage[id].mayBe);
  sortUnique(all);
  return all;
}

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
      llvm::SmallVector<StorageId, 4> ids = unionOf(sources);
      if (aliases.mayBeUnknown(known->first))
        ids.push_back(unknownStorage());
      known->second = addSlice(ids);
    }
    if (isa<BlockArgument>(value) || known->second.second > 0)
      slices[value] = known->second;
  }
}

/// What a collective from outside without destinations receives: all of it for its future, and one class for what a
/// wait returns, whichever wait it is. Empty for other values.
ArrayRef<StorageId> StorageMap::receivedStorage(Value value) {
  auto wait = value.getDefiningOp<WaitOp>();
  Value future = wait ? Value(wait.getFuture()) : value;
  auto start = future.getDefiningOp<CollectiveOpInterface>();
  if (!start || !start.getCollectiveDests().empty() || isInside(future))
    return {};
  auto [known, isNew] = received.try_emplace(future);
  if (isNew)
    for ([[maybe_unused]] Type type : cast<FutureType>(future.getType()).getTypes()) {
      known->second.push_back(allocate(nullptr, 0, /*nested=*/false));
      storage[known->second.back()].unknownOrigin = holdsMemrefs(future);
      elsewhere.push_back({future, known->second.back()});
    }
  ArrayRef<StorageId> ids = known->second;
  return wait ? ids.slice(cast<OpResult>(value).getResultNumber(), 1) : ids;
}

/// Values from outside that are views of one tensor, or in which one tensor is in flight, share its storage.
void StorageMap::addCaptured(Value value) {
  // Values whose storage is that of the next one, and last the one that has other storage.
  SmallVector<Value, 4> views;
  StorageSources sources;
  for (Value current = value; !slices.count(current); current = sources.values.front()) {
    if (!isa<ShapedType, FutureType>(current.getType()))
      return;
    views.push_back(current);
    sources = getCapturedSources(current);
    if (sources.fresh || sources.unknown || sources.values.size() != 1)
      break;
  }
  if (views.empty())
    return;
  Value last = views.back();
  if (ArrayRef<StorageId> received = receivedStorage(last); !received.empty()) {
    refer(last, received);
  } else if (sources.fresh || sources.unknown || sources.values.empty()) {
    StorageId id = allocate(nullptr, 0, /*nested=*/false);
    storage[id].unknownOrigin = holdsMemrefs(last) && !isPrivateAllocation(last);
    if (!holdsMemrefs(last))
      elsewhere.push_back({last, id});
    refer(last, id);
    if (StorageOrigins::isPassed(last) && !isInside(last))
      addOrigins(id, last);
  }
  llvm::SmallVector<StorageId, 4> ids(of(last));
  for (Value source : sources.values) {
    addCaptured(source);
    llvm::append_range(ids, of(source));
  }
  llvm::sort(ids);
  ids.erase(llvm::unique(ids), ids.end());
  Slice slice = addSlice(ids);
  for (Value view : views)
    slices[view] = slice;
}

void StorageMap::visit(Operation *op, bool nested) {
  for (OpOperand &operand : op->getOpOperands()) {
    addCaptured(operand.get());
    if (mayKeepAddress(operand))
      llvm::append_range(kept, of(operand.get()));
  }
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
  written[future] = addSlice(inFlight);
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
    } else if (llvm::SmallVector<StorageId, 4> ids = classesOfReceived(result); !ids.empty()) {
      refer(result, ids);
    } else {
      refer(result, allocate(wait, bytesOf(result, getKnownBytes(result)), nested));
    }
  }
}

/// The classes of a wait's result if its future came in, or if regions pass it on: the destination, or what is
/// received. The inputs of the collective, which its future stands for as well, are not returned.
llvm::SmallVector<StorageId, 4> StorageMap::classesOfReceived(OpResult result) {
  Value future = cast<WaitOp>(result.getOwner()).getFuture();
  auto start = future.getDefiningOp<CollectiveOpInterface>();
  if (!start)
    return llvm::SmallVector<StorageId, 4>(writtenBy(future).empty() ? of(future) : writtenBy(future));
  if (start.getCollectiveDests().empty())
    return llvm::SmallVector<StorageId, 4>(receivedStorage(result));
  Value dest = start.getCollectiveDests()[result.getResultNumber()];
  addCaptured(dest);
  return llvm::SmallVector<StorageId, 4>(of(dest));
}

/// Every memory that operations find by themselves is one class.
StorageId StorageMap::unknownStorage() {
  if (unknownId < 0) {
    unknownId = allocate(nullptr, 0, /*nested=*/false);
    storage[unknownId].unknownOrigin = true;
  }
  return unknownId;
}

/// Globals of two names are two buffers, and an address from elsewhere may be that of any of them.
StorageId StorageMap::globalStorage(StringAttr name) {
  auto [known, isNew] = globals.try_emplace(name, -1);
  if (isNew) {
    known->second = allocate(nullptr, 0, /*nested=*/false);
    storage[known->second].unknownOrigin = true;
  }
  return known->second;
}

void StorageMap::visitResult(OpResult result, bool nested) {
  Operation *op = result.getOwner();
  // addRegionValues() has found the memrefs that regions pass on.
  if (!hasStorage(result) || (op->getNumRegions() > 0 && slices.contains(result)))
    return;
  if (Value source = getAliasedValue(result); source && !of(source).empty())
    return refer(result, of(source));
  // What a chain of insertions in place begins with is no storage of its own.
  if (isa<tensor::EmptyOp>(op) && !result.use_empty() && llvm::all_of(result.getUsers(), isInPlace))
    return;
  if (auto global = dyn_cast<memref::GetGlobalOp>(op))
    return refer(result, globalStorage(global.getNameAttr().getAttr()));
  StorageSources sources = getStorageSources(result);
  loadsAddresses |= sources.loaded;
  bool isMemref = isa<BaseMemRefType>(result.getType());
  // All memrefs of one operation have the same sources, and share one slice.
  OpResult sibling = op->getResult(0);
  if (isMemref && sources.unknown && sibling != result && isPassedMemref(sibling) && op->getNumRegions() == 0) {
    slices[result] = slices.lookup(sibling);
    return;
  }
  llvm::SmallVector<StorageId, 4> ids = unionOf(sources.values);
  llvm::SmallVector<StorageId, 4> passed = dropInner(ids, nested);
  if (isa<FutureType>(result.getType())) {
    llvm::SmallVector<StorageId, 4> completed;
    for (Value source : sources.values)
      llvm::append_range(completed, writtenBy(source));
    const size_t numCompleted = completed.size();
    llvm::SmallVector<StorageId, 4> completedThere = dropInner(completed, nested);
    const bool allocatesInside = completed.size() < numCompleted;
    llvm::append_range(completed, completedThere);
    llvm::append_range(ids, passed);
    sortUnique(ids);
    // What the regions allocate is one storage outside of them, for all waits for the future.
    if (allocatesInside) {
      ids.push_back(allocate(op, bytesOfFuture(result, std::nullopt), nested));
      completed.push_back(ids.back());
    }
    written[result] = addSlice(completed);
    return refer(result, ids);
  }
  if (StorageOrigins::isPassed(result)) {
    llvm::SmallVector<Value, 4> given = origins->stepBack(result);
    passed = withOrigins(unionOf(given));
    dropInner(passed, nested);
  }
  if (sources.unknown || (isMemref && ids.empty() && op->getNumRegions() > 0)) {
    ids.push_back(unknownStorage());
  } else if (sources.fresh || ids.empty()) {
    ids.push_back(allocate(op, result, bytesOf(result, getKnownBytes(result)), nested));
    llvm::erase(passed, ids.back());
    if (!passed.empty())
      storage[ids.back()].mayBe.assign(passed.begin(), passed.end());
  } else {
    llvm::append_range(ids, passed);
    sortUnique(ids);
  }
  refer(result, ids);
}

/// Storage that was allocated in a region is not known outside of its operation. Returns what it may be there.
llvm::SmallVector<StorageId, 4> StorageMap::dropInner(llvm::SmallVectorImpl<StorageId> &ids, bool nested) const {
  llvm::SmallVector<StorageId, 4> passed;
  if (nested)
    return passed;
  auto isInner = [&](StorageId id) { return storage[id].inner; };
  for (StorageId id : ids)
    if (isInner(id))
      llvm::copy_if(storage[id].mayBe, std::back_inserter(passed), std::not_fn(isInner));
  llvm::erase_if(ids, isInner);
  sortUnique(passed);
  return passed;
}

ArrayRef<StorageId> StorageMap::writtenBy(Value future) const {
  auto it = written.find(future);
  if (it == written.end())
    return of(future);
  return ArrayRef<StorageId>(pool).slice(it->second.first, it->second.second);
}

void StorageMap::visitTerminator(Operation *terminator) {
  for (Value operand : terminator->getOperands()) {
    addCaptured(operand);
    for (StorageId id : of(operand))
      storage[id].liveOut = true;
  }
}
