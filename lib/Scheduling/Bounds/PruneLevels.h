//===- PruneLevels.h - The levels that an argument needs --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A sweep raises the heads and tails of many nodes, but an argument rests on few of them: on those in front of one
// node, or on whether they reach a threshold. A certificate without the others is smaller and sooner checked. Internal
// to Bounds.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_PRUNELEVELS_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_PRUNELEVELS_H

#include "Bounds/Arguments/HeadsAndTails.h"

namespace commsched {

/// Removes levels of the witness that its argument does not need. `times`: the heads and tails with all levels.
/// O(N + E + levels), and O(levels) more for each time that a threshold is raised.
void pruneLevels(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times, BoundWitness &witness);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_PRUNELEVELS_H
