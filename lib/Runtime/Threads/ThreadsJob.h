//===- ThreadsJob.h - The rendezvous of ranks in one process ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// State of the threads and sim backends. One mutex guards all of it; data moves outside of the mutex, on worker threads
// or, when it is tiny, on the thread of the rank that arrived last.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_THREADS_THREADSJOB_H
#define COMMSCHED_LIB_RUNTIME_THREADS_THREADSJOB_H

#include "CommSched/Runtime/Backend.h"
#include "Core/Support/Guarded.h"
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace commsched::runtime {
struct ThreadsJob;

struct ThreadsPeer {
  ThreadsJob *job;
  int32_t rank;
  const commrt_host *host;
  void *context;
  int64_t executing = 0; ///< number of works that are matched and not complete; under the job's mutex
  std::string last;      ///< the last collective that it started, kept after it has left; under the job's mutex
};

/// Where the members of one collective meet.
struct Slot {
  std::vector<int32_t> ranks; ///< indexed as `works`: the member's rank
  std::vector<commrt_work *> works;
  std::vector<ThreadsPeer *> peers; ///< indexed as `works`, once it is dispatched; none detaches while it executes
  int32_t arrived = 0;
  int64_t virtualEndNs = 0;
};

/// The key by which a send and a receive match: members and tag.
struct MessageKey {
  int32_t source, target;
  int64_t tag;
  bool operator<(const MessageKey &other) const {
    return std::tie(source, target, tag) < std::tie(other.source, other.target, other.tag);
  }
};

/// The members of one subset and their open collectives, shared by the members' handles. Under the job's mutex.
struct Lane {
  std::vector<int32_t> members;
  std::vector<int64_t> started;            ///< indexed by member: number of collectives so far
  std::deque<std::unique_ptr<Slot>> slots; ///< open collectives; the first has the number `firstOpen`
  int64_t firstOpen = 0;
  /// Open sends and receives. No list is empty.
  std::map<MessageKey, std::deque<commrt_work *>> sends, receives;
  int64_t freeNs = 0; ///< in sim, when the group's lane is free, ns
};

struct LaneHandle {
  ThreadsPeer *peer;
  Lane *lane;
  int32_t index;
};

struct ThreadsJob {
  using Clock = std::chrono::steady_clock;

  explicit ThreadsJob(int32_t ranks) : ranks(ranks), peers(ranks), left(ranks), exchangeArrived(ranks) {}

  const int32_t ranks;
  Mutex mutex;
  std::condition_variable workChanged, exchangeChanged, executed;
  /// Indexed by rank; null before attach and after detach.
  std::vector<std::unique_ptr<ThreadsPeer>> peers COMMRT_GUARDED_BY(mutex);
  std::vector<bool> left COMMRT_GUARDED_BY(mutex);
  int32_t numLeft COMMRT_GUARDED_BY(mutex) = 0;
  std::map<std::pair<std::string, std::vector<int32_t>>, std::unique_ptr<Lane>> lanes COMMRT_GUARDED_BY(mutex);

  std::deque<std::unique_ptr<Slot>> ready COMMRT_GUARDED_BY(mutex);
  std::multimap<Clock::time_point, std::unique_ptr<Slot>> delayed COMMRT_GUARDED_BY(mutex);
  std::vector<std::thread> workers; ///< made when the job is opened, joined when it is closed
  bool stopping COMMRT_GUARDED_BY(mutex) = false;

  /// Symmetric memory: one mapping per segment, in which the part of rank r begins at r * bytes.
  struct Segment {
    char *base;
    int64_t bytes;
  };
  std::vector<Segment> segments COMMRT_GUARDED_BY(mutex);

  int32_t status COMMRT_GUARDED_BY(mutex) = COMMRT_OK; ///< the error that ended the job

  // The values that are being collected, indexed by rank, and then their combination.
  std::shared_ptr<std::vector<char>> exchange COMMRT_GUARDED_BY(mutex);
  std::vector<bool> exchangeArrived COMMRT_GUARDED_BY(mutex);
  int32_t numArrived COMMRT_GUARDED_BY(mutex) = 0;
  int64_t exchangeBytes COMMRT_GUARDED_BY(mutex) = 0, exchangeNumber COMMRT_GUARDED_BY(mutex) = 0;

  /// Ends the job.
  void raise(int32_t error, int32_t rank, const std::string &message, void *except = nullptr) COMMRT_REQUIRES(mutex);
  /// Removes all open and queued works.
  std::vector<std::pair<int32_t, commrt_work *>> takeUnfinished() COMMRT_REQUIRES(mutex);
  /// Queues a full slot, or returns it for the caller to carry out.
  std::unique_ptr<Slot> dispatch(std::unique_ptr<Slot> slot, Lane &lane) COMMRT_REQUIRES(mutex);
  /// Carries out a slot. The mutex is not locked.
  void execute(std::unique_ptr<Slot> slot);
  void work();
  std::string describe(const commrt_work *work) COMMRT_REQUIRES(mutex);
  /// The ranks of an open slot that have not arrived, and the last collective that each started.
  std::string missing(const Lane &lane, const Slot &slot) COMMRT_REQUIRES(mutex);
  std::string lastOf(int32_t rank) COMMRT_REQUIRES(mutex);
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_THREADS_THREADSJOB_H
