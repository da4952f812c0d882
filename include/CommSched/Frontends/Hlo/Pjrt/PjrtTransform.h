//===- PjrtTransform.h - A transformation inside a plugin of PJRT -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Registers a callback that XLA calls with every module after it has scheduled it. The callback is C++ and takes no
// lock of Python's: compilation ahead of time may call it while another thread holds that lock and waits for it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_FRONTENDS_HLO_PJRT_PJRTTRANSFORM_H
#define COMMSCHED_FRONTENDS_HLO_PJRT_PJRTTRANSFORM_H

#include "CommSched/Frontends/Hlo/Schedule/HloRewriter.h"
#include <memory>

namespace commsched::hlo {

/// The treatment of modules whose parameters are donated. XLA forgets all donations of a module that a
/// transformation returns (HloModule::ReplaceEntryComputation, as of jaxlib 0.10.2), so results would need memory of
/// their own.
enum class Donation : uint8_t {
  /// Let XLA's backend compile the scheduled module by itself, which keeps them. If that cannot be done, leave such
  /// modules as they are.
  Keep,
  /// Return the scheduled module to XLA, and give up the donations.
  Drop,
};

/// The treatment of loops.
enum class Loops : uint8_t {
  /// As XLA compiles them with the flags of the user.
  Keep,
  /// If they wait and copy for more than 1 % of the time, also with XLA's collective pipeliner, with and without double
  /// buffering, whatever is
  /// fastest. XLA's passes then run three times, and its backend once.
  Pipeline,
};

/// The settings of the callback.
struct TransformOptions {
  std::shared_ptr<const CostModel> model;
  HloOptions schedule;
  Donation donation = Donation::Keep;
  Loops loops = Loops::Keep;
  RewriteOptions rewrite;
  /// If not empty: a folder into which the callback writes the modules that XLA hands over, as NAME.NUMBER.pb.
  std::string dump;
};

/// Reads settings from JSON: {"machine", "memory_budget_ratio", "memory_limit_bytes", "effort", "donation": "keep" or
/// "drop", "loops": "keep" or "pipeline", "buckets", "asynchronous", "dump", "shuffle": a seed, "measure": {NAME: ns}},
/// all of them optional. With "measure", the module keeps its order and its collectives, and the report says what it
/// takes if the named instructions take these times. Fails, in one line, if a setting is unknown or out of range.
llvm::Expected<TransformOptions> parseTransformOptions(llvm::StringRef json);

/// Schedules a module as the callback does, whether or not parameters are donated. The report is a JSON object:
/// describe()'s, or {"module", "changed": false, "kept_because"} if the module stays as it was.
struct TransformResult {
  /// The module; empty if it stays as it was.
  std::string module;
  llvm::json::Object report;
  /// Bytes of the results that are in memory of donated parameters.
  Bytes donated = 0;
  /// One run of the module as it is now, ns, and LoopForecast::idle.
  Ns makespan = 0, idleInLoops = 0;
};
TransformResult transformModule(llvm::StringRef bytes, const TransformOptions &options);

/// The report of a module that stays as it was.
llvm::json::Object keptReport(llvm::StringRef name, const llvm::Twine &reason);

/// Registers the callback with a plugin for the rest of the process; a second call with the same plugin does nothing.
/// `api` is its `const PJRT_Api *`. Wraps the plugin's compilations too, where that can be done: Donation::Keep needs
/// it. Fails, in one line, if the plugin has no such extension. Nothing changes before setTransformOptions().
llvm::Error installTransform(const void *api);

/// Sets what the callback does from now on; none: nothing.
void setTransformOptions(std::optional<TransformOptions> options);

/// The reports of the modules since the last call, oldest first; at most kMaxReports, the newest.
std::vector<llvm::json::Object> takeTransformReports();
inline constexpr size_t kMaxReports = 10'000;

} // namespace commsched::hlo

#endif // COMMSCHED_FRONTENDS_HLO_PJRT_PJRTTRANSFORM_H
