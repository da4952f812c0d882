//===- CollectiveOrder.h - Constraints on the order of collectives ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One enumeration for the passes, the loader, the solvers and the verifier.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_COLLECTIVEORDER_H
#define COMMSCHED_SUPPORT_COLLECTIVEORDER_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace commsched {

/// The collectives that keep their relative order.
enum class CollectiveOrder : uint8_t {
  /// All collectives.
  Program,
  /// The collectives of each group.
  Group,
  /// None; only dependences hold.
  Free,
};

/// The name of the mode in options ("program").
llvm::StringRef stringify(CollectiveOrder mode);

} // namespace commsched

#endif // COMMSCHED_SUPPORT_COLLECTIVEORDER_H
