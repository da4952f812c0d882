//===- MpiOperation.h - One collective in flight over MPI -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A collective is messages between its members, then a reduction in rank order where the kind asks for one, then
// perhaps a second round of messages. MPI's own nonblocking collectives are not used: they reduce in an order of their
// own, and complete silently when ranks disagree on kind or size.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_MPI_MPIOPERATION_H
#define COMMSCHED_LIB_RUNTIME_MPI_MPIOPERATION_H

#include "CommSched/Runtime/Backend.h"
#include <algorithm>
#include <chrono>
#include <deque>
#include <list>
#include <memory>
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <string>
#include <vector>

namespace commsched::runtime {

/// What each member tells the next one about the collective that it is in.
struct MpiHeader {
  uint64_t fingerprint;
  char text[248];
};

class MpiOperation;

/// MPI_TAG_UB.
int64_t largestMpiTag(MPI_Comm comm);

/// The members of one subset on their own communicator.
struct MpiGroup {
  struct MpiJob *job;
  MPI_Comm comm;                ///< of all ranks of the job
  std::vector<int32_t> members; ///< by place: ranks
  int32_t index;
  int64_t largestTag;                  ///< that this MPI allows
  int64_t ordinal;                     ///< among the job's groups; the ranks make them in the same order
  std::vector<int64_t> sent, received; ///< by place: messages (sends, receives) that are complete
  int64_t started = 0;                 ///< collectives so far; numbers their messages
  int64_t firstOpen = 0;               ///< the oldest collective that is not complete
  /// Indexed by collective number minus firstOpen: whether it is complete.
  std::deque<bool> finished;
  /// Submitted and not yet posted, in order. A message is never held back by a collective: the ranks need not agree on
  /// the order between the two.
  std::deque<MpiOperation *> heldCollectives, heldMessages;
};

class MpiOperation {
public:
  /// Changes nothing but itself: any thread.
  MpiOperation(MpiGroup &group, commrt_work *work, const std::string &text);
  /// Takes its place among the group's works, in the order of their submission. Like all below, under the job's mutex.
  void enlist();

  bool isPointToPoint() const { return work->kind == COMMRT_SEND || work->kind == COMMRT_RECV; }
  /// Whether the tag of a send or receive is one that this MPI can carry.
  bool hasValidTag() const;
  /// Whether no fault delays it, and its tags are not in use by an older collective.
  bool mayStart() const;
  /// Posts the first messages; a status.
  int32_t start();
  /// A transfer has ended. Returns a status; on an error `error` says what.
  int32_t endTransfer(size_t index, const MPI_Status &result, std::string &error);
  /// Whether no message is in flight: time for `advance`.
  bool isIdle() const { return round > 0 && pending == 0; }
  /// Posts the next round, or sets `done`; a status.
  int32_t advance(bool &done);
  /// The group may post further collectives.
  void retire();
  int64_t getNumber() const { return number; }
  bool isReceive(size_t index) const { return transfers[index].isReceive; }
  /// Ranks from which something is still expected.
  std::string missing() const;

  commrt_work *work;
  const std::string text; ///< what it is, for messages
  MpiGroup &group;
  std::list<std::unique_ptr<MpiOperation>>::iterator self; ///< in MpiJob::operations
  bool isInUse = false;                                    ///< given up, and MPI may still use its memory

private:
  struct Transfer {
    int32_t peer; ///< rank
    int64_t bytes;
    bool isReceive, isHeader, isOpen;
  };
  enum Round { headerRound = 0, firstRound = 1, secondRound = 2 };

  int64_t blockBytes() const { return work->count * commrt_dtype_size(work->dtype); }
  int32_t size() const { return static_cast<int32_t>(group.members.size()); }
  const char *in() const { return static_cast<const char *>(work->in); }
  char *out() const { return static_cast<char *>(work->out); }
  /// Members reduce small values, and those in one shot, all by themselves: one round instead of two.
  bool reducesAlone() const;
  /// First element of member i's share of an all_reduce in two rounds.
  int64_t share(int64_t member) const {
    return work->count / size() * member + std::min<int64_t>(member, work->count % size());
  }

  void send(int32_t member, const void *data, int64_t bytes, Round round);
  void receive(int32_t member, void *data, int64_t bytes, Round round);
  void post(const void *data, int64_t bytes, const Transfer &transfer, Round round);
  void postHeader();
  void postFirstRound();
  void exchangeBlocks(const char *from, char *to, int64_t fromStep, int64_t toStep, int64_t bytes);
  void postUneven();
  /// After the first round: reductions, and whether there is a second one.
  bool finishFirstRound();
  void reduceInputs(int64_t ownOffset, int64_t step, int64_t count, void *result);

  int64_t number; ///< among the group's collectives
  MpiHeader sentHeader = {}, gotHeader = {};
  std::vector<Transfer> transfers;
  std::vector<char> scratch, reduced;
  size_t pending = 0;
  int round = 0; ///< 0: not started
  int32_t status = COMMRT_OK;
  std::chrono::steady_clock::time_point due;
};

} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_MPI_MPIOPERATION_H
