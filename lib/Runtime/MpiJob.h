//===- MpiJob.h - The state of the mpi backend ----------------------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// One job: this process's rank, what it has in flight, and what it knows of the others.
//
//===--------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_MPIJOB_H
#define COMMSCHED_LIB_RUNTIME_MPIJOB_H

#include "MpiNeighbours.h"
#include "MpiOperation.h"
#include "MpiRequests.h"
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace commsched::runtime {
/// The tag of error messages on the control communicator.
constexpr int mpiErrorTag = 1;

struct MpiErrorMessage {
  int32_t status, rank;
  char text[2040];
};

struct MpiJob {
  using Clock = std::chrono::steady_clock;

  std::recursive_mutex mutex;
  MPI_Comm control = MPI_COMM_NULL;
  int rank = 0, ranks = 1;
  int64_t timeoutNs = 0;
  const commrt_host *host = nullptr;
  void *context = nullptr;
  std::atomic<int32_t> status{COMMRT_OK};
  MpiErrorMessage incoming = {}, outgoing = {};
  std::vector<MPI_Request> outgoingRequests;
  MpiRequests requests;                                ///< of the operations
  std::list<std::unique_ptr<MpiOperation>> operations; ///< in flight, in the order of submission
  std::vector<MpiOperation *> idle;                    ///< those that wait for no message
  std::vector<MpiGroup *> groups;
  size_t numHeld = 0; ///< operations of all groups that are not posted yet
  std::vector<MpiRequests::Done> completed;
  int64_t exchanges = 0;
  int waiting = 0; ///< exchanges and groups being made
  /// With a progress thread, all of MPI's work is that thread's, copies included: starts and waits only tell it.
  std::thread poller;
  std::mutex queueMutex; ///< may be taken under `mutex`, not the other way round
  std::condition_variable queueChanged;
  std::vector<std::unique_ptr<MpiOperation>> queue; ///< submitted, not yet among the operations
  bool isAwaited = false, stopping = false;
  std::unique_ptr<MpiNeighbours> neighbours;
  Clock::time_point nextLook;
  bool sawDead = false;

  /// Moves everything on as far as it goes without waiting.
  void progress();
  void pollLoop();
  void takeQueue();
  /// The operation is in flight from now on: posted, or held back.
  void admit(std::unique_ptr<MpiOperation> operation);
  /// Posts what was held back and may start now.
  void startHeld();
  /// Goes on with the operations that wait for no message.
  void finishIdle();
  /// Ends the job if a process that something in flight may need is gone. Its last messages have been looked at.
  void lookForDead();
  void cancelAll();
  /// Another rank's error has arrived.
  void takeError();
  /// Ends the job here and tells the others.
  void raise(int32_t error, const std::string &text);
  void tellOthers(int32_t error, const std::string &text);
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_MPIJOB_H
