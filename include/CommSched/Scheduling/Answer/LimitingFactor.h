//===- LimitingFactor.h - Limiting factors of collectives -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One vocabulary for two questions: why compute waits for a collective (Explain.h), and why a rule moved a start or a
// wait no further (Schedule.h). One function gives both their words.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_ANSWER_LIMITINGFACTOR_H
#define COMMSCHED_SCHEDULING_ANSWER_LIMITINGFACTOR_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <string>

namespace commsched {

/// What keeps a collective, or a wait, where it is.
enum class LimitingFactor : uint8_t {
  /// Nothing was tried.
  None,
  /// It stands at the block's end.
  BlockEnd,
  /// `blocker` is in the way: a dependence on a node that may not be taken along.
  DataDependence,
  /// `blocker` is a collective that it may not pass.
  CollectiveOrder,
  /// Passing `blocker` (or, without one, an issue as early as dependences allow) would make the peak `reached` bytes,
  /// above `limit`.
  PeakMemory,
  /// Compute already covers it; for a rule, the overlap factor included.
  AlreadyHidden,
  /// Passing `blocker` would expose other collectives by `reached` ns more in total.
  ExposesOthers,
  /// The group would become larger than `limit` nodes.
  GroupLimit,
  /// The limit of `limit` collectives to move was reached before it.
  MoveLimit,
  /// Its moves would raise the makespan from `limit` to `reached` ns; they were taken back.
  Makespan,
  /// Its lane is busy with `blocker` until it begins.
  LaneBusy,
  /// Nothing but the order keeps it from an earlier beginning.
  Preference,
  /// It stands with its group.
  Grouped,
  /// Its group could not be kept together, or in turn: a node outside of the group depends on it and leads back to it.
  GroupDissolved,
  /// With its moves, and those of the others, the units of the block could not be kept together within the limits.
  Units,
  /// It passed `limit` nodes, which is as far as a single collective may be prefetched.
  PrefetchLimit,
  /// It begins with the block, and there is not enough to compute until it is needed.
  StartsAtOnce,
};

/// The name of a limiting factor ("peak memory").
llvm::StringRef stringify(LimitingFactor factor);

/// A limiting factor with its node and its numbers, whose meaning is the factor's; kNone and 0 if it has none.
struct Explanation {
  LimitingFactor factor = LimitingFactor::None;
  NodeId blocker = kNone;
  /// Bytes, ns or nodes.
  int64_t reached = 0, limit = 0;
};

/// Words an explanation ("peak memory: would reach 4.91 GiB, limit 4.63 GiB"). This is the only place that does:
/// remarks of all passes, the report's table, its JSON and the timeline print what it returns. `nameOf` names a
/// blocker.
std::string describe(const Explanation &explanation, llvm::function_ref<std::string(NodeId blocker)> nameOf);

/// What may help against a factor that exposes a collective ("merge the collectives of this group, or ..."), as
/// docs/guide/ReadingTheReport.md says; empty of the factors of rules, which leave nothing exposed by themselves.
llvm::StringRef remedyFor(LimitingFactor factor);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_ANSWER_LIMITINGFACTOR_H
