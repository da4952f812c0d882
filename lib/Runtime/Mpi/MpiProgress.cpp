//===- MpiProgress.cpp - Progress of the operations in flight over MPI -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One call tests the requests, advances the collectives whose messages have arrived, and notices errors and deaths of
// other ranks.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Support/Text.h"
#include "MpiJob.h"

using namespace commsched::runtime;

/// Time between two checks of whether the processes of the other ranks on this machine are alive.
static constexpr auto lifeInterval = std::chrono::milliseconds(20);
static constexpr auto pollInterval = std::chrono::microseconds(200);
/// The most rounds of one call of progress, which goes on while requests complete.
static constexpr int roundsPerCall = 16;

//===- Errors -----------------------------------------------------------------------------------===//

void MpiJob::cancelAll() {
  // MPI may still write to the receive buffers of some operations, or read their send buffers.
  for (MpiOperation *operation : requests.abandon())
    if (operation)
      operation->isInUse = true;
  for (MpiGroup *group : groups) {
    group->heldCollectives.clear();
    group->heldMessages.clear();
  }
  numHeld = 0;
  idle.clear();
  for (auto &operation : operations) {
    if (!operation->isInUse) {
      host->complete(operation->work, status, 0);
      continue;
    }
    if (COMMRT_REACHES(host, commrt_host, abandon))
      host->abandon(operation->work, status);
    else
      host->complete(operation->work, status, 0);
    leakObject(operation);
  }
  operations.clear();
}

void MpiJob::tellOthers(int32_t error, const std::string &text, int32_t origin) {
  outgoing.status = error;
  outgoing.rank = origin;
  copyText(text, outgoing.text, sizeof(outgoing.text));
  for (int other = 0; other < ranks; ++other)
    if (other != rank) {
      MPI_Request request;
      if (MPI_Isend(&outgoing, sizeof(outgoing), MPI_BYTE, other, mpiErrorTag, control, &request) == MPI_SUCCESS)
        outgoingRequests.push_back(request);
    }
}

void MpiJob::raise(int32_t error, const std::string &text, int32_t origin) {
  if (status != COMMRT_OK)
    return;
  status = error;
  tellOthers(error, text, origin);
  host->failed(context, error, origin, text.c_str());
  cancelAll();
}

void MpiJob::takeError() {
  if (status != COMMRT_OK)
    return;
  status = incoming.status;
  incoming.text[sizeof(incoming.text) - 1] = 0;
  if (host)
    host->failed(context, incoming.status, incoming.rank, incoming.text);
  cancelAll();
}

//===- Operations -------------------------------------------------------------------------------===//

void MpiJob::admit(std::unique_ptr<MpiOperation> operation) {
  MpiOperation *added = operation.get();
  added->enlist();
  operations.push_back(std::move(operation));
  added->self = std::prev(operations.end());
  auto &held = added->isPointToPoint() ? added->group.heldMessages : added->group.heldCollectives;
  held.push_back(added);
  ++numHeld;
  startHeld();
}

void MpiJob::startHeld() {
  if (numHeld == 0 || status != COMMRT_OK)
    return;
  for (MpiGroup *group : groups)
    for (auto *held : {&group->heldCollectives, &group->heldMessages})
      while (!held->empty() && held->front()->mayStart()) {
        MpiOperation *operation = held->front();
        held->pop_front();
        --numHeld;
        if (int32_t failed = operation->start())
          return raise(failed, "MPI cannot start " + operation->text);
        if (operation->isIdle())
          idle.push_back(operation);
      }
}

void MpiJob::finishIdle() {
  while (!idle.empty() && status == COMMRT_OK) {
    MpiOperation *operation = idle.back();
    idle.pop_back();
    bool done = false;
    if (int32_t failed = operation->advance(done))
      return raise(failed, "MPI failed in " + operation->text);
    if (!done) {
      if (operation->isIdle())
        idle.push_back(operation);
      continue;
    }
    commrt_work *work = operation->work;
    operation->retire();
    operations.erase(operation->self);
    host->complete(work, COMMRT_OK, 0);
  }
}

//===- Progress ---------------------------------------------------------------------------------===//

void MpiJob::takeQueue() {
  if (!hasQueued)
    return;
  std::vector<std::unique_ptr<MpiOperation>> taken;
  int32_t error;
  std::string text;
  {
    Lock lock(queueMutex);
    hasQueued = false;
    taken.swap(queue);
    error = abortStatus;
    text = abortText;
  }
  for (auto &operation : taken)
    admit(std::move(operation));
  if (error != COMMRT_OK)
    raise(error, text);
}

void MpiJob::pollLoop() {
  while (true) {
    progress();
    std::unique_lock<std::mutex> lock(queueMutex);
    queueMutex.isHeld();
    queueChanged.wait_for(lock, pollInterval, [&] {
      queueMutex.isHeld();
      return !queue.empty() || isAwaited || stopping;
    });
    isAwaited = false;
    if (stopping)
      return;
  }
}

void MpiJob::stopPoller() {
  {
    Lock lock(queueMutex);
    stopping = true;
    queueChanged.notify_one();
  }
  if (poller.joinable())
    poller.join();
}

bool MpiJob::pollUntil(Clock::time_point deadline, const std::function<bool()> &done) {
  while (true) {
    progress();
    {
      std::lock_guard<std::recursive_mutex> lock(mutex);
      if (done())
        return true;
    }
    if (Clock::now() >= deadline)
      return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void MpiJob::progress() {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  takeQueue();
  if (status != COMMRT_OK)
    return cancelAll(); // operations that were submitted before the error was known
  startHeld();
  finishIdle();
  for (int round = 0; round < roundsPerCall && status == COMMRT_OK; ++round) {
    if (int code = requests.test(completed))
      return raise(COMMRT_ERR_BACKEND, "MPI_Testsome: " + mpiErrorText(code));
    if (completed.empty()) {
      // Who waits comes here again and again. The call with which a wait ends need not read the clock.
      if (round == 0)
        lookAtOthers();
      return;
    }
    for (const MpiRequests::Done &done : completed) {
      if (!done.operation)
        return takeError();
      std::string error;
      if (int32_t failed = done.operation->endTransfer(done.transfer, done.status, error))
        return raise(failed, error);
      if (done.operation->isIdle())
        idle.push_back(done.operation);
    }
    finishIdle();
    startHeld();
  }
}

void MpiJob::lookAtOthers() {
  Clock::time_point now = Clock::now();
  if (!neighbours || status != COMMRT_OK || now < nextLook || (operations.empty() && !isCombining && !isMakingGroup))
    return;
  nextLook = now + lifeInterval;
  takeLeaving();
  checkLeaving();
  if (status == COMMRT_OK)
    lookForDead();
}

void MpiJob::lookForDead() {
  int32_t dead = neighbours->findDead([&](int32_t other) { return leaving[other].state == MpiLeaving::known; });
  if (dead < 0)
    return;
  if (!sawDead) { // read its last message first
    sawDead = true;
    nextLook = Clock::now();
    return;
  }
  std::string text = "the process of rank " + std::to_string(dead) + " has ended";
  if (!operations.empty())
    text += "; rank " + std::to_string(rank) + " is in " + operations.front()->text;
  raise(COMMRT_ERR_PEER, text);
}
