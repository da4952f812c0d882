//===- Program.h - A module compiled for this process --------------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// Reads a module, lowers it to calls of the runtime and compiles it, once for all ranks of the process.
//
//===--------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TOOLS_COMM_RUN_PROGRAM_H
#define COMMSCHED_TOOLS_COMM_RUN_PROGRAM_H

#include "CommSched/Runtime/Runtime.h"
#include "HostValue.h"
#include "mlir/ExecutionEngine/ExecutionEngine.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"
#include <memory>

namespace commsched {

class Program {
public:
  /// Loads `path` and compiles it. Diagnostics of MLIR are printed; the error then says only which step failed. An
  /// empty entry is "main", or the only public function.
  static llvm::Expected<std::unique_ptr<Program>> load(mlir::MLIRContext &context, llvm::StringRef path,
                                                       llvm::StringRef entry);

  const std::string &path() const { return sourcePath; }
  /// Zeros of the types of the entry's arguments and results.
  const std::vector<HostValue> &arguments() const { return argumentValues; }
  const std::vector<HostValue> &results() const { return resultValues; }
  /// Whether the entry takes the storage of an argument away (`comm.resize_storage` to 0): it has no contents then.
  bool losesContents(size_t argument) const { return emptied[argument]; }
  /// Ranks that the groups of the module speak of; 1 without groups.
  int64_t ranks() const { return worldSize; }

  /// Presents the schedule and makes the groups; once per context and program.
  int32_t begin(commrt_context *context) const;
  /// Calls the entry `iterations` times. Arguments are buffers in place; results are copied out after the last call.
  void run(std::vector<HostValue> &arguments, std::vector<HostValue> &results, int64_t iterations) const;

private:
  llvm::Error readEntry(mlir::ModuleOp module, llvm::StringRef entry);
  llvm::Error compile(mlir::ModuleOp module);

  std::string sourcePath, entryName;
  std::vector<HostValue> argumentValues, resultValues;
  std::vector<bool> emptied;
  int64_t worldSize = 1;
  std::unique_ptr<mlir::ExecutionEngine> engine;
  void (*entryFunction)(void **) = nullptr;
  int32_t (*beginFunction)(commrt_context *) = nullptr;
};

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMM_RUN_PROGRAM_H
