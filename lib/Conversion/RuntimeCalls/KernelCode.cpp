//===- KernelCode.cpp - PTX of a program's kernels --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Mathematical functions are those of libdevice in upstream's path. A program should not need a toolkit, so that f16,
// bf16 and f32 are computed by upstream's approximations in f32. No product is fused with a sum: NVPTX does so only if
// an operation allows it, and none does.
//
//===------------------------------------------------------------------------------------------===//

#include "KernelCode.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Target/LLVM/NVVM/Target.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace commsched;

namespace {
/// Replaces the functions of the math dialect by arithmetic, and refuses those for which there is none. Upstream has
/// the patterns, and a pass for tests alone.
class ApproximateMathPass : public PassWrapper<ApproximateMathPass, OperationPass<gpu::GPUModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ApproximateMathPass)
  StringRef getName() const final { return "comm-approximate-math"; }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<arith::ArithDialect, LLVM::LLVMDialect, vector::VectorDialect>();
    NVVM::registerNVVMTargetInterfaceExternalModels(registry);
    registerBuiltinDialectTranslation(registry);
    registerGPUDialectTranslation(registry);
    registerLLVMDialectTranslation(registry);
    registerNVVMDialectTranslation(registry);
  }

  void runOnOperation() final {
    RewritePatternSet patterns(&getContext());
    populateMathPolynomialApproximationPatterns(patterns);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    // Later, upstream's calls of libdevice have no location.
    WalkResult found = getOperation()->walk([](Operation *op) {
      bool isFunction = op->getName().getDialectNamespace() == math::MathDialect::getDialectNamespace() &&
                        op->getNumResults() > 0 && isa<FloatType>(op->getResult(0).getType());
      if (!isFunction || isa<math::AbsFOp, math::CeilOp, math::CopySignOp, math::FloorOp, math::FmaOp,
                             math::RoundEvenOp, math::SqrtOp, math::TruncOp>(op))
        return WalkResult::advance();
      // The bodies of named linalg operations have no location; their kernels do.
      Location loc = isa<UnknownLoc>(op->getLoc()) ? op->getParentOfType<gpu::GPUFuncOp>().getLoc() : op->getLoc();
      emitError(loc) << "expected a function that a GPU computes without NVIDIA's libdevice, got '" << op->getName()
                     << "' on " << op->getResult(0).getType();
      return WalkResult::interrupt();
    });
    if (found.wasInterrupted())
      signalPassFailure();
  }
};

/// Replaces calls of libdevice by LLVM's intrinsics, for which NVPTX has instructions that round correctly.
class ReplaceLibdevicePass : public PassWrapper<ReplaceLibdevicePass, OperationPass<gpu::GPUModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ReplaceLibdevicePass)
  StringRef getName() const final { return "comm-replace-libdevice"; }

  void runOnOperation() final {
    SmallVector<LLVM::CallOp> found;
    getOperation().walk([&](LLVM::CallOp call) {
      if (call.getCallee().value_or("").starts_with(kPrefix))
        found.push_back(call);
    });
    for (LLVM::CallOp call : found) {
      OpBuilder builder(call);
      Value result = makeIntrinsic(builder, call);
      if (!result) {
        call.emitError() << "expected a function that a GPU computes without NVIDIA's libdevice, got '"
                         << call.getCallee()->drop_front(kPrefix.size()) << "' on " << call.getResult().getType();
        return signalPassFailure();
      }
      call.getResult().replaceAllUsesWith(result);
      call.erase();
    }
    for (auto function : llvm::make_early_inc_range(getOperation().getOps<LLVM::LLVMFuncOp>()))
      if (function.isExternal() && function.getName().starts_with(kPrefix))
        function.erase();
  }

private:
  static constexpr StringLiteral kPrefix = "__nv_";

  /// Null if there is none. Functions of f32 have an "f" at the end.
  static Value makeIntrinsic(OpBuilder &builder, LLVM::CallOp call) {
    StringRef name = call.getCallee()->drop_front(kPrefix.size());
    if (call.getResult().getType().isF32())
      name.consume_back("f");
    auto make = [&](StringRef intrinsic) {
      OperationState state(call.getLoc(), intrinsic, call.getArgOperands(), call->getResultTypes());
      return builder.create(state)->getResult(0);
    };
    return llvm::StringSwitch<llvm::function_ref<Value()>>(name)
        .Case("ceil", [&] { return make(LLVM::FCeilOp::getOperationName()); })
        .Case("copysign", [&] { return make(LLVM::CopySignOp::getOperationName()); })
        .Case("fabs", [&] { return make(LLVM::FAbsOp::getOperationName()); })
        .Case("floor", [&] { return make(LLVM::FFloorOp::getOperationName()); })
        .Case("fma", [&] { return make(LLVM::FMAOp::getOperationName()); })
        .Case("rint", [&] { return make(LLVM::RintOp::getOperationName()); })
        .Case("sqrt", [&] { return make(LLVM::SqrtOp::getOperationName()); })
        .Case("trunc", [&] { return make(LLVM::FTruncOp::getOperationName()); })
        .Default([] { return Value(); })();
  }
};
} // namespace

void commsched::buildKernelCodePipeline(OpPassManager &pm, StringRef chip) {
  OpPassManager &kernels = pm.nest<gpu::GPUModuleOp>();
  kernels.addPass(math::createMathExtendToSupportedTypes());
  math::MathExpandOpsPassOptions expanded;
  expanded.opMnemonics = {"rsqrt"};
  kernels.addPass(math::createMathExpandOpsPass(expanded));
  kernels.addPass(std::make_unique<ApproximateMathPass>());
  kernels.addPass(memref::createExpandStridedMetadataPass());
  kernels.addPass(createLowerAffinePass());
  kernels.addPass(createSCFToControlFlowPass());
  kernels.addPass(createConvertGpuOpsToNVVMOps());
  kernels.addPass(std::make_unique<ReplaceLibdevicePass>());
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createReconcileUnrealizedCastsPass());
  GpuNVVMAttachTargetOptions target;
  target.chip = chip.str();
  pm.addPass(createGpuNVVMAttachTarget(target));
  GpuModuleToBinaryPassOptions binary;
  binary.compilationTarget = "isa";
  pm.addPass(createGpuModuleToBinaryPass(binary));
}

FailureOr<std::string> commsched::takeKernelCode(ModuleOp module, Location loc) {
  for (auto binary : module.getOps<gpu::BinaryOp>())
    for (auto object : binary.getObjects().getAsRange<gpu::ObjectAttr>()) {
      StringRef text = object.getObject().getValue();
      return text.str();
    }
  return emitError(loc) << "the kernels have no PTX";
}
