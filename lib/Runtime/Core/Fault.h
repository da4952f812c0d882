//===- Fault.h - Faults that the runtime injects on request -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Tests and users make one rank misbehave at its N-th start, to see that every other rank ends with a clear error.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_FAULT_H
#define COMMSCHED_LIB_RUNTIME_CORE_FAULT_H

#include <cstdint>
#include <string>

namespace commsched::runtime {
/// delay: carried out late. drop: never presented. mismatch: presented with another fingerprint. error: the start
/// fails. hang: the rank stalls until the others have given up. stall: it does nothing at all for twice the timeout.
/// die: its process is killed (threads, sim: the rank leaves without a word). size: one element less. order: presented
/// after the rank's next start. signature: site N of the schedule is presented with another size.
enum class FaultKind { none, delay, drop, mismatch, error, hang, stall, die, size, order, signature };

/// KIND@N[:rank=R][:ms=T]: at start N (from 0; signature: site N) of rank R (default: the last rank).
struct Fault {
  FaultKind kind = FaultKind::none;
  int64_t start = 0;
  int32_t rank = -1;
  int64_t ms = 100;

  /// Parses `text`; an empty result is success, anything else says what is wrong.
  static std::string parse(const char *text, Fault &fault);
  bool hits(int32_t atRank, int32_t ranks) const {
    return kind != FaultKind::none && atRank == (rank < 0 ? ranks - 1 : rank);
  }
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_FAULT_H
