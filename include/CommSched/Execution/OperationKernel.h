//===- OperationKernel.h - One operation as a program of its own ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The computations of a program that are no calls of the runtime are compiled into it. To time one of them, it becomes
// the body of a function, which is compiled as the program would be.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_EXECUTION_OPERATIONKERNEL_H
#define COMMSCHED_EXECUTION_OPERATIONKERNEL_H

#include "CommSched/Calibration/Computations.h"
#include "CommSched/Execution/Program.h"
#include <memory>
#include <mutex>

namespace commsched {

/// A module with a function that carries out `op` alone, as text. Operands and values that regions use become
/// arguments. The error says why the operation cannot run by itself: it communicates or calls, only the run time knows
/// a size or a number, or its operands decide what it reads or how long it takes. O(nested operations).
llvm::Expected<std::string> isolateOperation(mlir::Operation *op);

/// Compiles isolated operations, each once as long as somebody has it. Any thread may call; compiling is serial.
class OperationCompiler {
public:
  /// `registry` has all dialects, and all translations to LLVM IR.
  explicit OperationCompiler(const mlir::DialectRegistry &registry);
  ~OperationCompiler();

  /// An operation with operands of its own, for the rank of `context`, on CPU backends. `text` is from
  /// isolateOperation; with `optimize`, it is compiled at -O2. The error says why the operation cannot be compiled, or
  /// that there is not enough memory. This object outlives the result.
  llvm::Expected<std::unique_ptr<CompiledKernel>> make(commrt_context *context, const std::string &text, bool optimize);

private:
  llvm::Expected<std::shared_ptr<const Program>> compile(const std::string &text, bool optimize);

  std::mutex mutex;
  std::unique_ptr<mlir::MLIRContext> context;
  /// The last text that was compiled, and what came of it: a program that a rank still has, or an error.
  std::string lastText, lastError;
  std::weak_ptr<const Program> last;
};

} // namespace commsched

#endif // COMMSCHED_EXECUTION_OPERATIONKERNEL_H
