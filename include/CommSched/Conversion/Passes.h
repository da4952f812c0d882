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

#include "CommSched/Support/ByteCount.h"
#include "CommSched/Transforms/CheckedOptions.h"
#include "mlir/Pass/Pass.h"
#include <memory>
#include <string>

namespace mlir {
class ModuleOp;
class OpPassManager;
namespace arith {
class ArithDialect;
} // namespace arith
namespace bufferization {
class BufferizationDialect;
} // namespace bufferization
namespace gpu {
class GPUDialect;
} // namespace gpu
namespace linalg {
class LinalgDialect;
} // namespace linalg
namespace LLVM {
class LLVMDialect;
} // namespace LLVM
namespace memref {
class MemRefDialect;
} // namespace memref
namespace mpi {
class MPIDialect;
} // namespace mpi
namespace scf {
class SCFDialect;
} // namespace scf
namespace tensor {
class TensorDialect;
} // namespace tensor
} // namespace mlir

namespace commsched {

namespace comm {
class CommDialect;
} // namespace comm

#define GEN_PASS_DECL
#include "CommSched/Conversion/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "CommSched/Conversion/Passes.h.inc"

struct LowerToRuntimeOptions {
  bool device = false;                 ///< for backends whose buffers are device memory (commrt_context_is_device)
  std::string imageName = "commsched"; ///< with `device`: the name of the kernels' image, unlike that of other programs
  bool ptx = false; ///< with `device`: compile kernels for GPUs; without it they run on emulated ones only
};

/// The pipeline from a program on tensors or buffers to the LLVM dialect with calls of the runtime.
void buildLowerToRuntimePipeline(mlir::OpPassManager &pm, const LowerToRuntimeOptions &options = {});

/// Registers the passes and the pipeline `comm-lower-to-runtime`.
void registerConversionPipelines();

} // namespace commsched

#endif // COMMSCHED_CONVERSION_PASSES_H
