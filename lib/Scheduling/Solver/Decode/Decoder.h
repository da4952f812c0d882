//===- Decoder.h - From a policy to a schedule ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A decoder of priority-rule vectors: a serial schedule generation scheme (R. Kolisch, "Serial and parallel
// resource-constrained project scheduling methods revisited", European Journal of Operational Research 90, 1996), with
// several lanes, with buckets, and under a hard limit on live memory.
//
// It plays the lanes forward in time. Before a compute is placed, every communication lane that would run dry during it
// gets the most urgent ready start, merged on the spot with other ready starts of its key. MemoryAdmission admits every
// placement, so the limit is never broken, and there is no dead end: the next node of the reference always fits.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_DECODER_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_DECODER_H

#include "CollectiveIssuer.h"

namespace commsched {

/// Decodes policies of one problem, one after another.
class Decoder {
public:
  explicit Decoder(const ScheduleFacts &facts) : schedule(facts), issuer(schedule) {}

  /// Decodes `policy` under `limit`. Returns false if the reference exceeds the limit, or as soon as the makespan
  /// cannot be below `cutoff`; then `result` holds a prefix.
  /// O((touches + trials) log N).
  bool run(const Reference &reference, const Policy &policy, Bytes limit, Ns cutoff, DecodedSchedule &result);

private:
  void placeWhatIsFree();
  bool placeBestCandidate();
  int32_t leastDisturbing(int32_t first) const;
  void placeNextOfReference();

  PartialSchedule schedule;
  CollectiveIssuer issuer;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_DECODER_H
