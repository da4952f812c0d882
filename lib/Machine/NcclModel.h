//===- NcclModel.h - NCCL's analytic tuning model ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_MACHINE_NCCLMODEL_H
#define COMMSCHED_LIB_MACHINE_NCCLMODEL_H

#include "CommSched/Machine/CollectiveCost.h"

namespace commsched::detail {

/// The algorithm and protocol pairs from which NCCL would choose for this collective, each as latency and bandwidth.
/// Empty for kinds without a model in NCCL (point-to-point, and collectives built from it). The group has at least two
/// ranks.
std::vector<CostLine> ncclCandidates(const NcclParameters &nccl, CollectiveKind kind, GroupShape shape,
                                     ElementType element);

/// Number of channels that the collectives of a group of this shape use: rings and trees.
int64_t ncclChannels(const NcclParameters &nccl, GroupShape shape);

} // namespace commsched::detail

#endif // COMMSCHED_LIB_MACHINE_NCCLMODEL_H
