//===- OrderFsdp.h - Contiguous groups for fully sharded collectives --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// After PyTorch Inductor's enforce_comm_ordering_for_fsdp: [cast, copy-in, all-gather] and [wait, copy-out] become
// contiguous groups, and so do [copy-in, reduce-scatter] and [wait, its users]. The second group of each collective
// precedes the first group of the next collective of its kind. A node belongs to the first group that asks for it, so
// if a layer is used again, nodes that its second gather shares with its first one stay in the groups of the first. The
// original cuts a group at its second copy-out. Here a group is cut at a copy-out that is only reached through another
// one, so that a bucket may be unpacked piece by piece.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_INDUCTOR_ORDERFSDP_H
#define COMMSCHED_SCHEDULING_INDUCTOR_ORDERFSDP_H

#include "CommSched/Scheduling/Answer/Schedule.h"

namespace commsched {

/// Role of a compute node in fully sharded data parallelism. Starts and waits need none.
enum class FsdpRole : uint8_t {
  None,
  /// Packs shards into the gather buffer.
  CopyIn,
  /// Unpacks the gathered buffer.
  CopyOut,
  /// Packs gradients for the reduce-scatter.
  ChunkCat,
};

/// The two groups of one collective, each in the given order.
struct FsdpGroups {
  NodeId start = kNone;
  std::vector<NodeId> launch, wait;
  /// Whether each is contiguous, and whether both are.
  bool launchTogether = true, waitTogether = true;
  bool together = true;
  /// Index of the groups whose wait group precedes this launch group; kNone for the first groups of their kind, and if
  /// either group could not be kept together.
  int32_t after = kNone;
};

/// Orders `problem` by groups. `roles` is indexed by node. Groups are formed in the given order, each from nodes that
/// no earlier one has; `groups` receives them. A group is dissolved if a dependence path leaves and re-enters it. One
/// record per group. O((N + E) log N).
Schedule orderFsdp(const Problem &problem, llvm::ArrayRef<NodeId> order, llvm::ArrayRef<FsdpRole> roles,
                   std::vector<FsdpGroups> &groups);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_ORDERFSDP_H
