//===- MemoryFlow.cpp - The memory that values may be -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One walk collects the new objects and the flows between slots, and a worklist carries the objects along. A result is
// new memory only if its operation says so, or if it is a tensor of an operation whose effects are known and that names
// no operand as its source. All other results may be what the operation was given, or anything that is exposed.
//
//===------------------------------------------------------------------------------------------===//

#include "MemoryFlow.h"
#include "CommSched/Dialect/Comm/Effects.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

unsigned commsched::detail::numSlots(Type type) {
  if (auto future = dyn_cast<FutureType>(type))
    return static_cast<unsigned>(future.getTypes().size()) + 1;
  return isa<TensorType, BaseMemRefType>(type) ? 1 : 0;
}

SmallVector<std::pair<Value, unsigned>> commsched::detail::slotsOf(ValueRange values) {
  SmallVector<std::pair<Value, unsigned>> slots;
  for (Value value : values)
    for (unsigned slot = 0; slot < numSlots(value.getType()); ++slot)
      slots.emplace_back(value, slot);
  return slots;
}

MemoryFlow::MemoryFlow(Operation *function, CallSummaries &summaries, Incoming incoming)
    : summaries(summaries), incoming(incoming), function(function), objects(1), flows(1), exposed(2, true) {
  for (Region &region : function->getRegions())
    region.walk([&](Operation *op) { visit(op); });
  propagate();
}

MemoryFlow::MemoryFlow(Block &block, CallSummaries &summaries, Incoming incoming)
    : summaries(summaries), incoming(incoming), block(&block), objects(1), flows(1), exposed(2, true) {
  block.walk([&](Operation *op) { visit(op); });
  propagate();
}

ArrayRef<ObjectId> MemoryFlow::of(Value value, unsigned slot) const {
  auto known = firstSlots.find(value);
  return known == firstSlots.end() ? ArrayRef<ObjectId>() : ArrayRef<ObjectId>(objects[known->second + slot]);
}

ObjectId MemoryFlow::addObject(bool isExposed, bool isReceived) {
  exposed.push_back(isExposed);
  if (isReceived)
    received.insert(numObjects() - 1);
  return numObjects() - 1;
}

//===-----------------------------------------------------------------------------------------===//
// Slots
//===-----------------------------------------------------------------------------------------===//

bool MemoryFlow::comesIn(Value value) const {
  Block *home = value.getParentBlock();
  if (function)
    return isa<BlockArgument>(value) && home->getParentOp() == function && home->isEntryBlock();
  if (home == block)
    return isa<BlockArgument>(value);
  Operation *parent = home->getParentOp();
  return !parent || !block->findAncestorOpInBlock(*parent);
}

/// The slot, or -1 for a value without memory.
MemoryFlow::Slot MemoryFlow::slotOf(Value value, unsigned slot) {
  unsigned count = numSlots(value.getType());
  if (count == 0)
    return -1;
  auto [known, isNew] = firstSlots.try_emplace(value, static_cast<Slot>(objects.size()));
  Slot first = known->second;
  if (isNew) {
    objects.resize(objects.size() + count);
    flows.resize(objects.size());
    if (comesIn(value))
      for (unsigned index = 0; index < count; ++index)
        for (ObjectId object : incoming(*this, value, index))
          put(first + static_cast<Slot>(index), object);
  }
  return first + static_cast<Slot>(slot);
}

void MemoryFlow::put(Slot slot, ObjectId object) {
  Objects &known = objects[slot];
  auto *place = llvm::lower_bound(known, object);
  if (place != known.end() && *place == object)
    return;
  known.insert(place, object);
  changed.push_back(slot);
}

void MemoryFlow::flow(Slot from, Slot to) {
  if (from < 0 || to < 0 || from == to)
    return;
  flows[from].push_back(to);
  changed.push_back(from);
}

/// Slot by slot if both have as many, or else from each to each.
void MemoryFlow::flow(Value from, Value to) {
  unsigned given = numSlots(from.getType()), wanted = numSlots(to.getType());
  for (unsigned a = 0; a < given; ++a)
    for (unsigned b = 0; b < wanted; ++b)
      if (given != wanted || a == b)
        flow(slotOf(from, a), slotOf(to, b));
}

void MemoryFlow::flowAll(ValueRange from, ValueRange to) {
  for (Value source : from)
    for (Value target : to)
      flow(source, target);
}

void MemoryFlow::expose(Value value) {
  for (unsigned slot = 0; slot < numSlots(value.getType()); ++slot)
    flow(slotOf(value, slot), exposedSlot);
}

void MemoryFlow::makeFresh(Value value) {
  for (unsigned slot = 0; slot < numSlots(value.getType()); ++slot)
    put(slotOf(value, slot), addObject());
}

void MemoryFlow::propagate() {
  while (!changed.empty()) {
    Slot from = changed.back();
    changed.pop_back();
    Objects carried = objects[from];
    for (Slot to : flows[from])
      for (ObjectId object : carried)
        put(to, object);
  }
  for (ObjectId object : objects[exposedSlot])
    exposed[object] = true;
}

//===-----------------------------------------------------------------------------------------===//
// Operations
//===-----------------------------------------------------------------------------------------===//

/// Returns true if nobody knows what an operation does.
static bool isUnknown(Operation *op) { return hasUndeclaredEffects(op) && !op->hasTrait<OpTrait::IsTerminator>(); }

/// Returns true if memory enters or leaves the regions of an operation other than by captured values.
static bool passesMemory(Operation *op) {
  auto carries = [](Value value) { return numSlots(value.getType()) > 0; };
  for (Region &region : op->getRegions())
    for (Block &block : region)
      if (llvm::any_of(block.getArguments(), carries) ||
          (!block.empty() && block.back().hasTrait<OpTrait::IsTerminator>() &&
           llvm::any_of(block.back().getOperands(), carries)))
        return true;
  return false;
}

void MemoryFlow::visit(Operation *op) {
  // Every value that is used gets its slots, so that of() knows it.
  for (Value operand : op->getOperands())
    slotOf(operand);
  if (auto start = dyn_cast<CollectiveOpInterface>(op))
    return visitStart(start);
  if (auto wait = dyn_cast<WaitOp>(op)) {
    for (OpResult result : wait->getResults())
      flow(slotOf(wait.getFuture(), result.getResultNumber()), slotOf(result));
    return;
  }
  if (auto call = dyn_cast<CallOpInterface>(op))
    return visitCall(call);
  if (auto branch = dyn_cast<BranchOpInterface>(op))
    return visitBranch(branch);
  if (isa<RegionBranchOpInterface>(op) || passesMemory(op))
    return visitRegions(op);
  if (!op->hasTrait<OpTrait::IsTerminator>() && !visitView(op))
    visitLeaf(op);
}

void MemoryFlow::visitStart(CollectiveOpInterface start) {
  Value future = start.getCollectiveFuture();
  OperandRange dests = start.getCollectiveDests();
  unsigned values = numSlots(future.getType()) - 1;
  for (unsigned slot = 0; slot < values; ++slot) {
    if (!dests.empty()) {
      flow(slotOf(dests[slot]), slotOf(future, slot));
      continue;
    }
    put(slotOf(future, slot), addObject(/*isExposed=*/false, /*isReceived=*/true));
  }
  for (Value input : start.getCollectiveInputs())
    flow(slotOf(input), slotOf(future, values));
}

void MemoryFlow::visitRegions(Operation *op) {
  SmallVector<Value> given(op->getOperands()), taken;
  llvm::DenseSet<Value> named;
  auto branch = dyn_cast<RegionBranchOpInterface>(op);
  if (branch) {
    RegionBranchSuccessorMapping mapping;
    branch.getSuccessorOperandInputMapping(mapping);
    for (auto &[operand, inputs] : mapping)
      for (Value input : inputs) {
        flow(operand->get(), input);
        named.insert(input);
      }
  }
  // What no branch names may be anything that the operation is given, or that its regions pass on.
  for (Region &region : op->getRegions())
    for (Block &inner : region) {
      if (!branch || inner.isEntryBlock())
        llvm::append_range(taken, inner.getArguments());
      if (!inner.empty() && inner.back().hasTrait<OpTrait::IsTerminator>())
        llvm::append_range(given, inner.back().getOperands());
    }
  llvm::append_range(taken, op->getResults());
  llvm::erase_if(taken, [&](Value value) { return named.contains(value) || numSlots(value.getType()) == 0; });
  flowAll(given, taken);
  if (!branch)
    for (Value value : taken)
      if (isa<BaseMemRefType>(value.getType()))
        put(slotOf(value), kAnyExposed);
}

/// What the terminator of the block in question hands on is there after the block, in a later run of it at the
/// earliest.
void MemoryFlow::visitBranch(BranchOpInterface branch) {
  if (branch->getBlock() == block)
    return;
  for (auto [index, successor] : llvm::enumerate(branch->getSuccessors())) {
    SuccessorOperands operands = branch.getSuccessorOperands(static_cast<unsigned>(index));
    for (BlockArgument argument : successor->getArguments()) {
      Value operand = operands[argument.getArgNumber()];
      if (operand)
        flow(operand, argument);
      else if (isa<BaseMemRefType>(argument.getType()))
        put(slotOf(argument), kAnyExposed);
    }
  }
}

void MemoryFlow::visitCall(CallOpInterface call) {
  auto operands = slotsOf(call.getArgOperands());
  auto results = slotsOf(call->getResults());
  const CallSummaries::Summary *summary = summaries.of(call);
  if (!summary || summary->arguments.size() != operands.size() || summary->results.size() != results.size())
    return visitUnknown(call);
  for (auto [operand, argument] : llvm::zip_equal(operands, summary->arguments))
    if (argument.captured)
      flow(slotOf(operand.first, operand.second), exposedSlot);
  // Indexed by number of what the callee makes.
  llvm::DenseMap<int32_t, ObjectId> made;
  for (auto [result, what] : llvm::zip_equal(results, summary->results)) {
    Slot slot = slotOf(result.first, result.second);
    for (int32_t argument : what.arguments)
      flow(slotOf(operands[argument].first, operands[argument].second), slot);
    for (int32_t number : what.made) {
      auto [known, isNew] = made.try_emplace(number);
      if (isNew)
        known->second = addObject();
      put(slot, known->second);
    }
    if (what.outside)
      put(slot, kOutside);
    if (what.unknown)
      put(slot, kAnyExposed);
  }
}

/// Whoever may do anything may keep what it is given, and return it.
void MemoryFlow::visitUnknown(Operation *op) {
  for (Value operand : op->getOperands())
    expose(operand);
  flowAll(op->getOperands(), op->getResults());
  for (OpResult result : op->getResults()) {
    makeFresh(result);
    for (unsigned slot = 0; slot < numSlots(result.getType()); ++slot)
      if (!isa<TensorType>(result.getType()))
        put(slotOf(result, slot), kAnyExposed);
  }
}

/// Handles operations that name the operands which their results share.
bool MemoryFlow::visitView(Operation *op) {
  if (auto copyIn = dyn_cast<FsdpAllGatherCopyInOp>(op)) {
    // The slice is a part of the buffer.
    copyIn.getDest() ? flow(copyIn.getDest(), copyIn.getBuffer()) : makeFresh(copyIn.getBuffer());
    flow(copyIn.getBuffer(), copyIn.getSlice());
    return true;
  }
  if (auto storage = dyn_cast<StorageOpInterface>(op)) {
    for (OpResult result : op->getResults())
      if (std::optional<unsigned> operand = storage.getAliasedOperand(result.getResultNumber()))
        flow(op->getOperand(*operand), result);
      else
        makeFresh(result);
    return true;
  }
  if (auto select = dyn_cast<SelectLikeOpInterface>(op)) {
    flowAll({select.getTrueValue(), select.getFalseValue()}, op->getResults());
    return true;
  }
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op); insert && op->hasAttr("in_place")) {
    flowAll({insert.getSource(), insert.getDest()}, op->getResults());
    return true;
  }
  if (isa<ViewLikeOpInterface, tensor::CastOp, tensor::BitcastOp, tensor::CollapseShapeOp, tensor::ExpandShapeOp,
          tensor::ReshapeOp, tensor::ExtractSliceOp, bufferization::ToTensorOp, bufferization::ToBufferOp>(op)) {
    auto view = dyn_cast<ViewLikeOpInterface>(op);
    flowAll(view ? view.getViewSource() : op->getOperand(0), op->getResults());
    return true;
  }
  return false;
}

void MemoryFlow::visitLeaf(Operation *op) {
  if (isUnknown(op))
    return visitUnknown(op);
  exposeCaptured(op);
  for (OpResult result : op->getResults()) {
    if (isa<TensorType>(result.getType())) {
      makeFresh(result);
      continue;
    }
    if (isa<FutureType>(result.getType()))
      flowAll(op->getOperands(), result);
    else if (isa<BaseMemRefType>(result.getType()))
      visitMemref(result);
  }
}

/// Returns true if the only addresses that an operation has are memrefs, and if it passes them on in memrefs alone
/// (memref.transpose). Without effects it loads and keeps none.
static bool makesView(Operation *op) {
  return isMemoryEffectFree(op) && llvm::any_of(op->getOperandTypes(), llvm::IsaPred<BaseMemRefType>) &&
         llvm::all_of(op->getOperandTypes(), llvm::IsaPred<BaseMemRefType, IntegerType, IndexType>) &&
         llvm::all_of(op->getResultTypes(), llvm::IsaPred<BaseMemRefType>);
}

/// A memref that is no view by an interface: new, a global, or loaded from memory.
void MemoryFlow::visitMemref(OpResult result) {
  Operation *op = result.getOwner();
  auto effects = dyn_cast<MemoryEffectOpInterface>(op);
  if (effects && effects.getEffectOnValue<MemoryEffects::Allocate>(result))
    return makeFresh(result);
  if (isMemoryEffectFree(op) && op->getNumOperands() == 0)
    return put(slotOf(result), kOutside);
  if (!makesView(op))
    put(slotOf(result), kAnyExposed);
  for (Value operand : op->getOperands()) {
    SmallVector<MemoryEffects::EffectInstance> named;
    if (effects)
      effects.getEffectsOnValue(operand, named);
    if (named.empty())
      flow(operand, result);
  }
}

/// Returns true for values that cannot hold an address.
static bool isNumber(Type type) {
  return isa<IntegerType, IndexType, FloatType, ComplexType, VectorType, TensorType>(type);
}

/// A memref that an operation is given, and of which it names no effect, may be kept: stored in memory, or hidden in a
/// value of another type.
void MemoryFlow::exposeCaptured(Operation *op) {
  if (isMemoryEffectFree(op) && llvm::all_of(op->getResultTypes(), isNumber) &&
      !isa<memref::ExtractAlignedPointerAsIndexOp>(op))
    return;
  if (makesView(op))
    return;
  auto effects = dyn_cast<MemoryEffectOpInterface>(op);
  for (Value operand : op->getOperands()) {
    if (!isa<BaseMemRefType>(operand.getType()))
      continue;
    SmallVector<MemoryEffects::EffectInstance> named;
    if (effects)
      effects.getEffectsOnValue(operand, named);
    if (named.empty())
      expose(operand);
  }
}
