//===- BenchHandles.h - Events and tokens of a sample -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_CALIBRATION_BENCH_BENCHHANDLES_H
#define COMMSCHED_LIB_CALIBRATION_BENCH_BENCHHANDLES_H

#include "CommSched/Runtime/Runtime.h"
#include <vector>

namespace commsched {

/// Events and tokens of one sample, released together.
struct BenchHandles {
  BenchHandles(size_t numEvents, size_t numTokens) : events(numEvents), tokens(numTokens) {}
  BenchHandles(const BenchHandles &) = delete;
  BenchHandles &operator=(const BenchHandles &) = delete;
  ~BenchHandles() {
    for (commrt_event *event : events)
      commrt_event_release(event);
    for (commrt_token *token : tokens)
      commrt_token_release(token);
  }

  std::vector<commrt_event *> events;
  std::vector<commrt_token *> tokens;
};

} // namespace commsched

#endif // COMMSCHED_LIB_CALIBRATION_BENCH_BENCHHANDLES_H
