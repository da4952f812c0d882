//===- StorageMarkers.cpp - Facts about futures for bufferization -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A marker is a `comm.compute` with a reserved name. BufferizableModels.cpp defines its meaning for upstream.
//
//===------------------------------------------------------------------------------------------===//

#include "StorageMarkers.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Analysis/TensorPlaces.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

static bool isOnTensors(FutureType future) { return llvm::any_of(future.getTypes(), llvm::IsaPred<TensorType>); }

/// Returns true if a start has tensors in flight.
static bool isOnTensors(CollectiveOpInterface start) {
  return isOnTensors(cast<FutureType>(start.getCollectiveFuture().getType())) ||
         llvm::any_of(start.getCollectiveInputs().getTypes(), llvm::IsaPred<TensorType>);
}

static std::string placeOf(Operation *op) {
  std::vector<std::string> names = describeLocation(op->getLoc());
  return names.empty() ? op->getName().getStringRef().str() : names.front();
}

std::string commsched::findObstacleToAnalysis(ModuleOp module) {
  std::string obstacle;
  module.walk([&](Operation *op) {
    if (auto start = dyn_cast<CollectiveOpInterface>(op); start && isOnTensors(start)) {
      for (Operation *user : start.getCollectiveFuture().getUsers())
        if (!isa<WaitOp>(user))
          obstacle = "the future of the collective at " + placeOf(op) + " leaves its block";
    } else if (auto wait = dyn_cast<WaitOp>(op); wait && isOnTensors(cast<FutureType>(wait.getFuture().getType()))) {
      if (!wait.getFuture().getDefiningOp<CollectiveOpInterface>())
        obstacle = "the wait at " + placeOf(op) + " is for a future from elsewhere";
    } else if (auto toTensor = dyn_cast<bufferization::ToTensorOp>(op); toTensor && !toTensor.getRestrict()) {
      obstacle = "the tensor at " + placeOf(op) + " may share its buffer with others";
    }
    return obstacle.empty() ? WalkResult::advance() : WalkResult::interrupt();
  });
  return obstacle;
}

bool commsched::areResultsWritable(WaitOp wait) {
  Operation *start = wait.getFuture().getDefiningOp();
  return start && start->getBlock() == wait->getBlock() && wait.getFuture().hasOneUse();
}

/// A computation `name` whose result i shares the storage of operand i, for the first `numResults` operands.
static ComputeOp createMarker(OpBuilder &builder, Location loc, StringRef name, ValueRange operands,
                              unsigned numResults) {
  auto aliases = llvm::to_vector(llvm::seq<int64_t>(0, numResults));
  return ComputeOp::create(builder, loc, operands.take_front(numResults).getTypes(), builder.getStringAttr(name),
                           operands, builder.getDenseI64ArrayAttr(aliases), nullptr, nullptr);
}

/// Marks at `wait` the tensors that were in flight until then, and the storage of the results.
static void markWait(WaitOp wait, CollectiveOpInterface start) {
  SmallVector<Value> operands(start.getCollectiveDests());
  unsigned numResults = operands.size();
  llvm::append_range(operands, start.getCollectiveInputs());
  llvm::erase_if(operands, [](Value value) { return !isa<TensorType>(value.getType()); });
  if (operands.empty())
    return;
  OpBuilder builder(wait->getContext());
  builder.setInsertionPointAfter(wait);
  ComputeOp marker = createMarker(builder, wait.getLoc(), kInFlightMarker, operands, numResults);
  if (numResults > 0)
    wait->replaceAllUsesWith(marker->getResults());
}

/// The slice is part of the buffer.
static void markCopyIn(FsdpAllGatherCopyInOp copyIn) {
  if (!isa<TensorType>(copyIn.getSlice().getType()))
    return;
  OpBuilder builder(copyIn->getContext());
  builder.setInsertionPointAfter(copyIn);
  ComputeOp marker = createMarker(builder, copyIn.getLoc(), kSharedMarker, {copyIn.getSlice(), copyIn.getBuffer()}, 1);
  copyIn.getSlice().replaceAllUsesExcept(marker->getResult(0), marker);
}

//===-----------------------------------------------------------------------------------------===//
// Destinations
//===-----------------------------------------------------------------------------------------===//

/// The storage of a tensor as far as operations of the dialect say: their views and destinations are followed.
static Value followStorage(Value tensor) {
  while (auto result = dyn_cast<OpResult>(tensor)) {
    if (auto copyIn = dyn_cast<FsdpAllGatherCopyInOp>(result.getOwner()); copyIn && !copyIn.getDest())
      return copyIn.getBuffer();
    auto storage = dyn_cast<StorageOpInterface>(result.getOwner());
    std::optional<unsigned> operand =
        storage ? storage.getAliasedOperand(result.getResultNumber()) : std::optional<unsigned>();
    if (!operand || !isa<TensorType>(result.getOwner()->getOperand(*operand).getType()))
      break;
    tensor = result.getOwner()->getOperand(*operand);
  }
  return tensor;
}

/// The numbers of the inputs of a collective that are part of its destination.
static SmallVector<int64_t> findInputsIn(Operation *op, Value dest) {
  SmallVector<int64_t> inputs;
  if (auto start = dyn_cast<CollectiveOpInterface>(op))
    for (auto [index, input] : llvm::enumerate(start.getCollectiveInputs()))
      if (isa<TensorType>(input.getType()) && followStorage(input) == followStorage(dest))
        inputs.push_back(static_cast<int64_t>(index));
  return inputs;
}

/// Returns whether `op` is certainly the only one that uses the storage of `dest`: an operation of its block that is no
/// view made it for `op` alone.
static bool isOnlyUser(Operation *op, Value dest) {
  Operation *def = dest.getDefiningOp();
  if (!def || def->getBlock() != op->getBlock() ||
      llvm::any_of(dest.getUsers(), [&](Operation *user) { return user != op; }))
    return false;
  if (isa<tensor::EmptyOp, bufferization::AllocTensorOp>(def))
    return true;
  auto compute = dyn_cast<ComputeOp>(def);
  return compute && !compute.getAliasedOperand(cast<OpResult>(dest).getResultNumber());
}

void commsched::markSharedDestinations(ModuleOp module) {
  TensorPlaces places(module);
  SmallVector<OpOperand *> dests;
  module.walk([&](Operation *op) {
    for (OpOperand *dest : findDestinations(op))
      if (!places.isPlace(dest->get()) && !isOnlyUser(op, dest->get()))
        dests.push_back(dest);
  });
  for (OpOperand *dest : dests) {
    Operation *op = dest->getOwner();
    OpBuilder builder(op);
    ComputeOp marker = createMarker(builder, op->getLoc(), kDestinationMarker, dest->get(), 1);
    marker->setDiscardableAttr(kInPlaceInputsAttrName, builder.getDenseI64ArrayAttr(findInputsIn(op, dest->get())));
    dest->set(marker->getResult(0));
  }
}

bool commsched::isUndefined(Value tensor) {
  auto compute = tensor.getDefiningOp<ComputeOp>();
  return tensor.getDefiningOp<tensor::EmptyOp>() || (compute && compute.getName() == kStorageMarker);
}

bool commsched::isReadInPlace(OpOperand &read, OpOperand &write) {
  auto marker = dyn_cast<ComputeOp>(write.getOwner());
  if (!marker || marker.getName() != kDestinationMarker)
    return false;
  CollectiveOpInterface start;
  for (Operation *user : marker->getResult(0).getUsers())
    if (auto found = dyn_cast<CollectiveOpInterface>(user))
      start = found;
  if (!start)
    return false;
  // The wait reads the inputs, too, because they are in flight until then.
  auto wait = dyn_cast<ComputeOp>(read.getOwner());
  bool isWait = wait && wait.getName() == kInFlightMarker && llvm::is_contained(wait.getInputs(), marker->getResult(0));
  if (read.getOwner() != start && !isWait)
    return false;
  auto inputs = marker->getAttrOfType<DenseI64ArrayAttr>(kInPlaceInputsAttrName);
  return inputs && llvm::any_of(inputs.asArrayRef(),
                                [&](int64_t index) { return start.getCollectiveInputs()[index] == read.get(); });
}

/// The analysis treats the contents of a `tensor.empty` as undefined and would let several of its users share one
/// buffer, in which each overwrites the others' results. As a destination it is storage.
static void defineStorage(Value dest) {
  while (auto result = dyn_cast<OpResult>(dest)) {
    if (auto empty = dyn_cast<tensor::EmptyOp>(result.getOwner())) {
      if (!empty.getType().hasStaticShape())
        return;
      OpBuilder builder(empty);
      auto defined = ComputeOp::create(builder, empty.getLoc(), TypeRange{empty.getType()},
                                       builder.getStringAttr(kStorageMarker), ValueRange(), nullptr, nullptr, nullptr);
      defined->setDiscardableAttrs(empty->getDiscardableAttrDictionary());
      empty->replaceAllUsesWith(defined->getResults());
      empty->erase();
      return;
    }
    dest = getAliasedValue(result);
    if (!dest)
      return;
  }
}

/// The arguments of public functions belong to the caller.
static void protectArguments(ModuleOp module) {
  auto writable = BoolAttr::get(module.getContext(), false);
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function.isPublic())
      continue;
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (isa<TensorType>(function.getArgument(i).getType()) &&
          !function.getArgAttr(i, CommDialect::kDonatedAttrName) &&
          !function.getArgAttr(i, bufferization::BufferizationDialect::kWritableAttrName))
        function.setArgAttr(i, bufferization::BufferizationDialect::kWritableAttrName, writable);
  }
}

void commsched::insertStorageMarkers(ModuleOp module) {
  markSharedDestinations(module);
  SmallVector<WaitOp> waits;
  SmallVector<FsdpAllGatherCopyInOp> copyIns;
  SmallVector<Value> dests;
  module.walk([&](Operation *op) {
    if (auto wait = dyn_cast<WaitOp>(op))
      waits.push_back(wait);
    else if (auto copyIn = dyn_cast<FsdpAllGatherCopyInOp>(op))
      copyIns.push_back(copyIn);
    // Every operand of tensor type that an operation of the dialect writes.
    if (isa_and_nonnull<CommDialect>(op->getDialect())) {
      if (auto start = dyn_cast<CollectiveOpInterface>(op))
        llvm::append_range(dests, start.getCollectiveDests());
      else if (isa<StorageOpInterface>(op))
        for (OpOperand &operand : op->getOpOperands())
          if (isa<TensorType>(operand.get().getType()) && mutatesOperand(operand))
            dests.push_back(operand.get());
    }
  });
  for (WaitOp wait : waits)
    if (auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>())
      markWait(wait, start);
  for (FsdpAllGatherCopyInOp copyIn : copyIns)
    markCopyIn(copyIn);
  llvm::SmallDenseSet<Value> seen;
  for (Value dest : dests)
    if (seen.insert(dest).second)
      defineStorage(dest);
  protectArguments(module);
}
