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

#include "Core/Support/Guarded.h"
#include "MpiNeighbours.h"
#include "MpiOperation.h"
#include "MpiRequests.h"
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace commsched::runtime {
/// Tags on the control communicator. Each combination of values has its own tags. At most two consecutive combinations
/// are in flight together.
enum MpiControlTag { mpiErrorTag = 1, mpiLeavingTag = 2, mpiValueTag = 1024, mpiResultTag = 2048, mpiLateTag = 4096 };
constexpr int64_t mpiCombineTags = 1024;

struct MpiErrorMessage {
  int32_t status, rank;
  char text[2040];
};

/// The message that a rank sends to each other rank when it leaves: how much it has done, as 64-bit integers.
struct MpiLeaving {
  enum State { none, arriving, known } state = none;
  MPI_Request request = MPI_REQUEST_NULL;
  /// In place of the number of combinations: the job has failed for the rank that leaves.
  static constexpr int64_t failed = -1;
  /// [combinations, groups made], then per group, in the order in which the ranks made them, [collectives started,
  /// messages sent to the rank that is told, messages received from it].
  std::vector<int64_t> words;
  /// Whether the rank has left in good order. If not, an error is on its way that says more than that it has left.
  bool isOrderly() const { return state == known && words[0] != failed; }
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
  int threadLevel = 0; ///< the thread level that MPI provides
  const commrt_host *host = nullptr;
  void *context = nullptr;
  std::atomic<int32_t> status{COMMRT_OK};
  MpiErrorMessage incoming = {}, outgoing = {};
  std::vector<MPI_Request> outgoingRequests; ///< requests of control messages that this rank sent: errors, leaving
  MpiRequests requests; ///< requests of all operations, and one without an operation that receives an error message
  MpiScratch scratch;   ///< outlives the operations
  std::list<std::unique_ptr<MpiOperation>> operations; ///< operations in flight, in the order of their submission
  std::vector<MpiOperation *> idle;                    ///< operations in flight that wait for no message
  std::vector<MpiGroup *> groups;
  int64_t groupsMade = 0;
  size_t numHeld = 0; ///< number of operations, over all groups, that are not posted yet
  std::vector<MpiRequests::Done> completed;
  int64_t combinations = 0; ///< number of completed combinations
  std::atomic<bool> isCombining{false}, isMakingGroup{false};
  /// With a progress thread, only that thread calls MPI and copies data; starts and waits hand their work to it. The
  /// thread lives from attach to detach.
  std::thread poller;
  Mutex queueMutex; ///< may be locked while `mutex` is locked, never the other way round
  std::condition_variable queueChanged;
  /// Operations that were submitted and are not in `operations` yet.
  std::vector<std::unique_ptr<MpiOperation>> queue COMMRT_GUARDED_BY(queueMutex);
  /// Whether `queue` or `abortStatus` has been set since the last look.
  std::atomic<bool> hasQueued{false};
  bool isAwaited COMMRT_GUARDED_BY(queueMutex) = false;
  bool stopping COMMRT_GUARDED_BY(queueMutex) = false;
  /// An abort that was requested by a thread that may not call MPI.
  int32_t abortStatus COMMRT_GUARDED_BY(queueMutex) = COMMRT_OK;
  std::string abortText COMMRT_GUARDED_BY(queueMutex);
  std::unique_ptr<MpiNeighbours> neighbours;
  Clock::time_point nextLook;
  bool sawDead = false;
  std::vector<MpiLeaving> leaving; ///< indexed by rank
  int32_t numLeft = 0;             ///< number of ranks that are known to have left
  Clock::time_point lastLeft;      ///< when this process learnt of the last one
  std::vector<std::vector<int64_t>>
      lastWords; ///< indexed by rank: the message that this rank sends there when it leaves

  /// Advances all operations as far as possible without blocking.
  void progress();
  void pollLoop();
  void stopPoller();
  void takeQueue();
  /// Takes an operation into flight: posts its messages, or holds it back.
  void admit(std::unique_ptr<MpiOperation> operation);
  /// Posts the operations that were held back and may start now.
  void startHeld();
  /// Advances the operations that wait for no message.
  void finishIdle();
  /// Ends the job if a process that an operation may need is gone, or a rank that it needs has left. Called every 20 ms
  /// while something is in flight, after the last messages of these ranks have been read.
  void lookAtOthers();
  void lookForDead();
  void cancelAll();
  /// Handles an error message from another rank.
  void takeError();
  /// Ends the job here and tells the others; `origin` is the rank where the error began.
  void raise(int32_t error, const std::string &text) { raise(error, text, rank); }
  void raise(int32_t error, const std::string &text, int32_t origin);
  void tellOthers(int32_t error, const std::string &text, int32_t origin);
  /// Polls until `done` returns true or the deadline has passed. The mutex is locked while `done` is called.
  bool pollUntil(Clock::time_point deadline, const std::function<bool()> &done);

  /// Tells all other ranks how much this rank has done, and that it leaves.
  void sayLeaving();
  /// Reads the messages of ranks that leave.
  void takeLeaving();
  /// Ends the job if something in flight needs a rank that has left.
  void checkLeaving();
  /// Whether every other rank has left or died.
  bool isLast() const;
};

/// Keeps the object for ever, since MPI may still write to it.
template <typename T> void leakObject(std::unique_ptr<T> &object) { [[maybe_unused]] T *left = object.release(); }

/// MPI_Comm_idup with a deadline. Returns a status; on an error `text` is MPI's message, or empty after a timeout. The
/// new communicator returns its errors.
int32_t duplicate(MpiJob &job, MPI_Comm from, MPI_Comm &to, std::string &text);

/// The backend's entry `combine`.
int32_t combineMpi(void *opaque, void *value, int64_t bytes, commrt_combine_fn combine, int64_t timeoutNs,
                   char *message, size_t size);

/// Keeps the control communicator of a job that ended well until every rank has left it. The last messages may still be
/// in flight, and must not arrive at a later communicator with the same number.
void retire(std::unique_ptr<MpiJob> job);
/// Frees the retired communicators, except those that other ranks do not leave in time.
void freeRetired(std::chrono::nanoseconds time);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_MPI_MPIJOB_H
