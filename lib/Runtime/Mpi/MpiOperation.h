//===- MpiOperation.h - One collective in flight over MPI -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A collective consists of messages between its members, a reduction in rank order if its kind needs one, and perhaps a
// second round of messages. MPI's nonblocking collectives are not used, because they reduce in an unspecified order,
// and complete without an error when ranks disagree on kind or size.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_MPI_MPIOPERATION_H
#define COMMSCHED_LIB_RUNTIME_MPI_MPIOPERATION_H

#include "CommSched/Runtime/Backend.h"
#include "MpiScratch.h"
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

/// Describes a collective; each member sends it to the next member, which compares it with its own.
struct MpiHeader {
  uint64_t fingerprint;
  char text[248];
};

class MpiOperation;

/// The largest tag that MPI allows: MPI_TAG_UB.
int64_t largestMpiTag(MPI_Comm comm);

/// The members of one subset on their own communicator.
struct MpiGroup {
  struct MpiJob *job;
  MPI_Comm comm;                ///< a communicator of all ranks of the job
  std::vector<int32_t> members; ///< indexed by place: the member's rank
  int32_t index;
  int64_t largestTag;                  ///< the largest tag that this MPI allows
  int64_t ordinal;                     ///< index among the job's groups, which all ranks make in the same order
  std::vector<int64_t> sent, received; ///< indexed by place: number of completed sends and receives
  int64_t started = 0;                 ///< number of collectives so far, from which their tags follow
  int64_t firstOpen = 0;               ///< number of the oldest incomplete collective
  int64_t postedBytes = 0;             ///< bytes of the collectives that are posted and not complete
  /// Indexed by collective number minus firstOpen: whether it is complete.
  std::deque<bool> finished;
  /// Submitted operations that are not posted yet, in order. A collective never holds back a send or receive, since
  /// ranks need not agree on the order between the two.
  std::deque<MpiOperation *> heldCollectives, heldMessages;
};

class MpiOperation {
public:
  /// Modifies only this object, so that any thread may call it.
  MpiOperation(MpiGroup &group, commrt_work *work, const std::string &text);
  ~MpiOperation();
  /// Takes its place among the group's operations, in the order of submission. The job's mutex is locked, here and in
  /// all functions below.
  void enlist();

  bool isPointToPoint() const { return work->kind == COMMRT_SEND || work->kind == COMMRT_RECV; }
  /// Whether the tag of a send or receive is one that this MPI can carry.
  bool hasValidTag() const;
  /// Whether the messages may be posted: no fault delays them, no older collective uses their tags, and not too much is
  /// posted already.
  bool mayStart() const;
  /// Posts the first messages. Returns a status.
  int32_t start();
  /// Handles the end of a transfer. Returns a status; on an error `error` describes it.
  int32_t endTransfer(size_t index, const MPI_Status &result, std::string &error);
  /// Whether no message is in flight, so that `advance` can be called.
  bool isIdle() const { return round > 0 && pending == 0; }
  /// Posts the next round, or sets `done`. Returns a status.
  int32_t advance(bool &done);
  /// Lets the group post further collectives.
  void retire();
  int64_t getNumber() const { return number; }
  bool isReceive(size_t index) const { return transfers[index].isReceive; }
  /// The ranks from which a message is still expected.
  std::string missing() const;

  commrt_work *work;
  const std::string text; ///< describes the operation in error messages
  MpiGroup &group;
  std::list<std::unique_ptr<MpiOperation>>::iterator self; ///< in MpiJob::operations
  bool isInUse = false;                                    ///< cancelled, but MPI may still use its memory

private:
  struct Transfer {
    int32_t peer; ///< the other rank
    int64_t bytes;
    bool isReceive, isHeader, isOpen;
  };
  enum Round { headerRound = 0, firstRound = 1, secondRound = 2 };

  /// The blocks of all members.
  int64_t bytes() const { return blockBytes() * size(); }
  int64_t blockBytes() const { return work->count * commrt_dtype_size(work->dtype); }
  int32_t size() const { return static_cast<int32_t>(group.members.size()); }
  const char *in() const { return static_cast<const char *>(work->in); }
  char *out() const { return static_cast<char *>(work->out); }
  /// Whether each member reduces all inputs itself, in one round instead of two: small all-reduces, and one-shot ones.
  bool reducesAlone() const;
  /// The first element of member i's share of an all_reduce in two rounds.
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
  /// Carries out the reductions after the first round. Returns whether there is a second round.
  bool finishFirstRound();
  void takeScratch(int64_t bytes);
  void reduceInputs(int64_t ownOffset, int64_t step, int64_t count, void *result);

  int64_t number;                  ///< index among the group's collectives
  MpiHeader sentHeader, gotHeader; ///< not set before their messages
  std::vector<Transfer> transfers;
  MpiScratch::Buffer scratch; ///< the inputs of the other members, for a reduction
  size_t pending = 0;
  int round = 0; ///< the current round; 0 before the start
  int32_t status = COMMRT_OK;
  std::chrono::steady_clock::time_point due;
};

} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_MPI_MPIOPERATION_H
