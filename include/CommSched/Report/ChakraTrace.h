//===- ChakraTrace.h - A block as execution traces of Chakra ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Chakra is MLCommons' format for the execution traces that simulators of distributed training read
// (https://github.com/mlcommons/chakra, schema/protobuf/et_def.proto). There is one trace for each rank. Chakra.md says
// how operations become nodes.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_CHAKRATRACE_H
#define COMMSCHED_REPORT_CHAKRATRACE_H

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Support/CollectiveKind.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/raw_ostream.h"
#include <optional>
#include <string>
#include <vector>

namespace commsched {

/// What is exported.
struct ChakraOptions {
  /// The name of the machine.
  std::string machine;
  /// The rank whose trace is asked for; none stands for all ranks.
  std::optional<int64_t> rank;
  /// Whether the order of the plan is part of `data_deps`, for simulators that ignore `ctrl_deps`.
  bool orderAsData = false;
};

/// A step of a trace. It is one node, two nodes for a permute on a rank that sends and receives, and the same on all
/// ranks otherwise. Steps are numbered in the order of the program, and depend on earlier ones only.
struct ChakraStep {
  /// The names of the operation's location as reports have them, and the name of the operation.
  std::string name, operation;
  /// How long it takes in the plan, ns.
  Ns duration = 0;
  /// Steps that it uses results or memory of, and steps that the plan puts in front of it on a lane. Ascending; no step
  /// is in both.
  std::vector<int32_t> data, control;
  /// The number of its first node.
  uint64_t id = 0;
  /// Of communication: its kind, its group as an index into ChakraTrace::groups, and the bytes that a rank puts in (of
  /// a receive: gets out). No group of computations.
  CollectiveKind kind = CollectiveKind::Barrier;
  int32_t group = -1;
  int64_t bytes = 0;
  /// Of a send or receive: the other one's place in the group, and the tag.
  int64_t peer = 0, tag = 0;
  /// Of a permute: places in the group, as source, target, source, target, and so on.
  std::vector<int64_t> pairs;
};

/// A group of a trace. Its replica groups are process groups of Chakra.
struct ChakraGroup {
  std::string name;
  comm::ReplicaGroupsInterface partition;
  /// The number of its first replica group; the others follow. The first of all groups is 1, because simulators take 0
  /// for all ranks.
  int64_t number = 1;
  /// Indexed by rank: its replica group, and its place there.
  std::vector<std::pair<int64_t, int64_t>> places;
};

/// The traces of the body of one function, in its current order.
class ChakraTrace {
public:
  /// Plays the body of `function` and collects its steps. Emits an error at the operation, and fails, if the traces
  /// cannot say what the function does: it has several blocks or streams; collectives in regions or callees; futures
  /// that arrive late; sizes that are unknown; groups of different numbers of ranks; a rank that would send to itself.
  /// O(ranks of the groups + operations + edges).
  static llvm::FailureOr<ChakraTrace> of(mlir::FunctionOpInterface function, const OperationCosts &costs,
                                         const ChakraOptions &options);

  /// The ranks of the groups together.
  int64_t ranks() const { return numRanks; }

  /// Writes the trace of one rank. O(steps + dependences).
  void write(int64_t rank, llvm::raw_ostream &os) const;

  /// Writes the process groups as JSON: the ranks of each by its number, as ASTRA-sim reads them. O(ranks of the
  /// groups).
  void writeGroups(llvm::raw_ostream &os) const;

private:
  friend class ChakraTraceBuilder;

  std::string function;
  ChakraOptions options;
  int64_t numRanks = 1;
  Ns makespan = 0;
  std::vector<ChakraStep> steps;
  std::vector<ChakraGroup> groups;
};

} // namespace commsched

#endif // COMMSCHED_REPORT_CHAKRATRACE_H
