//===- MessageReplay.h - Simulated exchange of the messages of all ranks ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays the announced steps of all ranks against each other, without data and without time, and finds a cycle of waits
// if they cannot all end.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_CONSISTENCY_MESSAGEREPLAY_H
#define COMMSCHED_LIB_RUNTIME_CORE_CONSISTENCY_MESSAGEREPLAY_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace commsched::runtime {

enum class Step : int32_t { none = 0, send, receive, collective, await };

/// What ranks know of each other's steps. A step that is not there is zero.
struct MessageStep {
  uint64_t channel; ///< the group and the subset, as a hash
  int64_t tag;
  int64_t count; ///< elements, or -1 if only known at run time
  int64_t batch; ///< as announced
  Step step;
  int32_t dtype;
  int32_t from, to; ///< ranks
  int32_t awaited;  ///< index in the rank's list
  int32_t stream;

  bool isMessage() const { return step == Step::send || step == Step::receive; }
};

/// The place of a step that is not there.
inline constexpr size_t noPlace = SIZE_MAX;

/// The steps of all ranks, [rank][perRank]. A place is an index into `steps`.
struct MessageLists {
  std::vector<MessageStep> steps = {};
  int64_t perRank = 0;
  std::vector<size_t> partners = {}; ///< indexed by place, of messages: the other side

  int32_t rankOf(size_t place) const { return static_cast<int32_t>(static_cast<int64_t>(place) / perRank); }
};

/// Two steps of a cycle in which steps wait for each other.
struct StuckSteps {
  size_t stuck;  ///< the place of a start that never ends
  size_t before; ///< that of a start that has to end first, and never does
  bool isLane;   ///< because both sides run one after the other on one stream; otherwise because a rank waits for it
};

/// What a backend carries out one after the other on each rank.
enum class Lanes {
  none,     ///< nothing: a start blocks nobody, and only waits do, in the order of the rank's list
  ofGroups, ///< the messages of a group, and its collectives; a wait holds up what is started later on its own stream
  one       ///< all that is started, of all groups; waits as above
};

/// Plays the steps; nothing if all of them end. Messages of a batch are carried out together. A collective that a rank
/// does not list counts as started there. O(steps log steps).
std::optional<StuckSteps> replayMessages(const MessageLists &lists, Lanes kind);

} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_CONSISTENCY_MESSAGEREPLAY_H
