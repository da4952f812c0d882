//===- MeshGroups.h - The groups of a job that are measured at the same time ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// In a program, all groups of a partition communicate at the same time, and a mesh of two axes has two partitions. A
// calibration measures the same: a collective in all groups of one shape at once, and beside it one along the other
// axis.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_MESHGROUPS_H
#define COMMSCHED_CALIBRATION_MESHGROUPS_H

#include "CommSched/Machine/CollectiveCost.h"
#include "llvm/ADT/ArrayRef.h"
#include <vector>

namespace commsched {

/// The ranks of each group, in the order of their places. Indexed by group.
using RankGroups = std::vector<std::vector<int64_t>>;

/// The groups of a job of `ranks` ranks that have this shape: every rank is in one, and on each of its nodes a group
/// has ranks that follow each other. If the job cannot be divided that way, the first ranks are the only group.
/// O(ranks).
RankGroups groupsOfShape(GroupShape shape, int64_t ranks, int64_t ranksPerNode);

/// The groups of the other axis of a mesh of which `groups` are one axis: the ranks of equal places. Empty if there is
/// only one group, so that the other axis has one rank. O(ranks).
RankGroups groupsAcross(llvm::ArrayRef<std::vector<int64_t>> groups);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_MESHGROUPS_H
