//===- Bench.h - Interface between a calibration and what it measures -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The seam between the rules of a calibration and the machine. The rules (how often, which sizes, what ranks agree on)
// see a Bench only; a test gives them one whose truth is known.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_BENCH_H
#define COMMSCHED_CALIBRATION_BENCH_H

#include "CommSched/Machine/CollectiveCost.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace commsched {

/// One collective to time: `kind` on a group of this shape, or on all such groups of the job at once.
struct CollectiveProbe {
  CollectiveKind kind = CollectiveKind::AllReduce;
  GroupShape shape;
  ElementType element = ElementType::F32;
  /// As in CollectiveCurve: gathered bytes of an all-gather or gather, otherwise what a rank holds before.
  Bytes bytes = 0;
};

/// What one sample took on one rank, ns, for one of its operations.
struct ProbeTime {
  /// From the start of the operation to its end.
  Ns total = 0;
  /// Of the host's call that starts it alone.
  Ns issue = 0;
};

/// A machine on which collectives can be timed. Every rank has one, and all ranks make the same calls in the same
/// order.
class Bench {
public:
  virtual ~Bench();

  /// The time that a sample has to last for the clock to resolve it, ns. 0: one operation is enough.
  virtual Ns sampleTime() const { return 0; }
  /// How a sample is timed, for the profile.
  virtual std::string clockName() const = 0;

  virtual int32_t rank() const = 0;
  virtual int32_t ranks() const = 0;
  /// How many ranks take part in a run of `probe`: the first ones of the job.
  virtual int64_t participants(const CollectiveProbe &probe) const;
  /// The bytes nearest to `probe.bytes` that the collective can have, at least one element per rank.
  virtual Bytes feasibleBytes(const CollectiveProbe &probe) const = 0;
  /// Makes buffers for runs of `probe`, whose bytes are feasible. The error says why it cannot be measured; all ranks
  /// get one if any rank does.
  virtual llvm::Error prepare(const CollectiveProbe &probe) = 0;
  /// Takes one sample: runs what is prepared `operations` times in a row, after all ranks have arrived. Ranks that take
  /// no part get zeros.
  virtual llvm::Expected<ProbeTime> run(int64_t operations) = 0;
  /// The values of all ranks by rank; `own` has the same length everywhere.
  virtual llvm::Expected<std::vector<std::vector<int64_t>>> gather(llvm::ArrayRef<int64_t> own) = 0;
  /// A monotone clock, ns.
  virtual Ns now() const = 0;
};

/// A text that rank 0 has, on all ranks. Collective over all ranks.
llvm::Expected<std::string> broadcastText(Bench &bench, const std::string &text);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_BENCH_H
