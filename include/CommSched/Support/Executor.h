//===- Executor.h - Executor of independent tasks ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Solvers have tasks that do not depend on each other. Whoever calls a solver owns the threads, such as the pool of an
// MLIRContext, and lends them by this interface.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_EXECUTOR_H
#define COMMSCHED_SUPPORT_EXECUTOR_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include <cstddef>
#include <functional>

namespace commsched {

/// Runs independent tasks. Empty by default: tasks run one after the other, on the caller's thread.
struct Executor {
  /// How many tasks may run at once; at least 1.
  size_t threads = 1;
  /// Calls `task` with 0 to `count` - 1, in any order and on any threads, and returns when all calls have ended. Not
  /// called if `threads` is 1.
  std::function<void(size_t count, llvm::function_ref<void(size_t)> task)> forEach;

  /// Runs the tasks.
  void run(size_t count, llvm::function_ref<void(size_t)> task) const {
    if (threads > 1 && forEach && count > 1)
      return forEach(count, task);
    for (size_t index = 0; index < count; ++index)
      task(index);
  }
};

} // namespace commsched

#endif // COMMSCHED_SUPPORT_EXECUTOR_H
