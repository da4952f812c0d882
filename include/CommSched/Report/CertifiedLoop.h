//===- CertifiedLoop.h - Loops in a certificate -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The certificate of a loop's body says that no pipeline of the loop has a shorter iteration than a bound. The
// certificate of the block around the loop says that the loop counts with all of its iterations.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_CERTIFIEDLOOP_H
#define COMMSCHED_REPORT_CERTIFIEDLOOP_H

#include "CommSched/Scheduling/Bounds/IntervalBound.h"
#include <string>

namespace commsched {

/// The loop whose body is a block.
struct CertifiedLoop {
  /// Of the body as it was before collectives moved to other iterations.
  IntervalProof proof;
  /// Whether the proof knows which collectives may be merged. If not, it holds for bodies in which none are.
  bool bucketing = false;
};

/// A loop that is a node of a block.
struct CountedLoop {
  NodeId node = kNone;
  /// The name of its body in reports.
  std::string body;
  int64_t iterations = 0;
};

} // namespace commsched

#endif // COMMSCHED_REPORT_CERTIFIEDLOOP_H
