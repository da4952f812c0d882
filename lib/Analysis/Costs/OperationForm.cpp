//===- OperationForm.cpp - Hash of all that an operation consists of --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A copy of the operation in a module of its own is printed and hashed.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/OperationForm.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;
using namespace commsched;

/// The operation that makes a constant number; null for other values.
static Operation *getScalarConstant(Value value) {
  Operation *constant = value.getDefiningOp();
  return constant && value.getType().isIntOrIndexOrFloat() && matchPattern(constant, m_Constant()) ? constant : nullptr;
}

Operation *commsched::cloneAlone(Operation *op, OpBuilder &builder, llvm::function_ref<Value(Value)> provide) {
  auto make = [&](Value value) {
    Operation *constant = getScalarConstant(value);
    return constant ? builder.clone(*constant)->getResult(cast<OpResult>(value).getResultNumber()) : provide(value);
  };
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(make(operand));
  IRMapping mapping;
  llvm::SetVector<Value> captured;
  getUsedValuesDefinedAbove(op->getRegions(), captured);
  for (Value value : captured)
    mapping.map(value, make(value));
  Operation *copy = builder.clone(*op, mapping);
  copy->setOperands(operands);
  SmallVector<StringAttr> others;
  for (NamedAttribute attribute : copy->getDiscardableAttrs())
    if (attribute.getName().strref().contains('.'))
      others.push_back(attribute.getName());
  for (StringAttr name : others)
    copy->removeDiscardableAttr(name);
  return copy;
}

/// Whether name and operand types say everything.
static bool isPlain(Operation *op) {
  if (isa<comm::ComputeOp, linalg::FillOp, linalg::CopyOp>(op))
    return true;
  if (auto product = dyn_cast<linalg::MatmulOp>(op))
    return !product.hasUserDefinedMaps();
  if (auto product = dyn_cast<linalg::BatchMatmulOp>(op))
    return !product.hasUserDefinedMaps();
  return false;
}

std::string commsched::getTableForm(Operation *op) {
  if (isPlain(op))
    return "";
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(op->getContext()));
  OpBuilder builder = OpBuilder::atBlockBegin(module->getBody());
  cloneAlone(op, builder, [&](Value value) {
    return UnrealizedConversionCastOp::create(builder, module->getLoc(), value.getType(), ValueRange()).getResult(0);
  });
  std::string text;
  llvm::raw_string_ostream os(text);
  module->print(os, OpPrintingFlags().printGenericOpForm().useLocalScope().assumeVerified().enableDebugInfo(false));
  constexpr size_t digits = 16;
  return llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef(text)), /*LowerCase=*/true).substr(0, digits);
}
