//===- NcclEnd.cpp - Ends of communicators in the emulated NCCL -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An orderly end waits for what was issued. An abort lets the operations that wait for other ranks go on without data,
// on a thread of its own: a stream may be behind several communicators, and all are aborted one after another.
//
//===------------------------------------------------------------------------------------------===//

#include "CudaApi.h"
#include "NcclComm.h"
#include <pthread.h>
#include <unistd.h>
#include <utility>

namespace emulator {
/// Gives the communicator's streams and events back.
static void releaseStreams(ncclComm *comm) {
  for (auto &[key, helper] : comm->helpers) {
    check(cudaStreamDestroy(helper.first), "cudaStreamDestroy");
    check(cudaEventDestroy(helper.second), "cudaEventDestroy");
  }
  for (cudaEvent_t event : comm->forks)
    check(cudaEventDestroy(event), "cudaEventDestroy");
  for (cudaEvent_t event : {comm->order, comm->capturedOrder})
    if (event)
      check(cudaEventDestroy(event), "cudaEventDestroy");
}

/// The member leaves; the last one frees the mailboxes.
static void leave(ncclComm *comm) {
  Mail *mail = nullptr;
  {
    Held held;
    forget(comm);
    if (comm->shared && --comm->shared->users == 0 && !comm->shared->common)
      std::swap(mail, comm->shared->mail);
  }
  if (mail)
    check(cudaFreeHost(mail), "cudaFreeHost");
}

void dropForgotten(ncclComm *comm) {
  comm->tasks.remove_if([](const auto &task) { return task->isForgotten && *task->isForgotten; });
}

/// Sets every word that an operation of this member may wait for. False if nothing is left.
static bool letGo(ncclComm *comm) {
  Held held;
  if (!comm->shared)
    return false;
  Shared &shared = *comm->shared;
  dropForgotten(comm);
  if (comm->tasks.empty() || !shared.mail)
    return false;
  __atomic_store_n(&shared.noMail(comm->rank).ready, 1, __ATOMIC_RELEASE);
  for (int channel = 0; channel < kChannels; ++channel)
    for (int member = 0; member < shared.size; ++member) {
      __atomic_store_n(&shared.mailOf(Channel(channel), member, comm->rank).ready, 1, __ATOMIC_RELEASE);
      __atomic_store_n(&shared.mailOf(Channel(channel), comm->rank, member).taken, 1, __ATOMIC_RELEASE);
    }
  return true;
}

/// How long the words are left alone between two attempts, in microseconds.
constexpr int attemptUs = 2000;

/// Whether operations of this member that were launched are not done. A task is gone before the last operation of its
/// own has set its words. In the schedule without threads, asking runs what is ready.
static bool isRunning(ncclComm *comm) { return comm->hasLaunched && cudaEventQuery(comm->order) == cudaErrorNotReady; }

/// Lets go until everything is done, and no graph is left that may launch something.
static void letAllGo(ncclComm *comm) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed; // the query is safe beside captures of other streams
  check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
  for (bool isLeft = true; isLeft;) {
    isLeft = letGo(comm);
    isLeft |= isRunning(comm);
    if (isLeft)
      usleep(attemptUs);
  }
  check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
}

namespace {
/// How many aborts are on their way. The process does not look for leaks before they are done, or have had their time.
struct Aborts {
  std::atomic<int> count{0};
  ~Aborts() {
    constexpr int mostAttempts = 1000; // two seconds
    for (int i = 0; i < mostAttempts && count > 0; ++i)
      usleep(attemptUs);
  }
} aborts;
} // namespace

static void *abortInBackground(void *argument) {
  auto *comm = static_cast<ncclComm *>(argument);
  while (comm->isRevoking)
    usleep(attemptUs);
  letAllGo(comm);
  releaseStreams(comm);
  bool isWaitedFor = comm->isJoining; // a thread may still be in the function that makes it
  leave(comm);
  if (!isWaitedFor)
    delete comm;
  --aborts.count;
  return nullptr;
}

/// The members of a communicator end together.
static void countFinalized(ncclComm *comm) {
  if (Common *common = comm->shared->common) {
    ++common->finalized;
    return;
  }
  Held held;
  ++comm->shared->finalized;
}

/// From now on the communicator's operations move no data.
static void poison(ncclComm *comm) {
  Held held;
  comm->isFailed = true;
  for (Shared *shared : {comm->shared.get(), comm->parent.get()}) {
    if (!shared)
      continue;
    if (shared == comm->shared.get()) {
      shared->isAborted = true;
      if (shared->common)
        shared->common->isAborted = 1;
    }
    for (Waiter *waiter : shared->waiters)
      waiter->wake();
    shared->waiters.clear();
  }
}

/// What is in progress is put on its streams: NCCL's own thread may do so until the abort.
static void launchDeferred(ncclComm *comm) {
  std::vector<std::pair<Call, cudaStream_t>> deferred;
  {
    Held held;
    deferred.swap(comm->deferred);
    comm->polls = 0;
  }
  if (!deferred.empty())
    launch(comm, deferred);
}
} // namespace emulator

using namespace emulator;

extern "C" {
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  Using use("ncclCommFinalize", comm);
  if (comm->isFinalized)
    return ncclInvalidArgument;
  comm->isFinalized = true;
  countFinalized(comm);
  if (comm->isBlocking) {
    if (comm->hasLaunched)
      check(cudaEventSynchronize(comm->order), "cudaEventSynchronize");
    return ncclSuccess;
  }
  Held held;
  comm->polls = 1 + randomPolls();
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm)
    return ncclSuccess;
  {
    Using use("ncclCommDestroy", comm);
    {
      Held held;
      checkNoWindows(comm);
    }
    if (!std::exchange(comm->isFinalized, true))
      countFinalized(comm);
    if (comm->hasLaunched)
      check(cudaEventSynchronize(comm->order), "cudaEventSynchronize");
    releaseStreams(comm);
  }
  leave(comm);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  InFunction function("ncclCommAbort");
  if (!comm)
    return ncclSuccess;
  {
    Held held;
    if (!isLive(comm))
      report("the communicator is destroyed, or was never made");
    if (faultOf("hang-abort", comm->jobRank, 0)) {
      stateLock().unlock();
      while (true)
        pause();
    }
  }
  launchDeferred(comm);
  {
    Held held;
    forget(comm);
    forgetWindows(comm);
  }
  poison(comm);
  pthread_t thread;
  ++aborts.count;
  if (pthread_create(&thread, nullptr, abortInBackground, comm) != 0)
    report("cannot start a thread");
  pthread_detach(thread);
  return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  InFunction function("ncclCommRevoke");
  needsVersion(22807, "ncclCommRevoke");
  if (flags != 0)
    return ncclInvalidArgument;
  {
    Held held;
    if (!isLive(comm))
      report("the communicator is destroyed, or was never made");
    if (comm->isRevoked || comm->isFinalized)
      return ncclInvalidArgument;
    comm->isRevoked = true;
  }
  launchDeferred(comm);
  poison(comm);
  if (faultOf("hang-revoke", comm->jobRank, 0))
    return ncclInProgress;
  if (comm->isBlocking) {
    letAllGo(comm);
    return ncclSuccess;
  }
  pthread_t thread;
  ++aborts.count;
  comm->isRevoking = true;
  auto letGoInBackground = [](void *argument) -> void * {
    auto *revoked = static_cast<ncclComm *>(argument);
    letAllGo(revoked);
    revoked->isRevoking = false;
    --aborts.count;
    return nullptr;
  };
  if (pthread_create(&thread, nullptr, letGoInBackground, comm) != 0)
    report("cannot start a thread");
  pthread_detach(thread);
  return ncclInProgress;
}
}
