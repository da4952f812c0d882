//===- Pipelines.cpp - The pipeline from tensors to calls of the runtime ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The order of this project's and upstream's lowerings.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "CommSched/Transforms/Passes.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace {
/// Runs a pipeline on modules that contain an operation that it lowers. Upstream's pattern passes take seconds for a
/// hundred thousand operations even if no pattern matches.
class WherePresentPass : public PassWrapper<WherePresentPass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(WherePresentPass)
  using Predicate = bool (*)(Operation *);
  WherePresentPass(Predicate isPresent, llvm::function_ref<void(OpPassManager &)> build)
      : isPresent(isPresent), pipeline(ModuleOp::getOperationName()) {
    build(pipeline);
  }
  StringRef getName() const final { return "comm-where-present"; }
  void getDependentDialects(DialectRegistry &registry) const final { pipeline.getDependentDialects(registry); }

  void runOnOperation() final {
    WalkResult found = getOperation()->walk(
        [&](Operation *op) { return isPresent(op) ? WalkResult::interrupt() : WalkResult::advance(); });
    if (found.wasInterrupted() && failed(runPipeline(pipeline, getOperation())))
      signalPassFailure();
  }

private:
  Predicate isPresent;
  OpPassManager pipeline;
};
} // namespace

static void addWherePresent(OpPassManager &pm, WherePresentPass::Predicate isPresent,
                            llvm::function_ref<void(OpPassManager &)> build) {
  pm.addPass(std::make_unique<WherePresentPass>(isPresent, build));
}

void commsched::buildLowerToRuntimePipeline(OpPassManager &pm) {
  // Programs that would hang or corrupt data at run time are rejected before any lowering.
  pm.addPass(createCommVerify());
  pm.addPass(createCommBufferize());
  pm.addPass(createCommPlanBuffers());
  bufferization::buildBufferDeallocationPipeline(pm);
  pm.addPass(createConvertBufferizationToMemRefPass());
  pm.addPass(createCommToLLVM());
  addWherePresent(
      pm, [](Operation *op) { return op->getName().getDialectNamespace() == "linalg"; },
      [](OpPassManager &nested) { nested.addNestedPass<func::FuncOp>(createConvertLinalgToLoopsPass()); });
  addWherePresent(
      pm,
      [](Operation *op) {
        return isa<memref::SubViewOp, memref::ExpandShapeOp, memref::CollapseShapeOp, memref::ExtractStridedMetadataOp>(
            op);
      },
      [](OpPassManager &nested) { nested.addPass(memref::createExpandStridedMetadataPass()); });
  addWherePresent(
      pm, [](Operation *op) { return op->getName().getDialectNamespace() == "affine"; },
      [](OpPassManager &nested) { nested.addPass(createLowerAffinePass()); });
  addWherePresent(
      pm, [](Operation *op) { return op->getName().getDialectNamespace() == "scf"; },
      [](OpPassManager &nested) { nested.addPass(createSCFToControlFlowPass()); });
  pm.addPass(createConvertToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createCommCheckStatus());
}

void commsched::registerConversionPipelines() {
  registerCommSchedConversionPasses();
  PassPipelineRegistration<>("comm-lower-to-runtime", "Lower a program of collectives to calls of the runtime",
                             buildLowerToRuntimePipeline);
}
