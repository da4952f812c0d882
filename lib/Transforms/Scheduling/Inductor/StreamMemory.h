//===- StreamMemory.h - A limit on memory over several streams --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// On several streams a buffer lives until all of them know that its last reader has ended. A stream that runs ahead
// knows little, so buffers pile up. Private to comm-multi-stream.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_SCHEDULING_INDUCTOR_STREAMMEMORY_H
#define COMMSCHED_LIB_TRANSFORMS_SCHEDULING_INDUCTOR_STREAMMEMORY_H

#include "CommSched/Analysis/ProblemLoader.h"

namespace commsched {

/// Inserts events that bound how long buffers live, until live bytes are at most `limit` everywhere. `plain` is the
/// block as it was loaded on one stream, in the same order, and `written` is the block with its streams and events;
/// both are out of date afterwards. Returns the number of awaits.
///
/// The method: walk along the program. Where live bytes would pass the limit, every stream that goes on waits for the
/// others up to the earliest reader whose buffers, with those of the readers before it, make room. A wait for work that
/// ended long ago costs little. In the extreme, a stream waits for everything before; then buffers live as long as on
/// one stream, so the limit holds if the peak of `plain` is within it. The caller checks.
/// O((N + E + awaits) x streams).
int64_t limitStreamMemory(const LoadedBlock &plain, const LoadedBlock &written, Bytes limit);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_SCHEDULING_INDUCTOR_STREAMMEMORY_H
