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
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace commsched;

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

static bool isLinalg(Operation *op) { return op->getName().getDialectNamespace() == "linalg"; }

/// Lowers computations on device memory to kernels, and the host's accesses to copies.
static void addDevicePasses(OpPassManager &pm, const LowerToRuntimeOptions &options) {
  addWherePresent(
      pm,
      [](Operation *op) {
        return isLinalg(op) || isa<memref::CopyOp, gpu::LaunchOp, scf::ForallOp, scf::ParallelOp>(op);
      },
      [&](OpPassManager &nested) {
        nested.addPass(createCommFormKernels());
        nested.addPass(createGpuLaunchSinkIndexComputationsPass());
        nested.addPass(createGpuKernelOutliningPass());
        CommLowerLaunchesOptions launches;
        launches.ptx = options.ptx;
        launches.imageName = options.imageName;
        nested.addPass(createCommLowerLaunches(launches));
      });
  addWherePresent(
      pm, [](Operation *op) { return op->getName().getDialectNamespace() == "affine"; },
      [](OpPassManager &nested) { nested.addPass(createLowerAffinePass()); });
  pm.addPass(createCommDeviceMemory());
}

/// Lowers upstream's operations on buffers that have no lowering of their own. No pass decides on ownership: a buffer
/// that two functions know must not be copied for it, so comm-to-llvm releases what a loop or a function leaves behind.
static void addBufferizationPasses(OpPassManager &pm) {
  addWherePresent(
      pm, [](Operation *op) { return isa<memref::ReallocOp>(op); },
      [](OpPassManager &nested) {
        memref::ExpandReallocPassOptions options;
        options.emitDeallocs = false; // The old buffer may be an argument of the program.
        nested.addPass(memref::createExpandReallocPass(options));
      });
  addWherePresent(
      pm, [](Operation *op) { return isa<bufferization::DeallocOp>(op); },
      [](OpPassManager &nested) { nested.addPass(bufferization::createLowerDeallocationsPass()); });
  pm.addPass(createConvertBufferizationToMemRefPass());
}

void commsched::buildLowerToRuntimePipeline(OpPassManager &pm, const LowerToRuntimeOptions &options) {
  // Programs that would hang or corrupt data at run time are rejected before any lowering.
  pm.addPass(createCommVerify());
  pm.addPass(createCommBufferize());
  pm.addPass(createCommPlanBuffers());
  pm.addPass(createCommSwitchStreams());
  addBufferizationPasses(pm);
  pm.addPass(createCommToLLVM({options.device}));
  if (options.device)
    addDevicePasses(pm, options);
  else
    addWherePresent(pm, isLinalg, [](OpPassManager &nested) {
      nested.addNestedPass<func::FuncOp>(createConvertLinalgToLoopsPass());
    });
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
  struct Options : CheckedPipelineOptions<Options> {
    Option<bool> device{*this, "device", llvm::cl::desc("For backends whose buffers are device memory")};
    Option<bool> ptx{*this, "ptx", llvm::cl::desc("Compile kernels to PTX (with device)")};
  };
  auto build = [](OpPassManager &pm, StringRef text,
                  llvm::function_ref<LogicalResult(const llvm::Twine &)> error) -> LogicalResult {
    Options options;
    std::string message;
    llvm::raw_string_ostream os(message);
    if (failed(options.parseFromString(text, os)))
      return error("comm-lower-to-runtime: " + StringRef(message).rtrim());
    LowerToRuntimeOptions lowering;
    lowering.device = options.device;
    lowering.ptx = options.ptx;
    buildLowerToRuntimePipeline(pm, lowering);
    return success();
  };
  registerPassPipeline("comm-lower-to-runtime", "Lower a program of collectives to calls of the runtime", build,
                       [](llvm::function_ref<void(const mlir::detail::PassOptions &)> visit) { visit(Options()); });
}
