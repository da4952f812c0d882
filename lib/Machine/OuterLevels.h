//===- OuterLevels.h - Costs of groups that leave units of outer levels -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A model of collectives knows nodes and the links between them. Here its lines become as slow as the links out of the
// units, such as rails and pods, that a group occupies. MachineModel.md has the formulas.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_MACHINE_OUTERLEVELS_H
#define COMMSCHED_LIB_MACHINE_OUTERLEVELS_H

#include "CommSched/Machine/CollectiveCost.h"
#include <vector>

namespace commsched::detail {

/// Makes the lines of a group that leaves units of outer levels as slow as what carries it out of them: hops take
/// longer by what the links of the level add to those below, and bytes as long as they take on the way out if that is
/// longer. O(levels x lines).
void leaveUnits(const MachineModel &machine, CollectiveKind kind, GroupShape shape, std::vector<CostLine> &lines);

} // namespace commsched::detail

#endif // COMMSCHED_LIB_MACHINE_OUTERLEVELS_H
