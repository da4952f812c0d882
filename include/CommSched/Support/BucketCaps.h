//===- BucketCaps.h - The largest merged collective of each kind ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One struct for the options, the loader and the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_BUCKETCAPS_H
#define COMMSCHED_SUPPORT_BUCKETCAPS_H

#include "CommSched/Support/CollectiveKind.h"
#include "CommSched/Support/Units.h"
#include <algorithm>

namespace commsched {

/// The tighter of two caps, bytes; a negative one is no limit.
inline Bytes tighterCap(Bytes a, Bytes b) { return a < 0 ? b : b < 0 ? a : std::min(a, b); }

/// The largest merged collectives, bytes: of any kind, and of one. No limit if negative.
struct BucketCaps {
  Bytes any = -1, allGather = -1, reduceScatter = -1, allReduce = -1;

  /// The cap of one kind: its own or that of any kind, whichever is tighter.
  Bytes of(CollectiveKind kind) const {
    switch (kind) {
    case CollectiveKind::AllGather:
      return tighterCap(allGather, any);
    case CollectiveKind::ReduceScatter:
      return tighterCap(reduceScatter, any);
    case CollectiveKind::AllReduce:
      return tighterCap(allReduce, any);
    default:
      return any;
    }
  }

  /// Whether any of them is a limit.
  bool limits() const { return any >= 0 || allGather >= 0 || reduceScatter >= 0 || allReduce >= 0; }
};

} // namespace commsched

#endif // COMMSCHED_SUPPORT_BUCKETCAPS_H
