//===- KernelCode.h - PTX of a program's kernels ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Upstream's lowering from the gpu dialect to PTX, which needs LLVM's NVPTX target and no part of CUDA.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_KERNELCODE_H
#define COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_KERNELCODE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

namespace commsched {

/// Adds the passes that turn every gpu.module in a module into PTX for `chip` ("sm_80") and later ones. They refuse
/// kernels that need functions of NVIDIA's library for devices (libdevice).
void buildKernelCodePipeline(mlir::OpPassManager &pm, llvm::StringRef chip);

/// The PTX in `module`, which that pipeline has processed. An error, at `loc`, if there is none.
mlir::FailureOr<std::string> takeKernelCode(mlir::ModuleOp module, mlir::Location loc);

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_RUNTIMECALLS_KERNELCODE_H
