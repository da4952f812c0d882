//===- CertificateParts.h - Parts of a certificate --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_REPORT_CERTIFICATE_CERTIFICATEPARTS_H
#define COMMSCHED_LIB_REPORT_CERTIFICATE_CERTIFICATEPARTS_H

#include "CommSched/Report/CertifiedLoop.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/JSON.h"
#include <optional>

namespace commsched {

/// How a block does the work of an iteration.
struct LoopMatch {
  /// That of the loop, with the lanes numbered as in the block.
  IntervalProof proof;
  /// The starts and casts that the block does not have as they are, because they were merged, ascending.
  llvm::SmallVector<NodeId> merged;
};

/// Compares the work of a loop's iteration with that of its block, of which each node has the least cost and demand:
/// both have the same lanes, in any order, and every node of the body with work is a node of the block with the same
/// times, lanes and demand, unless it may be merged; and if none was merged, the block has no other work. Returns
/// nothing if that is not so, or if nodes were merged by other rules, so that the block takes less than the bound.
/// O(N log N).
std::optional<LoopMatch> matchLoop(const CertifiedLoop &loop, const Problem &block, Ns makespan);

/// Writes the fields of `loop`.
void writeLoop(llvm::json::OStream &json, const LoopMatch &match);

/// Writes the fields of `problem`, with the samples that a witness with buckets needs.
void writeCertifiedProblem(llvm::json::OStream &json, const Problem &problem, const BoundWitness &witness);

} // namespace commsched

#endif // COMMSCHED_LIB_REPORT_CERTIFICATE_CERTIFICATEPARTS_H
