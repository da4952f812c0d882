//===- RandomProblem.h - Problems for tests and benchmarks ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Deterministic generators: small programs with every feature of a Problem, for comparison with brute force, and large
// layered ones that look like a fully sharded training step. Equal seeds give equal Problems on every machine.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TEST_SCHEDULING_RANDOMPROBLEM_H
#define COMMSCHED_TEST_SCHEDULING_RANDOMPROBLEM_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "CommSched/Support/CollectiveOrder.h"
#include "CommSched/Support/SplitMix64.h"

namespace commsched::test {

/// By what the environment variable COMMSCHED_TEST_SHARE divides the number of random problems; 1 if it is not set.
/// ctest sets it in builds with sanitizers (test/CMakeLists.txt).
int32_t testShare();

/// How many of `number` random problems a test tries: all of them, or fewer in builds that take longer for each.
template <typename Number> Number portion(Number number) { return number / static_cast<Number>(testShare()); }

/// What has to happen `number` times in a test over all of its problems has to happen this often in the portion: half
/// as often for each problem, since few problems scatter more.
template <typename Number> Number leastOf(Number number) { return testShare() == 1 ? number : portion(number) / 2; }

/// Draws of tests.
class Random : public SplitMix64 {
public:
  using SplitMix64::SplitMix64;

  /// Uniform in [low, high].
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool percent(int32_t chance) { return below(100) < chance; }
};

/// What a random program is made of; chances in percent.
struct RandomOptions {
  /// Nodes, give or take the waits that end the program.
  int32_t nodes = 10;
  int32_t commLanes = 2;
  int32_t chanceOfStart = 30;
  int32_t chanceOfHybrid = 5;
  /// Of a compute or hybrid that it has communication in its regions.
  int32_t chanceOfRegion = 6;
  int32_t chanceOfView = 10;
  int32_t chanceOfInPlace = 10;
  int32_t chanceOfCoalesced = 15;
  int32_t chanceOfSecondWait = 10;
  int32_t chanceOfArgumentFuture = 5;
  int32_t chanceOfWorkspace = 15;
  int32_t chanceOfCast = 40;
  int32_t chanceOfLiveOut = 20;
  int32_t chanceOfPinned = 0;
  /// Of a start that it may be merged, where its shape allows it.
  int32_t chanceOfMergeable = 60;
  /// Merge keys of a lane: all-gather, reduce-scatter, all-reduce.
  int32_t mergeKinds = 3;
  /// Groups that share a communication lane, in half of the programs; the others have a lane for each group, and do not
  /// name groups.
  int32_t groupsOfLane = 2;
  /// Of a start that is not mergeable that it sends or receives, in percent.
  int32_t chanceOfPointToPoint = 10;
  int32_t donatedArguments = 2;
  /// Largest issue cost of a start; 0 for none.
  Ns maxIssue = 3;
  Ns maxCost = 20;
  /// Sizes are multiples of 64.
  Bytes maxBytes = 640;
  /// Adds the edges that this mode asks for.
  CollectiveOrder collectiveOrder = CollectiveOrder::Free;
};

/// A valid problem (Problem::validate() is empty), finalized.
Problem randomProblem(uint64_t seed, const RandomOptions &options = {});

/// The same program, without variants, with times that differ from node to node by up to a factor of four.
Problem withOtherCosts(const Problem &problem, uint64_t seed);

/// A topological order drawn at random.
Order randomOrder(const Problem &problem, Random &random);

/// A training step over `layers` layers with fully sharded parameters: forward (cast, all-gather, wait, computes) and
/// backward (cast, all-gather, wait, computes, reduce-scatter per layer), all collectives right before or after their
/// use, as a compiler's front end leaves them.
struct LayeredOptions {
  int32_t layers = 100;
  /// Computes of a layer's forward half; the backward half has twice as many.
  int32_t computes = 8;
  /// Parameters of a layer, each gathered and reduced on its own.
  int32_t parameters = 3;
  /// An all-reduce on a second lane after each half layer.
  bool tensorParallel = false;
  int32_t ranks = 64;
};

Problem layeredProblem(uint64_t seed, const LayeredOptions &options = {});

/// Nodes of a layeredProblem per layer.
int32_t nodesPerLayer(const LayeredOptions &options);

} // namespace commsched::test

#endif // COMMSCHED_TEST_SCHEDULING_RANDOMPROBLEM_H
