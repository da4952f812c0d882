//===- NcclOptions.h - Options of communicators from the environment -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// How many thread blocks (CTAs) the collectives of a group take decides how much they slow computations down, so it is
// an option of each group. All ranks have to choose alike, which they compare before the first communicator is made.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_NCCL_NCCLOPTIONS_H
#define COMMSCHED_LIB_RUNTIME_NCCL_NCCLOPTIONS_H

#include <climits>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace commsched::runtime {
/// What ncclConfig_t takes for "not set".
constexpr int ncclUndefined = INT_MIN;

/// Of one group's communicators; each is ncclUndefined unless it was asked for.
struct CtaOptions {
  int least = ncclUndefined, most = ncclUndefined; ///< thread blocks, 1 to 64
  int policy = ncclUndefined;                      ///< NCCL_CTA_POLICY_DEFAULT 0, EFFICIENCY 1, ZERO 2
  bool isSet() const { return least != ncclUndefined || most != ncclUndefined || policy != ncclUndefined; }
  /// "2 to 8 CTAs, policy zero"; empty if nothing is set.
  std::string text() const;
};

/// What all ranks of a job have in common.
struct NcclOptions {
  std::string groups; ///< as given
  std::vector<std::pair<std::string, CtaOptions>> ctas;
  /// A job of more ranks makes its first communicator from several identifiers.
  int64_t ranksOfOneId = 1024;
  /// Of them, each serves at most this many ranks.
  int64_t ranksPerId = 128;
  /// Starts are compared over the control plane, this many at a time; 0: they are not.
  int64_t checkEvery = 0;
  /// In a captured graph NCCL does not put the launches of different communicators one after the other.
  bool graphOverlap = false;

  /// Reads COMMRT_NCCL_GROUPS, COMMRT_NCCL_RANKS_OF_ONE_ID, COMMRT_NCCL_RANKS_PER_ID, COMMRT_CHECK and
  /// COMMRT_NCCL_GRAPH_OVERLAP. An empty text, or one line that says which part is wrong or needs a later NCCL than
  /// `version`.
  std::string read(int version);
  /// Those of the group's name, else those of "*".
  CtaOptions ctasOf(const std::string &group) const;
  /// Identifiers for a job of this many ranks; 1: the ordinary way.
  int32_t identifiers(int32_t ranks) const;
};

/// The rank that makes identifier `index`: the first of those that NCCL assigns to it.
int32_t makerOf(int32_t index, int32_t ranks, int32_t identifiers);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_NCCL_NCCLOPTIONS_H
