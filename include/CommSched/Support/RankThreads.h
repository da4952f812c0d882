//===- RankThreads.h - One thread per rank ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Ranks of one process wait for each other, so they need threads of their own, all of them or none.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_RANKTHREADS_H
#define COMMSCHED_SUPPORT_RANKTHREADS_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"
#include <cstddef>

namespace commsched {

/// Calls `body(i)` for each i below `count` on a thread of its own, and returns when all have returned. If there are
/// not enough threads nothing is called, since the ranks that have one would wait for the others; the error says for
/// which rank there was none.
llvm::Error runOnThreads(size_t count, llvm::function_ref<void(size_t)> body);

} // namespace commsched

#endif // COMMSCHED_SUPPORT_RANKTHREADS_H
