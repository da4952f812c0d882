//===- ProblemPrinter.h - Write a Problem as a program ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The inverse of the loader, for tests: a problem that makes a random test fail becomes the text of an IR test. A
// Problem can hold more than a program can say, so the printer also lists what is lost.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_PROBLEM_PROBLEMPRINTER_H
#define COMMSCHED_LIB_SCHEDULING_PROBLEM_PROBLEMPRINTER_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include <string>

namespace commsched {

/// A problem as the text of an .mlir file.
struct PrintedProblem {
  /// A module with one function, @problem. Its first lines are comments that list `losses`.
  std::string text;
  /// Facts of the problem that the program does not express, one sentence each. If there are none, loadBlock() without
  /// bucketing gives an equal problem, except that
  /// - each start has a node of cost 0, called "gate", in front of it;
  /// - there are additional buffers of 0 bytes, and edges may be replaced by paths;
  /// - lanes are numbered by their first use, and Node::bytes follows from the printed types.
  std::vector<std::string> losses;
};

/// Prints `problem`. Merge keys are always left out: their costs are the machine's. O(N^2 / 64 + E N / 64) words, for
/// the comparison of all dependences.
PrintedProblem printAsMlir(const Problem &problem);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_PROBLEM_PROBLEMPRINTER_H
