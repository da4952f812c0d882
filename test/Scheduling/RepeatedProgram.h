//===- RepeatedProgram.h - Small programs that make values twice ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Programs of computations, views and gathers, some of which do again what others did. A program becomes a problem by
// the rules of the memory model; to keep a value, the program itself is changed, and becomes another problem. This
// shares no code with Rematerialization.h, which changes the problem.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TEST_SCHEDULING_REPEATEDPROGRAM_H
#define COMMSCHED_TEST_SCHEDULING_REPEATEDPROGRAM_H

#include "CommSched/Scheduling/Lenses/Rematerialization.h"
#include "RandomProblem.h"

namespace commsched::test {

/// One value and how it is made.
struct Step {
  enum Kind : uint8_t { Compute, View, Gather } kind = Compute;
  /// Steps that it reads; a view, the one of which it is a view.
  std::vector<int32_t> reads;
  Ns cost = 0;
  Bytes bytes = 0;
  bool liveOut = false;
  /// The step of which it is a repetition, and the number of the repetition; kNone for none.
  int32_t repeats = kNone, unit = kNone;
};

/// A program, with `units` repetitions.
struct RepeatedProgram {
  std::vector<Step> steps;
  int32_t units = 0;
  /// Whether all gathers keep their order.
  bool ordered = false;
};

/// The program as a problem. `nodesOf`, indexed by step, gets the nodes of each.
Problem toProblem(const RepeatedProgram &program, std::vector<std::vector<NodeId>> &nodesOf);

/// The repetitions of the program's problem.
std::vector<Repetition> repetitionsOf(const RepeatedProgram &program, const std::vector<std::vector<NodeId>> &nodesOf);

/// The program without the repetitions in `kept` and those that nobody reads then.
RepeatedProgram keepInProgram(const RepeatedProgram &program, const llvm::BitVector &kept);

/// A program of about `steps` steps, of which up to `units` repetitions.
RepeatedProgram randomProgram(uint64_t seed, int32_t steps, int32_t units);

/// A program like a training step: `layers` computations with a gathered value each, then as many in the reverse order,
/// which read the values of the former once more. All of these are made again.
RepeatedProgram randomStep(uint64_t seed, int32_t layers);

} // namespace commsched::test

#endif // COMMSCHED_TEST_SCHEDULING_REPEATEDPROGRAM_H
