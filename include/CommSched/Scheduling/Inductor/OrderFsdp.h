//===- OrderFsdp.h - The parts of fully sharded collectives, together -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// After PyTorch Inductor's enforce_comm_ordering_for_fsdp: [cast, copy-in, all-gather] and [wait, copy-out] become
// contiguous groups, likewise [copy-in, reduce-scatter] and [wait and what follows]; the second group of each
// collective runs before the first group of the next one of its kind. Where a layer is used again, what its second
// gather takes from the first one's groups stays there: an operation belongs to the first group that asks for it. The
// original cuts a group at its second copy-out; here it is cut at one that is only reached through another, so that a
// bucket may be unpacked piece by piece.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_INDUCTOR_ORDERFSDP_H
#define COMMSCHED_SCHEDULING_INDUCTOR_ORDERFSDP_H

#include "CommSched/Scheduling/Model/Schedule.h"

namespace commsched {

/// What a node is to fully sharded data parallelism; starts and waits say so themselves.
enum class FsdpRole : uint8_t {
  None,
  /// Packs shards into the gather buffer.
  CopyIn,
  /// Unpacks what was gathered.
  CopyOut,
  /// Packs gradients for the reduce-scatter.
  ChunkCat,
};

/// The two groups of one collective, each in the order given.
struct FsdpGroups {
  NodeId start = kNone;
  std::vector<NodeId> launch, wait;
  /// Whether each is contiguous, and whether both are.
  bool launchTogether = true, waitTogether = true;
  bool together = true;
  /// The groups, by index, whose wait precedes this launch; kNone for the first ones of their kind, and where either
  /// could not be kept together.
  int32_t after = kNone;
};

/// `roles` is indexed by node. Groups are formed in the order given, each taking what no earlier one has; `groups`
/// receives them. A launch or a wait that cannot be kept together or in turn is dissolved: it is on a cycle, because
/// something outside of it depends on it and leads back to it. All others are kept. One record per group.
/// O((N + E) log N).
Schedule orderFsdp(const Problem &problem, llvm::ArrayRef<NodeId> order, llvm::ArrayRef<FsdpRole> roles,
                   std::vector<FsdpGroups> &groups);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_ORDERFSDP_H
