//===- TensorPlaces.cpp - Tensors that programs use as places ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/TensorPlaces.h"
#include "CarriedTensors.h"
#include "CommSched/Analysis/Storage.h"
#include "TensorParts.h"
#include "mlir/Analysis/CallGraph.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SCCIterator.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

//===-----------------------------------------------------------------------------------------===//
// One operation
//===-----------------------------------------------------------------------------------------===//

static bool isTensor(Value value) { return isa<TensorType>(value.getType()); }

SmallVector<OpOperand *> commsched::findDestinations(Operation *op) {
  SmallVector<OpOperand *> dests;
  auto start = dyn_cast<CollectiveOpInterface>(op);
  if (!start && !isa<FsdpAllGatherCopyInOp, FsdpSplitWithSizesCopyOp, FsdpChunkCatOp>(op))
    return dests;
  for (OpOperand &operand : op->getOpOperands()) {
    unsigned number = operand.getOperandNumber();
    bool isDest = start ? number >= start.getCollectiveInputs().size() &&
                              number < start.getCollectiveInputs().size() + start.getCollectiveDests().size()
                        : mutatesOperand(operand);
    if (isDest && isTensor(operand.get()))
      dests.push_back(&operand);
  }
  return dests;
}

static bool isDestination(OpOperand &operand) {
  return llvm::is_contained(findDestinations(operand.getOwner()), &operand);
}

bool commsched::writesTensor(OpOperand &operand) {
  Operation *op = operand.getOwner();
  return isDestination(operand) ||
         (!isa<CollectiveOpInterface>(op) && isa<StorageOpInterface>(op) && mutatesOperand(operand));
}

/// Returns true if an operation only makes views: other names of the storage of its operands.
static bool isView(Operation *op) {
  if (auto compute = dyn_cast<ComputeOp>(op))
    return compute.getAliases() && !compute.getMutates() && !compute.getSideEffects() &&
           llvm::all_of(*compute.getAliases(), [](int64_t operand) { return operand >= 0; });
  return isa<ViewLikeOpInterface, FsdpSplitWithSizesOp, tensor::CastOp, tensor::BitcastOp, tensor::CollapseShapeOp,
             tensor::ExpandShapeOp, tensor::ReshapeOp, tensor::ExtractSliceOp, bufferization::ToTensorOp,
             bufferization::ToBufferOp, arith::SelectOp>(op);
}

/// Returns true if an operation passes values on and accesses none: control flow with regions, and its terminators.
static bool passesOn(Operation *op) {
  return isa<RegionBranchOpInterface, BranchOpInterface, CallOpInterface, FunctionOpInterface>(op) ||
         (op->hasTrait<OpTrait::IsTerminator>() && !isa<FunctionOpInterface>(op->getParentOp()));
}

/// Returns true if an operation looks at the type of a tensor, and not at its contents.
static bool readsShapeOnly(Operation *op) { return isa<tensor::DimOp, tensor::RankOp>(op); }

//===-----------------------------------------------------------------------------------------===//
// Classes
//===-----------------------------------------------------------------------------------------===//

unsigned TensorPlaces::numberOf(Value value) {
  auto [it, isNew] = numbers.try_emplace(value, numbers.size());
  if (isNew)
    classes.grow(numbers.size());
  return it->second;
}

void TensorPlaces::join(Value a, Value b) {
  if (isTensor(a) && isTensor(b))
    classes.join(numberOf(a), numberOf(b));
}

/// Joins the names that an operation gives to the storage of its operands.
void TensorPlaces::joinAliases(Operation *op) {
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    join(select.getResult(), select.getTrueValue());
    join(select.getResult(), select.getFalseValue());
  } else if (auto copyIn = dyn_cast<FsdpAllGatherCopyInOp>(op)) {
    join(copyIn.getSlice(), copyIn.getBuffer());
  } else if (auto storage = dyn_cast<StorageOpInterface>(op); storage && findDestinations(op).empty()) {
    for (OpResult result : op->getResults())
      if (std::optional<unsigned> operand = storage.getAliasedOperand(result.getResultNumber()))
        join(result, op->getOperand(*operand));
  } else if (isView(op)) {
    for (OpResult result : op->getResults())
      join(result, op->getOperand(0));
  }
}

/// Joins what control flow passes from one name to another.
void TensorPlaces::joinRegions(Operation *op) {
  if (auto branch = dyn_cast<RegionBranchOpInterface>(op)) {
    RegionBranchSuccessorMapping mapping;
    branch.getSuccessorOperandInputMapping(mapping);
    for (auto &[operand, inputs] : mapping)
      for (Value input : inputs)
        join(operand->get(), input);
  }
  if (auto branch = dyn_cast<BranchOpInterface>(op))
    for (unsigned i = 0; i < op->getNumSuccessors(); ++i) {
      SuccessorOperands operands = branch.getSuccessorOperands(i);
      for (auto [index, argument] : llvm::enumerate(op->getSuccessor(i)->getArguments()))
        if (Value operand = operands[index])
          join(operand, argument);
    }
}

/// Joins the operands of a call with the arguments of the function, and what the function returns with the results.
void TensorPlaces::joinCall(Operation *op) {
  auto call = dyn_cast<CallOpInterface>(op);
  auto function = call ? dyn_cast_or_null<FunctionOpInterface>(call.resolveCallable()) : FunctionOpInterface();
  if (!function || function.isExternal() || !root->isAncestor(function))
    return;
  for (auto [operand, argument] : llvm::zip(call.getArgOperands(), function.getArguments()))
    join(operand, argument);
  for (Block &block : function.getFunctionBody())
    if (Operation *end = block.getTerminator(); end->hasTrait<OpTrait::ReturnLike>())
      for (auto [returned, result] : llvm::zip(end->getOperands(), op->getResults()))
        join(returned, result);
}

//===-----------------------------------------------------------------------------------------===//
// Places
//===-----------------------------------------------------------------------------------------===//

static void addOnce(SmallVectorImpl<Operation *> &ops, Operation *op) {
  if (ops.empty() || ops.back() != op)
    ops.push_back(op);
}

/// Adds the accesses of one operation to the classes of its operands.
void TensorPlaces::visitUses(Operation *op) {
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isTensor(operand.get()) || isView(op) || passesOn(op))
      continue;
    Class &info = infos[classes.findLeader(numberOf(operand.get()))];
    if (isDestination(operand))
      addOnce(info.destinations, op);
    else if (writesTensor(operand))
      addOnce(info.mutations, op);
    else if (!isMemoryEffectFree(op) || op->hasTrait<OpTrait::IsTerminator>())
      addOnce(info.reads, op);
  }
}

/// Returns true if `read` comes before `write` whenever both access one storage: it is in front of it in its block, or
/// in the regions of an operation there, and that block makes the storage or nothing repeats it.
static bool isCertainlyBefore(Operation *read, Operation *write, Block *blockOfNames) {
  Block *block = write->getBlock();
  Operation *around = block->findAncestorOpInBlock(*read);
  bool isRunOnce = isa<FunctionOpInterface>(block->getParentOp()) && block->isEntryBlock();
  return around && around != write && (isRunOnce || block == blockOfNames) && around->isBeforeInBlock(write);
}

/// The results of `op` that may have the storage of destination `index`: for a start, those of its waits.
static SmallVector<Value> resultsOf(Operation *op, unsigned index) {
  auto start = dyn_cast<CollectiveOpInterface>(op);
  if (!start)
    return isa<FsdpAllGatherCopyInOp>(op) ? SmallVector<Value>(op->getResults())
                                          : SmallVector<Value>{op->getResult(index)};
  SmallVector<Value> results;
  for (Operation *user : start.getCollectiveFuture().getUsers())
    if (auto wait = dyn_cast<WaitOp>(user))
      results.push_back(wait.getValues()[index]);
  return results;
}

/// The results of `op` that may be in the storage of a class that it writes, and the results of those that write these.
SmallVector<Value> TensorPlaces::resultsInto(const Class &info, Operation *op) const {
  SmallVector<Value> results;
  llvm::SmallPtrSet<Operation *, 4> seen;
  llvm::SmallVector<std::pair<const Class *, Operation *>> worklist = {{&info, op}};
  while (!worklist.empty()) {
    auto [written, writer] = worklist.pop_back_val();
    if (!seen.insert(writer).second)
      continue;
    for (auto [index, dest] : llvm::enumerate(findDestinations(writer))) {
      if (find(dest->get()) != written)
        continue;
      for (Value result : resultsOf(writer, index)) {
        results.push_back(result);
        if (const Class *own = find(result); own && own != written)
          for (Operation *next : own->destinations)
            worklist.push_back({own, next});
      }
    }
  }
  return results;
}

/// Returns true if an operation with memory effects may read a result of the write `first` behind the write `second`
/// into the same storage.
bool TensorPlaces::isResultRead(const Class &info, Operation *first, Operation *second) const {
  return llvm::any_of(resultsInto(info, first), [&](Value result) {
    const Class *own = find(result);
    return own && own != &info && llvm::any_of(own->reads, [&](Operation *read) {
             return read != second && !isCertainlyBefore(read, second, result.getParentBlock());
           });
  });
}

/// Returns true if somebody may read through one of the names of a class what an operation has written there.
bool TensorPlaces::usesAsPlace(const Class &info) const {
  if (!info.mutations.empty())
    return true;
  if (info.destinations.empty())
    return false;
  return info.isCallers || llvm::any_of(info.destinations, [&](Operation *write) {
           return llvm::any_of(
                      info.reads,
                      [&](Operation *read) { return read != write && !isCertainlyBefore(read, write, info.block); }) ||
                  // What another write returned is a name of the storage, too, whatever else reads it.
                  (!info.isMadeByValues && llvm::any_of(info.destinations, [&](Operation *other) {
                    return other != write && isResultRead(info, other, write);
                  }));
         });
}

bool TensorPlaces::becomesPlace(Value tensor, Operation *write) const {
  const Class *known = find(tensor);
  if (!known || known->isPlace)
    return false;
  Class info = *known;
  info.destinations.push_back(write);
  return usesAsPlace(info);
}

/// Finds the accesses to each class, and the places.
void TensorPlaces::findClasses() {
  infos.clear();
  root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    visitUses(op);
    auto function = dyn_cast<FunctionOpInterface>(op);
    if (!function || function.isExternal() || !function.isPublic())
      return;
    for (BlockArgument argument : function.getArguments())
      if (isTensor(argument) && !function.getArgAttr(argument.getArgNumber(), CommDialect::kDonatedAttrName))
        infos[classes.findLeader(numberOf(argument))].isCallers = true;
  });
  llvm::DenseSet<unsigned> seen;
  for (auto [value, number] : numbers) {
    unsigned leader = classes.findLeader(number);
    Class &info = infos[leader];
    info.names.push_back(value);
    Operation *def = value.getDefiningOp();
    info.isMadeByValues |= def && !isView(def) && !passesOn(def) && isMemoryEffectFree(def);
    info.block = seen.insert(leader).second || info.block == value.getParentBlock() ? value.getParentBlock() : nullptr;
  }
  for (auto &[leader, info] : infos)
    info.isPlace = usesAsPlace(info);
}

/// Joins places with the results that are in their storage, if anything may write the storage while such a result is
/// there: another writer, or the same one once more. Returns whether there was something to join.
bool TensorPlaces::joinResultsOfPlaces() {
  bool changed = false;
  root->walk([&](Operation *op) {
    for (auto [index, dest] : llvm::enumerate(findDestinations(op))) {
      const Class *place = find(dest->get());
      if (!place || !place->isPlace)
        continue;
      for (Value result : resultsOf(op, index)) {
        const Class *own = find(result);
        bool isWrittenOnce = place->mutations.empty() && place->destinations.size() == 1 &&
                             isa<FunctionOpInterface>(op->getParentOp()) && (!own || !own->isPlace);
        if (isWrittenOnce || classes.findLeader(numberOf(result)) == classes.findLeader(numberOf(dest->get())))
          continue;
        join(result, dest->get());
        changed = true;
      }
    }
  });
  return changed;
}

/// Returns the functions that may call themselves, directly or through others.
static llvm::SmallPtrSet<Operation *, 4> findRecursive(Operation *root) {
  llvm::SmallPtrSet<Operation *, 4> recursive;
  const CallGraph graph(root);
  for (auto scc = llvm::scc_begin(&graph); !scc.isAtEnd(); ++scc)
    for (const CallGraphNode *node : *scc)
      if (scc.hasCycle() && !node->isExternal())
        recursive.insert(node->getCallableRegion()->getParentOp());
  return recursive;
}

TensorPlaces::TensorPlaces(Operation *root) : root(root), recursive(findRecursive(root)) {
  root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    joinAliases(op);
    joinRegions(op);
    joinCall(op);
  });
  do {
    findClasses();
  } while (joinResultsOfPlaces());
}

const TensorPlaces::Class *TensorPlaces::find(Value tensor) const {
  auto number = numbers.find(tensor);
  if (number == numbers.end())
    return nullptr;
  auto info = infos.find(classes.findLeader(number->second));
  return info == infos.end() ? nullptr : &info->second;
}

bool TensorPlaces::isPlace(Value tensor) const {
  const Class *info = find(tensor);
  return info && info->isPlace;
}

const TensorPlaces::Class *TensorPlaces::findShared(Operation *loop) const {
  llvm::SmallSet<const Class *, 2> seen;
  for (Value carried : getCarried(loop)) {
    const Class *info = find(carried);
    if (info && info->isPlace && seen.insert(info).second && isCopySeen(loop, info->names, info->isCallers))
      return info;
  }
  return nullptr;
}

/// A place that is passed to a recursive function. Bufferization knows nothing of such a function, and copies.
const TensorPlaces::Class *TensorPlaces::findPassed(Operation *op) const {
  auto call = dyn_cast<CallOpInterface>(op);
  if (!call || !recursive.contains(call.resolveCallable()))
    return nullptr;
  for (Value operand : call.getArgOperands())
    if (const Class *info = find(operand); info && info->isPlace)
      return info;
  return nullptr;
}

/// A place of which a call passes on a part, if anybody could tell that the function gets a copy of it: it is written
/// in another function, or the call returns a name of it.
const TensorPlaces::Class *TensorPlaces::findPassedPart(Operation *op) const {
  auto call = dyn_cast<CallOpInterface>(op);
  if (!call)
    return nullptr;
  auto function = op->getParentOfType<FunctionOpInterface>();
  auto isElsewhere = [&](Operation *write) { return write->getParentOfType<FunctionOpInterface>() != function; };
  for (Value operand : call.getArgOperands()) {
    const Class *info = find(operand);
    if (!info || !info->isPlace || !mayBePart(operand, info->names))
      continue;
    auto isName = [&](Value result) { return find(result) == info; };
    if (llvm::any_of(info->mutations, isElsewhere) || llvm::any_of(info->destinations, isElsewhere) ||
        llvm::any_of(op->getResults(), isName))
      return info;
  }
  return nullptr;
}

SmallVector<TensorPlaces::Violation> TensorPlaces::findViolations() const {
  using Kind = Violation::Kind;
  SmallVector<Violation> violations;
  root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    auto report = [&](const Class *info, Kind kind) {
      if (info && info->isPlace)
        violations.push_back({kind, op, (info->mutations.empty() ? info->destinations : info->mutations).front()});
      return info && info->isPlace;
    };
    auto reportAny = [&](ValueRange tensors, Kind kind) {
      return llvm::any_of(tensors, [&](Value tensor) { return report(find(tensor), kind); });
    };
    if (report(findShared(op), Kind::Carries) || report(findPassed(op), Kind::Passes) ||
        report(findPassedPart(op), Kind::PassesPart) || isView(op) || passesOn(op) || readsShapeOnly(op) ||
        op->hasTrait<OpTrait::IsTerminator>() || !isMemoryEffectFree(op))
      return;
    if (!reportAny(op->getResults(), Kind::Makes))
      reportAny(op->getOperands(), Kind::Reads);
  });
  return violations;
}
