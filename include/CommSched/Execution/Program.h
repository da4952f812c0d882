//===- Program.h - A module compiled for this process -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads a module, lowers it to calls of the runtime and compiles it, once for all ranks of the process.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_EXECUTION_PROGRAM_H
#define COMMSCHED_EXECUTION_PROGRAM_H

#include "CommSched/Execution/GroupVariants.h"
#include "CommSched/Execution/HostValue.h"
#include "CommSched/Execution/JitMemory.h"
#include "CommSched/Report/Report.h"
#include "CommSched/Runtime/Runtime.h"
#include "mlir/ExecutionEngine/ExecutionEngine.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include <memory>
#include <optional>

namespace commsched {

struct ProgramOptions {
  std::string entry;       ///< empty: "main", or the only public function
  int64_t dynamicSize = 8; ///< size of each dynamic dimension of an argument
  std::string machine;     ///< predict the timeline for this machine; empty: no prediction
  std::string passes = {}; ///< run these passes first: a pipeline of modules; empty: none
  bool device = false;     ///< lower for backends whose buffers are device memory
  bool ptx = false;        ///< with `device`: compile kernels for GPUs, not for emulated ones only
  bool graph = false;      ///< capture the second call of `run` into a graph, and launch that from then on
  /// Compile at -O2, or without optimization; none: at -O2 if the program has long loops.
  std::optional<bool> optimize = {};
  /// Where diagnostics are printed; null: the standard error, when the program has been loaded.
  llvm::raw_ostream *diagnostics = nullptr;
};

/// A file, or a part of one.
struct Source {
  std::string name;
  std::string text;
};

/// Reads `path`; "-" is standard input. With `split`, the result has one source per part between lines `// -----`. Each
/// source starts with as many empty lines as precede it, so that diagnostics have the line numbers of the file.
llvm::Expected<std::vector<Source>> readSources(llvm::StringRef path, bool split);

/// Returns true if the program accesses elements in loops that may be long. It is then compiled at -O2, unless it is
/// large. O(operations).
bool hasLongLoops(mlir::ModuleOp module);

class Program {
public:
  /// Compiles a source. Diagnostics of MLIR are printed; the error then says only which step failed.
  static llvm::Expected<std::unique_ptr<Program>> load(mlir::MLIRContext &context, const Source &source,
                                                       const ProgramOptions &options);

  const std::string &name() const { return sourceName; }
  /// Returns true if the program was lowered for backends whose buffers are device memory.
  bool isForDevice() const { return onDevice; }
  /// The types of the entry's arguments, without memory.
  const std::vector<HostValue> &arguments() const { return argumentValues; }
  /// Number of ranks that the groups of the module require; 1 without groups.
  int64_t ranks() const { return worldSize; }
  /// The names of the groups, and their ranks.
  const llvm::StringMap<std::string> &groups() const { return groupTexts; }
  /// The ways to carry out collectives that the program asks for.
  const GroupVariants &variants() const { return groupVariants; }
  /// Returns true if the program frees the storage of argument `index` at its end (comm.resize_storage to 0). The
  /// argument then has no contents.
  bool freesArgument(size_t index) const { return freedArguments[index]; }
  /// The predicted timeline of the entry's body on the machine; none unless requested.
  const std::optional<BlockSnapshot> &predicted() const { return prediction; }

  /// Registers the schedule and creates the groups. Returns the runtime's status.
  int32_t begin(commrt_context *context) const;
  /// Calls the entry `iterations` times. Arguments are buffers in place; on a device, they are copied there before the
  /// first call and back after the last. After the last call, the results are copied out and everything that the calls
  /// allocated is released. `marks` gets the times at which calls begin and end, one more than the number of calls; on
  /// a device, a call ends when its work on the device has. Returns the runtime's status; after an error there are no
  /// results.
  int32_t run(commrt_context *context, std::vector<HostValue> &arguments, std::vector<HostValue> &results,
              int64_t iterations, std::vector<int64_t> &marks) const;

private:
  friend class ProgramCall;
  static llvm::Error runPasses(mlir::ModuleOp module, llvm::StringRef passes);
  llvm::Error readEntry(mlir::ModuleOp module, const ProgramOptions &options);
  llvm::Error predict(mlir::ModuleOp module, llvm::StringRef machine);
  /// With `optimize`, compiles at -O2, unless the module is large.
  llvm::Error compile(mlir::ModuleOp module, bool optimize);

  std::string sourceName, entryName;
  std::vector<HostValue> argumentValues, resultValues;
  std::vector<bool> freedArguments;
  int64_t worldSize = 1;
  bool onDevice = false;
  bool captures = false;
  llvm::StringMap<std::string> groupTexts;
  GroupVariants groupVariants;
  std::optional<BlockSnapshot> prediction;
  /// Owned by the engine, and destroyed after it.
  std::unique_ptr<JitMemory> memory;
  std::unique_ptr<mlir::ExecutionEngine> engine;
  void (*entryFunction)(void **) = nullptr;
  int32_t (*beginFunction)(commrt_context *) = nullptr;
};

} // namespace commsched

#endif // COMMSCHED_EXECUTION_PROGRAM_H
