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
/// Carries out a collective. works[i] is member i's view of it; for send and recv these are the sender and the
/// receiver. Linear in the bytes written.
int32_t executeCollective(const std::vector<commrt_work *> &works);

/// The approximate number of bytes that executeCollective writes.
int64_t bytesMoved(const std::vector<commrt_work *> &works);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_THREADS_THREADSEXECUTE_H
