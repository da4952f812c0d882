//===- ManualComputation.cpp - From whole tensors to the tensors of a rank --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See ManualComputation.h.
//
//===------------------------------------------------------------------------------------------===//

#include "ManualComputation.h"
#include "StablehloNames.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::stablehlo;

static bool isManual(Operation *op) { return op->getName().getStringRef() == "sdy.manual_computation"; }

/// The axes of `#sdy.mesh<["dp"=4, "tp"=2]>`.
static MeshAxes axesOf(Attribute mesh) {
  MeshAxes axes;
  std::string text = textOf(mesh);
  StringRef rest = StringRef(text).split("mesh<[").second.split(']').first;
  while (!rest.empty()) {
    StringRef name = rest.split('"').second.split('"').first;
    rest = rest.split("\"=").second;
    int64_t size = 1;
    if (rest.consumeInteger(10, size))
      break;
    axes.names.push_back(name.str());
    axes.sizes.push_back(size);
  }
  return axes;
}

MeshAxes commsched::stablehlo::readMesh(ModuleOp module) {
  MeshAxes axes;
  for (Operation &op : *module.getBody())
    if (op.getName().getStringRef() == "sdy.mesh" && axes.names.empty())
      axes = axesOf(op.getAttr("mesh"));
  return axes;
}

/// Fails with a diagnostic if the partitioner would divide the tensors of a manual computation further.
static LogicalResult checkAllManual(Operation *op, const MeshAxes &mesh) {
  std::string text = textOf(op->getAttr("manual_axes"));
  llvm::StringSet<> manual;
  for (StringRef rest = text; rest.contains('"');) {
    rest = rest.split('"').second;
    manual.insert(rest.split('"').first);
    rest = rest.split('"').second;
  }
  for (auto [name, size] : llvm::zip_equal(mesh.names, mesh.sizes))
    if (size > 1 && !manual.contains(name))
      return op->emitOpError()
             << "expected all axes of the mesh to be manual, because only XLA's partitioner knows the "
                "collectives of the others; got the axis '"
             << name << "' of " << size << " processes";
  return success();
}

/// A constant of one number in another shape; null for other values.
static Value reshapeSplat(OpBuilder &builder, Value value, Type type) {
  Operation *constant = value.getDefiningOp();
  if (!constant || !isNamed(constant, {"constant"}))
    return {};
  auto splat = dyn_cast_if_present<SplatElementsAttr>(constant->getAttr("value"));
  auto shaped = dyn_cast<RankedTensorType>(type);
  if (!splat || !shaped || splat.getElementType() != shaped.getElementType())
    return {};
  Operation *copy = builder.clone(*constant);
  copy->setAttr("value", SplatElementsAttr::get(shaped, splat.getSplatValue<Attribute>()));
  copy->getResult(0).setType(type);
  return copy->getResult(0);
}

/// Inlines the manual computations of one function, in order.
static LogicalResult inlineInto(func::FuncOp function, ArrayRef<Operation *> manuals) {
  Block &entry = function.getBody().front();
  IRRewriter rewriter(function.getContext());
  llvm::DenseSet<Value> local;
  for (Operation *op : manuals) {
    Block &body = op->getRegion(0).front();
    rewriter.setInsertionPoint(op);
    SmallVector<Value> operands;
    for (auto [operand, argument] : llvm::zip_equal(op->getOperands(), body.getArguments())) {
      Type type = argument.getType();
      auto given = dyn_cast<BlockArgument>(operand);
      if (given && given.getOwner() == &entry && !local.contains(operand)) {
        local.insert(operand);
        given.setType(type);
      }
      Value splat = reshapeSplat(rewriter, operand, type);
      if (!splat && (!local.contains(operand) || operand.getType() != type)) {
        InFlightDiagnostic diagnostic =
            op->emitOpError() << "expected operands that are arguments of the function, constants of one number, or "
                                 "results of other manual computations with the same sharding; operand #"
                              << argument.getArgNumber() << " is ";
        diagnostic << (local.contains(operand) ? "divided in another way" : "a whole tensor");
        return diagnostic;
      }
      operands.push_back(splat ? splat : operand);
    }
    Operation *terminator = body.getTerminator();
    SmallVector<Value> results(terminator->getOperands());
    for (auto [argument, operand] : llvm::zip_equal(body.getArguments(), operands))
      for (Value &result : results)
        if (result == argument)
          result = operand;
    terminator->erase();
    rewriter.inlineBlockBefore(&body, op, operands);
    local.insert(results.begin(), results.end());
    rewriter.replaceOp(op, results);
  }
  return success();
}

/// Fails with a diagnostic if an operation outside of the manual computations works on whole tensors.
static LogicalResult checkSurroundings(func::FuncOp function) {
  for (Operation &op : function.getBody().front()) {
    auto isConstant = isNamed(&op, {"constant"}) && llvm::all_of(op.getUsers(), isManual);
    if (!isManual(&op) && !isConstant && !isa<func::ReturnOp>(op))
      return op.emitOpError()
             << "works on whole tensors, outside of 'sdy.manual_computation': only XLA's partitioner knows "
                "how to divide it. Put it into the function that jax.shard_map is given";
  }
  return success();
}

LogicalResult commsched::stablehlo::inlineManualComputations(ModuleOp module) {
  MeshAxes mesh = readMesh(module);
  llvm::StringSet<> called;
  module.walk([&](func::CallOp call) { called.insert(call.getCallee()); });
  for (auto function : module.getOps<func::FuncOp>()) {
    SmallVector<Operation *> manuals;
    WalkResult nested = function.walk([&](Operation *op) {
      if (!isManual(op))
        return WalkResult::advance();
      manuals.push_back(op);
      if (op->getParentOp() == function && op->getNumRegions() == 1 && op->getRegion(0).hasOneBlock())
        return WalkResult::advance();
      op->emitOpError() << "expected a body of one block, in the body of a function";
      return WalkResult::interrupt();
    });
    if (nested.wasInterrupted())
      return failure();
    if (manuals.empty())
      continue;
    if (called.contains(function.getSymName()))
      return function.emitOpError()
             << "contains 'sdy.manual_computation' and is called by another function; run --inline "
                "first";
    for (Operation *op : manuals)
      if (failed(checkAllManual(op, mesh)))
        return failure();
    if (failed(checkSurroundings(function)) || failed(inlineInto(function, manuals)))
      return failure();
    Block &entry = function.getBody().front();
    function.setFunctionType(
        FunctionType::get(function.getContext(), entry.getArgumentTypes(), entry.getTerminator()->getOperandTypes()));
  }
  for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
    if (op.getName().getStringRef() == "sdy.mesh")
      op.erase();
  return success();
}
