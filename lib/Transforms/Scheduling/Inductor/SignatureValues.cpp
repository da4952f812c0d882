//===- SignatureValues.cpp - Parameters and gradients of a function ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "SignatureValues.h"
#include "CommSched/Analysis/Casts.h"
#include "CommSched/Analysis/Storage.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// What `op` casts or views, or null where it does neither.
static Value getCastOrViewed(Operation *op) {
  if (isElementTypeCast(op))
    return op->getOperand(0);
  if (op->getNumResults() != 1 || isa<WaitOp>(op))
    return {};
  return getAliasedValue(op->getResult(0));
}

static BlockArgument asFunctionArgument(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  bool isOne = argument && argument.getOwner()->isEntryBlock() &&
               argument.getOwner()->getParentOp()->hasTrait<OpTrait::IsIsolatedFromAbove>();
  return isOne ? argument : BlockArgument();
}

BlockArgument commsched::argumentOf(Value value, SignatureRule rule) {
  Operation *def = value.getDefiningOp();
  if (rule == SignatureRule::OneCast)
    return asFunctionArgument(def && isElementTypeCast(def) ? def->getOperand(0) : value);
  for (; def; def = value.getDefiningOp()) {
    value = getCastOrViewed(def);
    if (!value)
      return {};
  }
  return asFunctionArgument(value);
}

/// Whether only the function's results see the value. What a loop yields is none of them.
static bool isOutput(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    return user->hasTrait<OpTrait::ReturnLike>() && user->getParentOp()->hasTrait<OpTrait::IsIsolatedFromAbove>();
  });
}

std::optional<unsigned> commsched::resultOf(Value value, SignatureRule rule) {
  for (bool isFirst = true; !isOutput(value); isFirst = false) {
    if (!value.hasOneUse() || (rule == SignatureRule::OneCast && !isFirst))
      return std::nullopt;
    Operation *user = *value.user_begin();
    if (getCastOrViewed(user) != value || (rule == SignatureRule::OneCast && !isElementTypeCast(user)))
      return std::nullopt;
    value = user->getResult(0);
  }
  std::optional<unsigned> first;
  for (OpOperand &use : value.getUses())
    first = std::min(first.value_or(use.getOperandNumber()), use.getOperandNumber());
  return first;
}

/// The value of a collective that has one value and one wait; null for all others.
static Value valueOf(CollectiveOpInterface start) {
  Value future = start.getCollectiveFuture();
  auto wait = future && future.hasOneUse() ? dyn_cast<WaitOp>(*future.user_begin()) : WaitOp();
  return wait && wait->getNumResults() == 1 ? wait->getResult(0) : Value();
}

std::optional<unsigned> commsched::signaturePlaceOf(CollectiveOpInterface start) {
  if (isa<AllGatherOp>(*start)) {
    OperandRange inputs = start.getCollectiveInputs();
    BlockArgument argument = inputs.size() == 1 ? argumentOf(inputs.front()) : BlockArgument();
    return argument ? std::optional(argument.getArgNumber()) : std::nullopt;
  }
  Value value = valueOf(start);
  return value ? resultOf(value) : std::nullopt;
}

/// Appends the names in a location, and what names were given for.
static void appendNames(Location loc, std::vector<std::string> &names) {
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      appendNames(part, names);
  auto name = dyn_cast<NameLoc>(loc);
  if (!name)
    return;
  names.push_back(name.getName().str());
  appendNames(name.getChildLoc(), names);
}

std::vector<std::string> commsched::namesOf(CollectiveOpInterface start) {
  std::vector<std::string> names;
  appendNames(start->getLoc(), names);
  for (Value input : start.getCollectiveInputs())
    if (BlockArgument argument = isa<AllGatherOp>(*start) ? argumentOf(input) : BlockArgument())
      appendNames(argument.getLoc(), names);
  return names;
}
