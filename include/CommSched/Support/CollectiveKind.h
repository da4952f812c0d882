//===- CollectiveKind.h - The kinds of collectives --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One enumeration for the dialect, the models and the solvers.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_COLLECTIVEKIND_H
#define COMMSCHED_SUPPORT_COLLECTIVEKIND_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace commsched {

/// The kinds of collectives. The names are those of the dialect's operations.
enum class CollectiveKind : uint8_t {
  AllGather,
  ReduceScatter,
  AllReduce,
  AllToAll,
  Broadcast,
  Reduce,
  Gather,
  Scatter,
  Permute,
  Send,
  Recv,
  Barrier,
};

/// Returns true if messages of this kind match by their order alone.
inline constexpr bool isPointToPoint(CollectiveKind kind) {
  return kind == CollectiveKind::Send || kind == CollectiveKind::Recv;
}

/// The name of a kind in the dialect ("all_gather").
llvm::StringRef stringify(CollectiveKind kind);

/// The kind with this name; none for other texts.
std::optional<CollectiveKind> parseCollectiveKind(llvm::StringRef name);

} // namespace commsched

#endif // COMMSCHED_SUPPORT_COLLECTIVEKIND_H
