//===- SecondCosts.h - A loaded block with somebody else's costs ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_SECONDCOSTS_H
#define COMMSCHED_ANALYSIS_SECONDCOSTS_H

#include "CommSched/Analysis/Environment.h"
#include "CommSched/Analysis/ProblemLoader.h"

namespace commsched {

/// The problem of `loaded` with the costs of `peer`: computations, fused operations and starts whose location has a
/// name that `peer` knows cost what it says, and merge keys what its curves say. All others, and the kernels that pack
/// buckets, cost what they cost in `loaded`, whose machine is that of `model`. Without variants. The result's functions
/// keep nothing of the arguments. O(N + names + keys x curves).
Problem withPeerCosts(const LoadedBlock &loaded, const PeerCosts &peer, const CostModel &model);

/// An order by names as one of a block's nodes. What the block does not have is left out. O((N + names) log names).
PeerAnswer peerAnswerOf(const LoadedBlock &loaded, const NamedPeerAnswer &named);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_SECONDCOSTS_H
