//===- StrandWriter.h - Write the strands of a plan into a block ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Replaces each operation of a plan by its parts. Operands that are whole are sliced, and results that other operations
// need whole are joined. Private to the passes.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_STRANDS_STRANDWRITER_H
#define COMMSCHED_LIB_TRANSFORMS_STRANDS_STRANDWRITER_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "StrandPlan.h"

namespace commsched {

/// An operation of a block whose plan has been written.
struct StrandPlace {
  /// The number of split operations of the original block before this one.
  int32_t position = 0;
  /// The strand, or -1 for an operation of no strand.
  int32_t strand = -1;
};

/// As a stagger: each strand is a phase behind the one before it. Collectives of the strands separate the phases.
inline constexpr int64_t kPhases = -1;

/// What was written.
struct WrittenStrands {
  /// The place of every operation that is part of a strand.
  llvm::DenseMap<mlir::Operation *, StrandPlace> places;
  /// Indexed by part: the index of its operation in the original block.
  llvm::DenseMap<mlir::Operation *, int32_t> originOf;
  int64_t parts = 1;
  /// Slices, which are views; those that are copied for a user that takes contiguous memory; joins by copies; joins
  /// whose parts are computed in their places.
  int64_t slices = 0, copies = 0, joins = 0, inPlace = 0;
  /// Results that are sums of what their parts give.
  int64_t sums = 0;
};

/// Carries out `plan`, which was made for `block` as it is. The strands of one operation are consecutive. `costs`
/// scales measured times: a part takes the share of the measured time that the model's cost of the part has in the
/// model's cost of the whole. O(operations x parts).
WrittenStrands writeStrands(mlir::Block &block, const StrandPlan &plan, const OperationCosts &costs);

/// The order in which strand i is `stagger` split operations, or a phase, behind strand i - 1. Every dependence holds.
/// O(N log N + E).
Order staggeredOrder(const LoadedBlock &loaded, const WrittenStrands &written, int64_t stagger);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_STRANDS_STRANDWRITER_H
