//===- Effects.cpp - Operations of which nobody says what they touch -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See Effects.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/Effects.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace commsched;

bool comm::isNoEffects(Attribute value) {
  auto names = dyn_cast<ArrayAttr>(value);
  return isa<UnitAttr>(value) || (names && llvm::all_of(names, [](Attribute name) { return isa<StringAttr>(name); }));
}

/// Returns true if a list names the operation or its dialect.
static bool isNamedIn(Attribute list, OperationName op) {
  auto names = dyn_cast_if_present<ArrayAttr>(list);
  return names && llvm::any_of(names.getAsRange<StringAttr>(), [&](StringAttr name) {
           return name.getValue() == op.getStringRef() || name.getValue() == op.getDialectNamespace();
         });
}

/// Returns true if all operands and results are values that no other operation can change.
static bool takesValuesOnly(Operation *op) {
  auto isValue = [](Type type) {
    return isa<TensorType, IntegerType, IndexType, FloatType, ComplexType, VectorType, NoneType>(type);
  };
  return llvm::all_of(op->getOperandTypes(), isValue) && llvm::all_of(op->getResultTypes(), isValue);
}

/// Returns true if the name of an operation says that it computes values from values.
static bool isKnownByName(Operation *op) {
  StringRef name = op->getName().getStringRef();
  if (!name.consume_front("stablehlo.") && !name.consume_front("chlo."))
    return false;
  if (name == "custom_call") {
    auto hasSideEffect = op->getAttrOfType<BoolAttr>("has_side_effect");
    return !hasSideEffect || !hasSideEffect.getValue();
  }
  return !llvm::is_contained({"infeed", "outfeed", "send", "recv", "rng"}, name);
}

bool comm::isForeignView(Operation *op) {
  StringRef name = op->getName().getStringRef();
  if (name == "tosa.reshape" || name == "tosa.identity")
    return op->getNumOperands() > 0 && op->getNumResults() == 1;
  return (name == "stablehlo.reshape" || name == "stablehlo.optimization_barrier") &&
         op->getNumOperands() == op->getNumResults();
}

/// Returns true if the attribute says that an operation has no effects.
static bool isDeclared(Operation *op) {
  if (!takesValuesOnly(op))
    return false;
  // Its regions are visited on their own.
  if (isKnownByName(op))
    return true;
  if (op->getNumRegions() > 0)
    return false;
  if (isa_and_present<UnitAttr>(op->getDiscardableAttr(comm::kNoEffectsAttrName)))
    return true;
  for (Operation *around = op->getParentOp(); around; around = around->getParentOp())
    if (isNamedIn(around->getDiscardableAttr(comm::kNoEffectsAttrName), op->getName()))
      return true;
  return false;
}

bool comm::hasUndeclaredEffects(Operation *op) {
  // It has no interface that says so, but it only makes a tensor, and reads the one that it copies.
  if (isa<bufferization::AllocTensorOp>(op))
    return false;
  return !isa<MemoryEffectOpInterface>(op) && !op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() && !isDeclared(op);
}
