//===- Passes.h - Bufferization and lowering to the runtime -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Declares the passes of Passes.td and the pipeline from tensors to the LLVM dialect.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_CONVERSION_PASSES_H
#define COMMSCHED_CONVERSION_PASSES_H

#include "mlir/Pass/Pass.h"
#include <memory>

namespace mlir {
class ModuleOp;
class OpPassManager;
namespace arith {
class ArithDialect;
} // namespace arith
namespace bufferization {
class BufferizationDialect;
} // namespace bufferization
namespace LLVM {
class LLVMDialect;
} // namespace LLVM
namespace memref {
class MemRefDialect;
} // namespace memref
} // namespace mlir

namespace commsched {

#define GEN_PASS_DECL
#include "CommSched/Conversion/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "CommSched/Conversion/Passes.h.inc"

/// The pipeline from a program on tensors or buffers to the LLVM dialect with calls of the runtime.
void buildLowerToRuntimePipeline(mlir::OpPassManager &pm);

/// Registers the passes and the pipeline `comm-lower-to-runtime`.
void registerConversionPipelines();

} // namespace commsched

#endif // COMMSCHED_CONVERSION_PASSES_H
