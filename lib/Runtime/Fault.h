//===- Fault.h - Faults that the runtime injects on request -------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// Tests and users make one rank misbehave at its N-th start, to see that every other rank ends with a clear error.
//
//===--------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_FAULT_H
#define COMMSCHED_LIB_RUNTIME_FAULT_H

#include <cstdint>
#include <string>

namespace commsched::runtime {
enum class FaultKind { none, delay, drop, mismatch, error, hang };

/// KIND@N[:rank=R][:ms=T]: at start N (from 0) of rank R (default: the last rank).
struct Fault {
  FaultKind kind = FaultKind::none;
  int64_t start = 0;
  int32_t rank = -1;
  int64_t ms = 100;

  /// Parses `text`; an empty result is success, anything else says what is wrong.
  static std::string parse(const char *text, Fault &fault);
  bool hits(int32_t atRank, int32_t ranks, int64_t atStart) const {
    return kind != FaultKind::none && start == atStart && atRank == (rank < 0 ? ranks - 1 : rank);
  }
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_FAULT_H
