//===- Certificate.h - A schedule with all that proves it ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A certificate lets somebody else's program check an answer: that it keeps the problem's dependences and its limit,
// that its makespan and peak are what is claimed, and that no answer can be faster than the bound. Certificate.md
// describes the format and what is proven.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_CERTIFICATE_H
#define COMMSCHED_REPORT_CERTIFICATE_H

#include "CommSched/Analysis/AccessOrder.h"
#include "CommSched/Analysis/SpmdCheck.h"
#include "CommSched/Report/CertifiedLoop.h"
#include "CommSched/Scheduling/Answer/CostScale.h"
#include "CommSched/Scheduling/Answer/Schedule.h"
#include "CommSched/Support/Numerics.h"
#include "llvm/Support/raw_ostream.h"

namespace commsched {

/// The version of the format that writeCertificate() writes.
inline constexpr int32_t kCertificateVersion = 3;

/// Writes the first line of a file of certificates: its format, the number of blocks that follow, the SHA-256 hashes of
/// the module's text before and after, what ranksOfGroups() says, and how far results may differ, unless they may not.
void writeCertificateHeader(int64_t blocks, llvm::StringRef inputHash, llvm::StringRef outputHash, Numerics numerics,
                            const std::map<std::string, std::vector<std::vector<int64_t>>> &groups,
                            llvm::raw_ostream &os);

/// What was asked for.
struct CertificateOptions {
  /// Whether the bound is one for any bucketing.
  bool bucketing = false;
  /// Why the problem's edges are there, in the order of Problem::preds; empty if nobody knows.
  std::vector<DependenceReason> reasons = {};
  /// The collectives, for the comparison with other ranks.
  std::vector<CollectiveNote> collectives = {};
  /// What the nodes access, found independently of the edges; null if nobody knows.
  const BlockAccesses *accesses = nullptr;
  /// If nodes may be carried out in several ways: the problem with the least cost and demand of each node; the bound is
  /// one for any choice. Null: the problem as given.
  const Problem *least = nullptr;
  /// The scales of the collectives' times from the first to the last of which the answer's regret is to be proven, as
  /// for proveRegret(); empty: it is not.
  llvm::ArrayRef<CostScale> scales = {};
  /// The loop whose body the block is; null if it is not one of which there is a bound. It is left out if the block
  /// does not do the work of the proof: if another pass has changed the body since.
  const CertifiedLoop *loop = nullptr;
  /// The nodes that are loops with a known number of iterations, whose cost is that of so many bodies.
  std::vector<CountedLoop> loops = {};
};

/// What a certificate proves of its answer.
struct CertifiedClaims {
  /// The bound, ns.
  Ns bound = 0;
  /// The regret over CertificateOptions::scales, in millionths; none if it was not asked for or has no proof.
  std::optional<int64_t> regretPpm = std::nullopt;
  /// Whether it states the interval of CertificateOptions::loop.
  bool statesLoop = false;
};

/// Writes the certificate of one block as JSON lines: the problem, the answer, the claims and the witness of the bound.
/// `block` is the block's name in reports. `answer` has claims. Equal input gives equal bytes. Returns what the
/// certificate proves. O(N + E + touches), and proveBound() for the problem and for each scale.
CertifiedClaims writeCertificate(llvm::StringRef block, const Problem &problem, const Schedule &answer,
                                 const CertificateOptions &options, llvm::raw_ostream &os);

} // namespace commsched

#endif // COMMSCHED_REPORT_CERTIFICATE_H
