//===- Pipelines.cpp - From tensors to calls of the runtime --------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// The order in which this project's and upstream's lowerings run.
//
//===--------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void commsched::buildLowerToRuntimePipeline(OpPassManager &pm) {
  pm.addPass(createCommBufferize());
  bufferization::buildBufferDeallocationPipeline(pm);
  pm.addPass(createConvertBufferizationToMemRefPass());
  pm.addPass(createCommToLLVM());
  pm.addNestedPass<func::FuncOp>(createConvertLinalgToLoopsPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createConvertToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
}

void commsched::registerConversionPipelines() {
  registerCommSchedConversionPasses();
  PassPipelineRegistration<>("comm-lower-to-runtime", "Lower a program of collectives to calls of the runtime",
                             buildLowerToRuntimePipeline);
}
