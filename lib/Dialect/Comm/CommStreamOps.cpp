//===- CommStreamOps.cpp - Streams and opaque computation -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

using Effects = SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

void RecordOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), InFlightResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), InFlightResource::get());
}

void AwaitEventOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), InFlightResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), InFlightResource::get());
}

void SwitchStreamOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), InFlightResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), InFlightResource::get());
  // No access may move to another stream.
  effects.emplace_back(MemoryEffects::Read::get());
  effects.emplace_back(MemoryEffects::Write::get());
}

//===-----------------------------------------------------------------------------------------===//
// ComputeOp
//===-----------------------------------------------------------------------------------------===//

LogicalResult ComputeOp::verify() {
  int64_t numOperands = getInputs().size();
  if (std::optional<ArrayRef<int64_t>> aliases = getAliases()) {
    if (aliases->size() != getNumResults())
      return emitOpError() << "C1: expected one entry in 'aliases' per result (" << getNumResults() << "), got "
                           << aliases->size();
    for (int64_t alias : *aliases)
      if (alias < -1 || alias >= numOperands)
        return emitOpError() << "C1: expected -1 or the number of an operand in 'aliases', got " << alias;
  }
  if (std::optional<ArrayRef<int64_t>> mutates = getMutates()) {
    llvm::SmallSet<int64_t, 4> seen;
    for (int64_t operand : *mutates) {
      if (operand < 0 || operand >= numOperands)
        return emitOpError() << "C2: expected numbers of operands in 'mutates', got " << operand;
      if (!seen.insert(operand).second)
        return emitOpError() << "C2: operand #" << operand << " appears twice in 'mutates'";
    }
  }
  if (getName().starts_with("comm."))
    return emitOpError() << "C3: expected a name that does not begin with 'comm.' (reserved for the compiler), got '"
                         << getName() << "'";
  return success();
}

void ComputeOp::getEffects(Effects &effects) {
  comm::detail::addCopyEffects(getInputsMutable(), {}, effects);
  for (OpOperand &operand : getInputsMutable()) {
    if (!mutatesOperand(operand.getOperandNumber()))
      continue;
    if (isa<BaseMemRefType>(operand.get().getType()))
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
    else
      effects.emplace_back(MemoryEffects::Write::get(), ParameterStorageResource::get());
  }
  for (OpResult result : getResults())
    if (isa<ShapedType>(result.getType()) && !getAliasedOperand(result.getResultNumber()))
      comm::detail::addAllocateEffect(result, effects);
  if (getSideEffects()) {
    effects.emplace_back(MemoryEffects::Read::get());
    effects.emplace_back(MemoryEffects::Write::get());
  }
}

std::optional<unsigned> ComputeOp::getAliasedOperand(unsigned result) {
  std::optional<ArrayRef<int64_t>> aliases = getAliases();
  if (!aliases || (*aliases)[result] < 0)
    return std::nullopt;
  return static_cast<unsigned>((*aliases)[result]);
}

bool ComputeOp::mutatesOperand(unsigned operand) {
  return getMutates() && llvm::is_contained(*getMutates(), static_cast<int64_t>(operand));
}

void ComputeOp::populateDependencies(bufferization::RegisterDependenciesFn add) {
  comm::detail::addStorageDependencies(*this, add);
}

bool ComputeOp::mayBeTerminalBuffer(Value value) { return !getAliasedOperand(cast<OpResult>(value).getResultNumber()); }
