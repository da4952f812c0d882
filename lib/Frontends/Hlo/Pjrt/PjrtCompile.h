//===- PjrtCompile.h - Compile a scheduled module with its donations --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// XLA forgets the donations of a module that a transformation returns, as of jaxlib 0.10.2. It keeps those of a module
// that it is asked to compile. So compilations of a plugin are wrapped: if the callback has another order for a module
// with donated parameters, it ends the compilation that XLA is in, and the wrapper asks for another one, of the
// scheduled module by XLA's backend alone (`run_backend_only` of the options). The caller gets that one's result. If it
// fails, the wrapper compiles the program once more as the caller asked, and the callback leaves it as it is.
//
// The wrapper also sees how many bytes of temporaries XLA needs for the order that it got. If the user set a limit and
// they are above it, the program is compiled once more with a smaller limit on the search, and then in XLA's own order.
//
// If the loops of a program would gain by pipelining, and the user wants that, the callback ends the compilation, too.
// The wrapper then runs XLA's passes again, once for each way to pipeline, and the backend compiles the fastest answer.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_PJRT_PJRTCOMPILE_H
#define COMMSCHED_LIB_FRONTENDS_HLO_PJRT_PJRTCOMPILE_H

#include "PjrtApi.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include <optional>
#include <string>
#include <vector>

namespace commsched::hlo {

/// What the callback made of a program whose loops XLA compiles in several ways.
struct LoopAnswer {
  /// Index into loopFlags(), or -1: the flags of the caller.
  int32_t way = -1;
  std::string module;
  llvm::json::Object report;
  /// One run of the program, ns.
  int64_t makespan = 0;
};

/// A compilation that a thread is in.
struct PjrtCompilation {
  /// True once the decision about this program has been made: the callback then leaves modules as they are.
  bool isDecided = false;
  /// The module that the backend has to compile; empty if the callback has not asked for that.
  std::string module;
  /// The report about the module; empty if the callback has handed it over, or has not seen a module.
  llvm::json::Object report;
  /// The user's limit on XLA's temporaries, bytes, if there is one.
  std::optional<int64_t> limit;
  /// Reduction of the limit of the search below the user's, in millionths.
  int64_t squeezePpm = 0;
  /// True if the callback has left the module as it is.
  bool isOwnOrder = false;
  /// False once the ways to compile loops have been tried.
  bool mayPipeline = true;
  /// The way in which XLA compiles loops now, as LoopAnswer::way.
  int32_t way = -1;
  /// The answers that the callback has ended compilations for; the wrapper chooses.
  std::vector<LoopAnswer> answers;
  /// Bytes of temporaries that XLA needed for the orders that were tried.
  std::vector<int64_t> temporaries;
  /// The reason why the program has XLA's own order after all; empty if it has another one.
  std::string keepReason;
};

/// The compilation that this thread is in; null if there is none, or if compilations are not wrapped.
PjrtCompilation *currentCompilation();

/// Takes a compilation with a report when it has ended.
using CompilationSink = void (*)(PjrtCompilation compilation);

/// Returns true if a plugin's table of functions has the known version and lies in writable memory.
bool canWrap(const PjrtApi *api);

/// Wraps the compilations of a plugin for the rest of the process. Returns true if they are wrapped: those of one
/// plugin per process are, if canWrap().
bool wrapCompilations(PjrtApi *api, CompilationSink sink);

/// XLA's flags for each way to pipeline the collectives of loops.
llvm::ArrayRef<std::vector<llvm::StringRef>> loopFlags();

/// `options`, a CompileOptionsProto, with these flags set to true. O(size).
std::string withFlags(llvm::StringRef options, llvm::ArrayRef<llvm::StringRef> flags);

/// The options with which the backend compiles `module`: `options`, a CompileOptionsProto, with `run_backend_only` and
/// the layouts of the module's parameters and results, which XLA would otherwise take to be the default ones. O(size).
std::string backendOptions(llvm::StringRef options, llvm::StringRef module);

/// Says what `compiled` has lost of `module`, both HloModuleProto: donations, or layouts of parameters and results.
/// Empty if nothing. O(size).
std::string findLoss(llvm::StringRef module, llvm::StringRef compiled);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_PJRT_PJRTCOMPILE_H
