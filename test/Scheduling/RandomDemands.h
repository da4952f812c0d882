//===- RandomDemands.h - Random problems whose activities share resources ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TEST_SCHEDULING_RANDOMDEMANDS_H
#define COMMSCHED_TEST_SCHEDULING_RANDOMDEMANDS_H

#include "RandomProblem.h"

namespace commsched::test {

/// A demand on some resources, with fair weights or others.
Demand randomDemand(Random &random);

/// Gives the nodes, the merge keys and the copies of a problem random demands. Some nodes need nothing.
void addRandomDemands(Problem &problem, uint64_t seed);

/// The rates of activities that run together, by the words of Models.md: the level at which a resource is shared
/// is raised until it is used up or everybody has what they need. Levels are fractions, level / unit.
std::vector<int64_t> ratesByLevel(const std::vector<Demand> &demands);

} // namespace commsched::test

#endif // COMMSCHED_TEST_SCHEDULING_RANDOMDEMANDS_H
