//===- CommOps.cpp - Assembly, effects and groups of the operations ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The generated operation classes, the custom parts of their assembly, the memory effects of starts, and the lookup
// of groups.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

//===-----------------------------------------------------------------------------------------===//
// Assembly
//===-----------------------------------------------------------------------------------------===//

/// Parses `private` or `nested` before the name of a symbol.
static OptionalParseResult parseVisibility(OpAsmParser &parser, StringAttr &visibility) {
  StringRef keyword;
  if (failed(parser.parseOptionalKeyword(&keyword, {"private", "nested", "public"})))
    return std::nullopt;
  visibility = parser.getBuilder().getStringAttr(keyword);
  return success();
}

static void printVisibility(OpAsmPrinter &printer, Operation *, StringAttr visibility) {
  if (visibility)
    printer << visibility.getValue();
}

/// Parses `(input types) -> future type`; the destinations have the types of the future's values.
static ParseResult parseStartTypes(OpAsmParser &parser, ArrayRef<OpAsmParser::UnresolvedOperand> dests,
                                   SmallVectorImpl<Type> &inputTypes, SmallVectorImpl<Type> &destTypes,
                                   Type &futureType) {
  SMLoc loc = parser.getCurrentLocation();
  FutureType future;
  if (parser.parseLParen())
    return failure();
  if (failed(parser.parseOptionalRParen()) && (parser.parseTypeList(inputTypes) || parser.parseRParen()))
    return failure();
  if (parser.parseArrow() || parser.parseType(future))
    return failure();
  futureType = future;
  if (dests.empty())
    return success();
  if (dests.size() != future.getTypes().size())
    return parser.emitError(loc) << "C1: expected one destination per value of the future (" << future.getTypes().size()
                                 << "), got " << dests.size();
  llvm::append_range(destTypes, future.getTypes());
  return success();
}

static void printStartTypes(OpAsmPrinter &printer, Operation *, OperandRange, TypeRange inputTypes, TypeRange,
                            Type futureType) {
  printer << "(" << inputTypes << ") -> " << futureType;
}

#define GET_OP_CLASSES
#include "CommSched/Dialect/Comm/CommOps.cpp.inc"

//===-----------------------------------------------------------------------------------------===//
// Effects
//===-----------------------------------------------------------------------------------------===//

/// Adds a read and a write of the collectives in flight. Generic passes then neither move, merge nor drop the
/// operation.
static void addInFlightEffects(comm::detail::EffectList &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), InFlightResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), InFlightResource::get());
}

void comm::detail::getStartEffects(MutableArrayRef<OpOperand> inputs, MutableArrayRef<OpOperand> dests,
                                   EffectList &effects) {
  addInFlightEffects(effects);
  addCopyEffects(inputs, dests, effects);
}

void comm::detail::addCopyEffects(MutableArrayRef<OpOperand> sources, MutableArrayRef<OpOperand> dests,
                                  EffectList &effects) {
  bool readsTensor = false, writesTensor = false;
  for (OpOperand &source : sources)
    if (isa<BaseMemRefType>(source.get().getType()))
      effects.emplace_back(MemoryEffects::Read::get(), &source);
    else
      readsTensor |= isa<TensorType>(source.get().getType());
  for (OpOperand &dest : dests)
    if (isa<BaseMemRefType>(dest.get().getType()))
      effects.emplace_back(MemoryEffects::Write::get(), &dest);
    else
      writesTensor |= isa<TensorType>(dest.get().getType());
  if (readsTensor)
    effects.emplace_back(MemoryEffects::Read::get(), ParameterStorageResource::get());
  if (writesTensor)
    effects.emplace_back(MemoryEffects::Write::get(), ParameterStorageResource::get());
}

void comm::detail::addAllocateEffect(OpResult result, EffectList &effects) {
  effects.emplace_back(MemoryEffects::Allocate::get(), result);
}

void comm::detail::addStorageDependencies(StorageOpInterface op, const bufferization::RegisterDependenciesFn &add) {
  for (OpResult result : op->getResults())
    if (std::optional<unsigned> operand = op.getAliasedOperand(result.getResultNumber()))
      if (isa<BaseMemRefType>(result.getType()))
        add(op->getOperand(*operand), result);
}

/// The results are destinations. If the start is visible, they are the start's destinations. Otherwise any of the
/// buffers that the wait keeps may be one.
void WaitOp::populateDependencies(bufferization::RegisterDependenciesFn add) {
  auto start = getFuture().getDefiningOp<CollectiveOpInterface>();
  ValueRange buffers = start ? ValueRange(start.getCollectiveDests()) : ValueRange(getInflight());
  for (Value value : getValues())
    if (isa<BaseMemRefType>(value.getType()))
      for (Value buffer : buffers)
        if (isa<BaseMemRefType>(buffer.getType()))
          add(buffer, value);
}

void WaitOp::getEffects(comm::detail::EffectList &effects) {
  addInFlightEffects(effects);
  // Until here the collective writes its destinations. Whether it has some is not known here.
  if (llvm::any_of(getValues(), [](Value value) { return isa<TensorType>(value.getType()); }))
    effects.emplace_back(MemoryEffects::Write::get(), ParameterStorageResource::get());
  for (OpOperand &buffer : getInflightMutable()) {
    effects.emplace_back(MemoryEffects::Read::get(), &buffer);
    effects.emplace_back(MemoryEffects::Write::get(), &buffer);
  }
}

//===-----------------------------------------------------------------------------------------===//
// Groups
//===-----------------------------------------------------------------------------------------===//

LogicalResult GroupOp::verify() {
  if (!isa<ReplicaGroupsInterface>(getReplicaGroups()))
    return emitOpError() << "C1: expected replica groups (#comm.ranks or #comm.iota), got " << getReplicaGroups();
  return success();
}

bool GroupOp::canDiscardOnUseEmpty() {
  if (!isPrivate())
    return false;
  // Symbol DCE sees the symbols in attributes. This walk finds the symbols in the types of values.
  Operation *table = (*this)->getParentOp();
  if (!table)
    return true;
  llvm::SmallPtrSet<Type, 16> seen;
  auto names = [&](Type type) {
    if (!seen.insert(type).second)
      return false;
    return type
        .walk([&](SymbolRefAttr symbol) {
          return symbol.getRootReference() == getSymNameAttr() ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  };
  return !table
              ->walk([&](Operation *op) {
                bool used = llvm::any_of(op->getResultTypes(), names);
                for (Region &region : op->getRegions())
                  for (Block &block : region)
                    used |= llvm::any_of(block.getArgumentTypes(), names);
                return used ? WalkResult::interrupt() : WalkResult::advance();
              })
              .wasInterrupted();
}

GroupOp comm::lookupGroup(CollectiveOpInterface collective, SymbolTableCollection &symbols) {
  return symbols.lookupNearestSymbolFrom<GroupOp>(collective, collective.getGroupAttr());
}

//===-----------------------------------------------------------------------------------------===//
// WaitOp
//===-----------------------------------------------------------------------------------------===//

LogicalResult WaitOp::inferReturnTypes(MLIRContext *, std::optional<Location> location, ValueRange operands,
                                       DictionaryAttr, OpaqueProperties, RegionRange,
                                       SmallVectorImpl<Type> &inferredTypes) {
  auto future = operands.empty() ? FutureType() : dyn_cast<FutureType>(operands.front().getType());
  if (!future)
    return emitOptionalError(location, "C1: expected a future as the first operand");
  llvm::append_range(inferredTypes, future.getTypes());
  return success();
}

/// On memrefs, the results of a wait are the destinations. On tensors, they share the storage of the future's values.
std::optional<unsigned> WaitOp::getAliasedOperand(unsigned) { return 0; }

bool WaitOp::mutatesOperand(unsigned) { return false; }
