//===- SpmdCheck.h - Comparison of the programs of several ranks ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Ranks that issue different collectives hang, or corrupt data. This check compares the programs of several ranks
// before any of them runs: the members of each group issue the same collectives in the same order, and no two groups
// wait for each other because their members issue them in different orders.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_SPMDCHECK_H
#define COMMSCHED_ANALYSIS_SPMDCHECK_H

#include "CommSched/Analysis/Dependence.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

namespace commsched {

/// The program of one rank. All modules are of one context.
struct RankProgram {
  int64_t rank;
  mlir::ModuleOp module;
};

/// What was compared.
struct SpmdSummary {
  int64_t functions = 0, groups = 0, collectives = 0;
};

/// Compares the collectives of all functions that more than one program has, function by function. Prints each
/// disagreement to `os`, both sides next to each other with their locations, and fails if there is one. Collectives in
/// regions have the names of the operations around them in front; how often a loop runs is not known here. Sends and
/// receives are left to the runtime, which knows the peers. O(programs * operations).
mlir::FailureOr<SpmdSummary> checkSpmd(llvm::ArrayRef<RankProgram> programs, llvm::raw_ostream &os);

/// A collective of a block as the other ranks see it.
struct CollectiveNote {
  NodeId node;
  /// The name of the group, the line of describeCollective(), and the location.
  std::string group, what, where;
};

/// The collectives of a block, in its order. An operation with collectives in its regions has one note for each of
/// their groups. O(operations).
std::vector<CollectiveNote> noteCollectives(const BlockNodes &nodes);

/// The ranks of each group symbol of a module: of each replica group, runs of ranks as first rank, step, and length.
/// O(ranks of all groups).
std::map<std::string, std::vector<std::vector<int64_t>>> ranksOfGroups(mlir::ModuleOp module);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_SPMDCHECK_H
