//===- HloRewriter.h - Other collectives for a module of XLA ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// XLA's combiners merge collectives before it knows their order. Here every merged collective is taken apart first, and
// then the solver decides what is merged, together with the order and within the limit.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_FRONTENDS_HLO_SCHEDULE_HLOREWRITER_H
#define COMMSCHED_FRONTENDS_HLO_SCHEDULE_HLOREWRITER_H

#include "CommSched/Frontends/Hlo/Schedule/HloScheduler.h"

namespace commsched::hlo {

/// The changes that the rewriter may make.
struct RewriteOptions {
  /// Take merged collectives apart and merge collectives anew.
  bool buckets = true;
  /// Make asynchronous what a flag of XLA has made synchronous.
  bool asynchronous = false;
};

/// A module with other collectives.
struct RewrittenModule {
  /// The module that XLA can take.
  std::string bytes;
  /// The report of describe(); `before` is the given module in the given order.
  llvm::json::Object report;
  HloResult result;
};

/// Rewrites and orders a module. `plain` is what scheduleModule() did with the same module and options. Fails, in one
/// line, if the module is not understood, if the answer would not be faster than `plain`'s, if it would have a higher
/// peak than `plain`'s limit in some computation, or if XLA would need more memory for its temporaries than
/// scheduleModule() allows. The answer has been read and measured again.
llvm::Expected<RewrittenModule> rewriteModule(const HloModule &module, const CostModel &model,
                                              const HloOptions &options, const RewriteOptions &rewrite,
                                              const HloResult &plain);

/// Returns true if `plain`, what was done with a module under a limit on memory, is above it, and no order is known
/// that is not.
bool staysAboveLimit(const HloResult &plain);

/// A module that makes values of its entry again, computed or gathered, since no order of it is within the limit on
/// memory: the plan of MemoryPlan.md. `plain` is what scheduleModule() did with the same module and options, and
/// staysAboveLimit(). The answer may be slower than the given program. Its report has what is made again as
/// `made_again`, and bounds are those of the program with it. Fails, in one line, if the module is not understood, or
/// if no plan was found within the limit on the peak and, as far as temporariesOf() can tell, on temporaries.
llvm::Expected<RewrittenModule> rewriteWithClones(const HloModule &module, const CostModel &model,
                                                  const HloOptions &options, const RewriteOptions &rewrite,
                                                  const HloResult &plain);

} // namespace commsched::hlo

#endif // COMMSCHED_FRONTENDS_HLO_SCHEDULE_HLOREWRITER_H
