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
#include "mlir/IR/RegionGraphTraits.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/IntEqClasses.h"
#include "llvm/ADT/SCCIterator.h"
#include "llvm/ADT/SetVector.h"

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

/// The first operation on tensors in a loop of basic blocks of a region; null if there is none. Upstream's analysis
/// knows loops from regions only: it takes a write in such a loop for one that happens once, and loses the conflicts of
/// what a branch back copies.
static Operation *findTensorsInCycle(Region &region) {
  auto areTensors = [](TypeRange types) { return llvm::any_of(types, llvm::IsaPred<TensorType>); };
  if (region.empty() || region.hasOneBlock())
    return nullptr;
  for (auto scc = llvm::scc_begin(&region); !scc.isAtEnd(); ++scc) {
    if (!scc.hasCycle())
      continue;
    for (Block *block : *scc)
      for (Operation &op : *block)
        if (areTensors(op.getOperandTypes()) || areTensors(op.getResultTypes()))
          return &op;
  }
  return nullptr;
}

std::string commsched::findObstacleToAnalysis(ModuleOp module) {
  std::string obstacle;
  module.walk([&](Operation *op) {
    for (Region &region : op->getRegions())
      if (Operation *inCycle = findTensorsInCycle(region))
        obstacle = "the operation at " + placeOf(inCycle) + " is on tensors in a loop of basic blocks";
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
// Results of calls
//===-----------------------------------------------------------------------------------------===//

namespace {
/// Tensors of a function that may share storage, whatever bufferization decides.
class SharedStorage {
public:
  explicit SharedStorage(FunctionOpInterface function) {
    function->walk([&](Operation *op) { visit(op); });
  }

  /// Returns whether a tensor may be a constant, which nobody may write.
  bool mayBeConstant(Value tensor) {
    return llvm::any_of(constants, [&](Value constant) { return mayShare(tensor, constant); });
  }

  bool mayShare(Value a, Value b) { return classes.findLeader(numberOf(a)) == classes.findLeader(numberOf(b)); }

private:
  unsigned numberOf(Value value) {
    auto [it, isNew] = numbers.try_emplace(value, numbers.size());
    if (isNew)
      classes.grow(numbers.size());
    return it->second;
  }

  void join(Value a, Value b) {
    if (a && b && isa<TensorType>(a.getType()) && isa<TensorType>(b.getType()))
      classes.join(numberOf(a), numberOf(b));
  }

  void visit(Operation *op) {
    if (auto branch = dyn_cast<RegionBranchOpInterface>(op)) {
      RegionBranchSuccessorMapping mapping;
      branch.getSuccessorOperandInputMapping(mapping);
      for (auto &[operand, inputs] : mapping)
        for (Value input : inputs)
          join(operand->get(), input);
      return;
    }
    if (auto branch = dyn_cast<BranchOpInterface>(op))
      for (unsigned i = 0; i < op->getNumSuccessors(); ++i) {
        SuccessorOperands operands = branch.getSuccessorOperands(i);
        for (auto [index, argument] : llvm::enumerate(op->getSuccessor(i)->getArguments()))
          join(operands[index], argument);
      }
    if (op->hasTrait<OpTrait::ConstantLike>() && isa<TensorType>(op->getResult(0).getType()))
      constants.push_back(op->getResult(0));
    auto style = dyn_cast<DestinationStyleOpInterface>(op);
    for (OpResult result : op->getResults())
      if (style)
        join(result, style.getTiedOpOperand(result)->get());
      else if (auto wait = dyn_cast<WaitOp>(op); wait && wait.getFuture().getDefiningOp<CollectiveOpInterface>())
        join(result, findDestination(wait, result.getResultNumber()));
      else if (isa<StorageOpInterface>(op))
        join(result, getAliasedValue(result));
      else if (!isa<bufferization::AllocTensorOp, tensor::PadOp, tensor::ConcatOp>(op))
        joinAll(op, result);
  }

  static Value findDestination(WaitOp wait, unsigned index) {
    OperandRange dests = wait.getFuture().getDefiningOp<CollectiveOpInterface>().getCollectiveDests();
    return index < dests.size() ? dests[index] : Value();
  }

  /// Of other operations, calls among them, every result may be every operand and every other result.
  void joinAll(Operation *op, Value result) {
    for (Value operand : op->getOperands())
      join(result, operand);
    if (isa<CallOpInterface>(op))
      for (Value other : op->getResults())
        join(result, other);
  }

  llvm::IntEqClasses classes;
  llvm::DenseMap<Value, unsigned> numbers;
  SmallVector<Value> constants;
};
} // namespace

/// Upstream lets callers write what a function returns. What may be a constant is copied in front of the return.
static void copyReturnedConstants(ModuleOp module) {
  llvm::SetVector<func::FuncOp> called;
  SymbolTableCollection symbols;
  module.walk([&](func::CallOp call) {
    if (auto function = symbols.lookupNearestSymbolFrom<func::FuncOp>(call, call.getCalleeAttr());
        function && !function.isExternal())
      called.insert(function);
  });
  for (func::FuncOp function : called) {
    SharedStorage shared(function);
    TensorPlaces places(function);
    function.walk([&](func::ReturnOp end) {
      OpBuilder builder(end);
      for (OpOperand &returned : end->getOpOperands())
        if (auto type = dyn_cast<RankedTensorType>(returned.get().getType());
            type && shared.mayBeConstant(returned.get()) && !places.isPlace(returned.get()))
          returned.set(bufferization::AllocTensorOp::create(builder, end.getLoc(), type, ValueRange(), returned.get()));
    });
  }
}

/// Upstream knows which results of a call are which arguments. That two results may be one tensor, it does not know.
static void markSharedResults(ModuleOp module) {
  SymbolTableCollection symbols;
  module.walk([&](func::CallOp call) {
    auto function = symbols.lookupNearestSymbolFrom<func::FuncOp>(call, call.getCalleeAttr());
    if (!function || function.isExternal() || llvm::count_if(call.getResultTypes(), llvm::IsaPred<TensorType>) < 2)
      return;
    SharedStorage shared(function);
    SmallVector<SmallVector<Value>> groups(call.getNumResults());
    function.walk([&](func::ReturnOp end) {
      for (unsigned i = 0; i < call.getNumResults(); ++i)
        for (unsigned j = 0; j < call.getNumResults(); ++j)
          if (i != j && isa<TensorType>(call.getResultTypes()[i]) && isa<TensorType>(call.getResultTypes()[j]) &&
              shared.mayShare(end.getOperand(i), end.getOperand(j)) &&
              !llvm::is_contained(groups[i], call.getResult(j)))
            groups[i].push_back(call.getResult(j));
    });
    OpBuilder builder(call->getContext());
    builder.setInsertionPointAfter(call);
    SmallVector<std::pair<Value, ComputeOp>> markers;
    for (auto [result, others] : llvm::zip_equal(call.getResults(), groups)) {
      if (others.empty())
        continue;
      others.insert(others.begin(), result);
      markers.push_back({result, createMarker(builder, call.getLoc(), kSharedMarker, others, 1)});
    }
    for (auto [result, marker] : markers)
      result.replaceUsesWithIf(marker->getResult(0), [](OpOperand &use) {
        auto compute = dyn_cast<ComputeOp>(use.getOwner());
        return !compute || compute.getName() != kSharedMarker;
      });
  });
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

/// The input of a collective that `dest` may be: of several values, only the one of the same number is read before it
/// is overwritten. Null if there is none.
static OpOperand *findInputInPlace(OpOperand &dest) {
  auto start = dyn_cast<CollectiveOpInterface>(dest.getOwner());
  if (!start)
    return nullptr;
  unsigned index = dest.getOperandNumber() - start.getCollectiveDests().getBeginOperandIndex();
  OperandRange inputs = start.getCollectiveInputs();
  return index < inputs.size() ? &start->getOpOperand(inputs.getBeginOperandIndex() + index) : nullptr;
}

/// The number of the input of a collective that is part of this destination of it, if there is one.
static SmallVector<int64_t> findInputsIn(OpOperand &dest) {
  OpOperand *input = findInputInPlace(dest);
  if (!input || !isa<TensorType>(input->get().getType()) || followStorage(input->get()) != followStorage(dest.get()))
    return {};
  auto start = cast<CollectiveOpInterface>(dest.getOwner());
  return {input->getOperandNumber() - start.getCollectiveInputs().getBeginOperandIndex()};
}

/// Returns whether nothing but this destination certainly uses its storage: an operation of the block that is no view
/// made it for this one alone.
static bool isOnlyUse(OpOperand &dest) {
  Operation *def = dest.get().getDefiningOp();
  OpOperand *input = findInputInPlace(dest);
  if (!def || def->getBlock() != dest.getOwner()->getBlock() ||
      llvm::any_of(dest.get().getUses(), [&](OpOperand &use) { return &use != &dest && &use != input; }))
    return false;
  if (isa<tensor::EmptyOp, bufferization::AllocTensorOp>(def))
    return true;
  auto compute = dyn_cast<ComputeOp>(def);
  return compute && !compute.getAliasedOperand(cast<OpResult>(dest.get()).getResultNumber());
}

void commsched::markSharedDestinations(ModuleOp module) {
  TensorPlaces places(module);
  SmallVector<OpOperand *> dests;
  module.walk([&](Operation *op) {
    for (OpOperand *dest : findDestinations(op))
      if (!places.isPlace(dest->get()) && !isOnlyUse(*dest))
        dests.push_back(dest);
  });
  for (OpOperand *dest : dests) {
    Operation *op = dest->getOwner();
    OpBuilder builder(op);
    ComputeOp marker = createMarker(builder, op->getLoc(), kDestinationMarker, dest->get(), 1);
    marker->setDiscardableAttr(kInPlaceInputsAttrName, builder.getDenseI64ArrayAttr(findInputsIn(*dest)));
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
  // The wait reads the inputs, too, because they are in flight until then. A value may be several inputs.
  unsigned first = start.getCollectiveInputs().getBeginOperandIndex();
  if (read.getOwner() != start) {
    auto wait = dyn_cast<ComputeOp>(read.getOwner());
    if (!wait || wait.getName() != kInFlightMarker || !llvm::is_contained(wait.getInputs(), marker->getResult(0)))
      return false;
    first = wait->getNumResults();
  }
  auto inputs = marker->getAttrOfType<DenseI64ArrayAttr>(kInPlaceInputsAttrName);
  return inputs && read.getOperandNumber() >= first &&
         llvm::is_contained(inputs.asArrayRef(), int64_t(read.getOperandNumber() - first));
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

/// Of two accesses of an argument of a basic block, upstream's analysis sees those in that block alone: a write in
/// another block would be in place although the argument is read later. It sees all accesses of what an operation
/// defines.
static void markBlockArguments(ModuleOp module) {
  SmallVector<BlockArgument> arguments;
  module.walk([&](Operation *op) {
    for (Region &region : op->getRegions())
      if (!region.empty() && !region.hasOneBlock())
        for (Block &block : region)
          llvm::copy_if(block.getArguments(), std::back_inserter(arguments),
                        [](BlockArgument argument) { return isa<RankedTensorType>(argument.getType()); });
  });
  OpBuilder builder(module.getContext());
  for (BlockArgument argument : arguments) {
    builder.setInsertionPointToStart(argument.getOwner());
    ComputeOp marker = createMarker(builder, argument.getLoc(), kArgumentMarker, argument, 1);
    argument.replaceAllUsesExcept(marker->getResult(0), marker);
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
  copyReturnedConstants(module);
  markSharedResults(module);
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
  markBlockArguments(module);
  protectArguments(module);
}
