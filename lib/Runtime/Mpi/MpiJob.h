//===- MpiJob.h - The state of the mpi backend ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One job: this process's rank, what it has in flight, and what it knows of the others.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_MPI_MPIJOB_H
#define COMMSCHED_LIB_RUNTIME_MPI_MPIJOB_H

#include "MpiNeighbours.h"
#include "MpiOperation.h"
#include "MpiRequests.h"
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace commsched::runtime {
/// Tags on the control communicator. Each combination of all ranks has tags of its own; two in flight are neighbours.
enum MpiControlTag { mpiErrorTag = 1, mpiLeavingTag = 2, mpiValueTag = 1024, mpiResultTag = 2048, mpiLateTag = 4096 };
constexpr int64_t mpiCombineTags = 1024;

struct MpiErrorMessage {
  int32_t status, rank;
  char text[2040];
};

/// What a rank tells another one when it leaves, as numbers of 64 bits: what it has done and will do no more.
struct MpiLeaving {
  enum State { none, arriving, known } state = none;
  MPI_Request request = MPI_REQUEST_NULL;
  /// [combinations, groups made], then per group, in the order in which the ranks made them, [collectives started,
  /// messages sent to the rank that is told, messages received from it].
  std::vector<int64_t> words;
  int64_t combinations() const { return words[0]; }
  int64_t groupsMade() const { return words[1]; }
  int64_t ofGroup(int64_t group, int which) const { return words[2 + 3 * group + which]; }
};

struct MpiJob {
  using Clock = std::chrono::steady_clock;

  std::recursive_mutex mutex;
  MPI_Comm control = MPI_COMM_NULL;
  int rank = 0, ranks = 1;
  int64_t timeoutNs = 0;
  bool wantsThread = false;
  int threadLevel = 0; ///< of MPI
  const commrt_host *host = nullptr;
  void *context = nullptr;
  std::atomic<int32_t> status{COMMRT_OK};
  MpiErrorMessage incoming = {}, outgoing = {};
  std::vector<MPI_Request> outgoingRequests; ///< of what was said to other ranks: errors, leaving
  MpiRequests requests; ///< of the operations, and one, without an operation, of the first error message
  std::list<std::unique_ptr<MpiOperation>> operations; ///< in flight, in the order of submission
  std::vector<MpiOperation *> idle;                    ///< those that wait for no message
  std::vector<MpiGroup *> groups;
  int64_t groupsMade = 0;
  size_t numHeld = 0; ///< operations of all groups that are not posted yet
  std::vector<MpiRequests::Done> completed;
  int64_t combinations = 0; ///< completed ones
  std::atomic<bool> isCombining{false}, isMakingGroup{false};
  /// With a progress thread, all of MPI's work is that thread's, copies included: starts and waits only tell it. It
  /// lives from attach to detach.
  std::thread poller;
  std::mutex queueMutex; ///< may be taken under `mutex`, not the other way round
  std::condition_variable queueChanged;
  std::vector<std::unique_ptr<MpiOperation>> queue; ///< submitted, not yet among the operations
  bool isAwaited = false, stopping = false;
  /// An abort by a thread that may not call MPI.
  int32_t abortStatus = COMMRT_OK;
  std::string abortText;
  std::unique_ptr<MpiNeighbours> neighbours;
  Clock::time_point nextLook;
  bool sawDead = false;
  std::vector<MpiLeaving> leaving;             ///< by rank
  int32_t numLeft = 0;                         ///< of them known
  Clock::time_point lastLeft;                  ///< when the last of them became known
  std::vector<std::vector<int64_t>> lastWords; ///< by rank: what this one says when it leaves

  /// Moves everything on as far as it goes without waiting.
  void progress();
  void pollLoop();
  void stopPoller();
  void takeQueue();
  /// The operation is in flight from now on: posted, or held back.
  void admit(std::unique_ptr<MpiOperation> operation);
  /// Posts what was held back and may start now.
  void startHeld();
  /// Goes on with the operations that wait for no message.
  void finishIdle();
  /// Every 20 ms, while something is in flight: ends the job if a process that it may need is gone, or a rank that it
  /// needs has left. Their last messages have been looked at.
  void lookAtOthers();
  void lookForDead();
  void cancelAll();
  /// Another rank's error has arrived.
  void takeError();
  /// Ends the job here and tells the others; `origin` is the rank where the error began.
  void raise(int32_t error, const std::string &text) { raise(error, text, rank); }
  void raise(int32_t error, const std::string &text, int32_t origin);
  void tellOthers(int32_t error, const std::string &text, int32_t origin);
  /// Polls until done(), which is called under the mutex, or the deadline.
  bool pollUntil(Clock::time_point deadline, const std::function<bool()> &done);

  /// Tells all others what this rank has done, and that it does no more.
  void sayLeaving();
  /// Takes in what others said when they left.
  void takeLeaving();
  /// Ends the job if something in flight needs a rank that has left.
  void checkLeaving();
  /// Whether every other rank has left or died.
  bool isLast() const;
};

/// Never frees the object: MPI may still write to it.
template <typename T> void leave(std::unique_ptr<T> &object) { [[maybe_unused]] T *left = object.release(); }

/// MPI_Comm_idup with a deadline; a status, with MPI's words or "" for a timeout in `text`. Errors on the new
/// communicator are returned.
int32_t duplicate(MpiJob &job, MPI_Comm from, MPI_Comm &to, std::string &text);

/// The backend's `combine`.
int32_t combineMpi(void *opaque, void *value, int64_t bytes, commrt_combine_fn combine, int64_t timeoutNs,
                   char *message, size_t size);

/// The control communicator of a job that ended well goes when every rank has left it: what they say last may still be
/// on its way, and must not arrive in a communicator that gets the same number.
void retire(std::unique_ptr<MpiJob> job);
/// Frees what was retired, unless the others do not leave within the time.
void freeRetired(std::chrono::nanoseconds time);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_MPI_MPIJOB_H
