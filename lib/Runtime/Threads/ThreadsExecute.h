//===- ThreadsExecute.h - Carries out one matched collective in memory ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The data movement of the threads backend, apart from its rendezvous.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_THREADS_THREADSEXECUTE_H
#define COMMSCHED_LIB_RUNTIME_THREADS_THREADSEXECUTE_H

#include "CommSched/Runtime/Backend.h"
#include <vector>

namespace commsched::runtime {
/// works[i] is member i's view of the same collective (send and recv: sender, receiver). Linear in the bytes written.
int32_t executeCollective(const std::vector<commrt_work *> &works);

/// Bytes that executeCollective writes, about.
int64_t bytesMoved(const std::vector<commrt_work *> &works);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_THREADS_THREADSEXECUTE_H
