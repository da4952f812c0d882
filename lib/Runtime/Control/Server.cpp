//===- Server.cpp - Rank 0 of the control plane -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The life of a job as rank 0 sees it: it listens, waits for the others, combines their values, and ends after them.
// ServerLoop.cpp has what the polling thread does.
//
//===------------------------------------------------------------------------------------------===//

#include "Control/Server.h"
#include "Core/BackendLoader.h"
#include "Core/Support/Text.h"
#include <algorithm>
#include <cerrno>
#include <cstring>

using namespace commsched::runtime;
using namespace commsched::runtime::control;

/// How many ranks a message names.
static constexpr int kMostNamed = 8;

Pace::Pace(int64_t timeoutNs, const MeetingPoint &point)
    : timeout(timeoutNs), start(point.startMs > 0 ? std::chrono::milliseconds(point.startMs) : timeout) {
  // A short timeout still leaves room for several heartbeats.
  constexpr int parts = 8;
  silence = std::min<std::chrono::nanoseconds>(std::chrono::milliseconds(point.silenceMs), timeout);
  heartbeat = std::min<std::chrono::nanoseconds>(kHeartbeat, silence / parts);
  heartbeat = std::max<std::chrono::nanoseconds>(heartbeat, std::chrono::milliseconds(1));
}

Server::Server(const Launch &launch, const MeetingPoint &point, const commrt_backend_config &config)
    : launch(launch), point(point), config(config), pace(config.timeout_ns, point), engine(*threadsBackend()),
      members(launch.ranks) {}

//===- Opening ----------------------------------------------------------------------------------===//

int32_t Server::listen(std::string &text) {
  std::string error;
  std::string where = point.host + ", port " + std::to_string(point.port);
  std::vector<SocketAddress> addresses = resolve(point.host, point.port, error);
  if (addresses.empty()) {
    text = "cannot listen at " + where + ": " + error;
    return COMMRT_ERR_INVALID;
  }
  int code = 0;
  for (const SocketAddress &candidate : addresses) {
    if (point.secret.empty() && !candidate.isLoopback()) {
      text = "others can reach " + candidate.text() + ": set COMMRT_SECRET to the same text on all ranks";
      return COMMRT_ERR_INVALID;
    }
    int failure = 0;
    Socket socket = Socket::listen(candidate, failure);
    // A name may have addresses that this machine cannot use (IPv6 is off); one that is taken is an error.
    code = failure == 0 ? code : failure;
    if (failure == EADDRINUSE || failure == EACCES)
      break;
    if (!socket.isOpen())
      continue;
    address += (address.empty() ? "" : ", ") + candidate.text();
    listeners.push_back(std::move(socket));
  }
  bool isTaken = code == EADDRINUSE || code == EACCES;
  if (!listeners.empty() && !isTaken)
    return COMMRT_OK;
  listeners.clear();
  text = "cannot listen at " + where + ": " + std::strerror(code) +
         (code == EADDRINUSE      ? "; does another job use this port?"
          : code == EADDRNOTAVAIL ? "; rank 0 has to run on the machine that has this address"
                                  : "");
  return COMMRT_ERR_BACKEND;
}

std::string Server::missingRanks() {
  std::string text;
  int count = 0;
  for (int32_t rank = 1; rank < launch.ranks; ++rank)
    if (!members[rank] && ++count <= kMostNamed)
      text += (count > 1 ? ", rank " : "rank ") + std::to_string(rank);
  if (count > kMostNamed)
    text += " and " + std::to_string(count - kMostNamed) + " more";
  return text;
}

int32_t Server::open(std::string &text) {
  commrt_backend_config ofEngine = config;
  ofEngine.ranks = launch.ranks;
  void *opened = nullptr;
  int32_t ranks, localRank;
  char message[512] = "";
  if (int32_t failed = engine.open(&ofEngine, &opened, &ranks, &localRank, message, sizeof(message))) {
    text = message;
    return failed;
  }
  job = static_cast<ThreadsJob *>(opened);
  if (launch.ranks == 1)
    return COMMRT_OK;
  int32_t failed = waker.open() ? listen(text) : COMMRT_ERR_BACKEND;
  if (failed == COMMRT_ERR_BACKEND && text.empty())
    text = std::string("no socket: ") + std::strerror(errno);
  if (failed != COMMRT_OK) {
    engine.close(job);
    job = nullptr;
    return failed;
  }
  nextTick = lastPoll = Clock::now();
  thread = std::thread([this] { loop(); });
  {
    std::unique_lock<std::mutex> lock(mutex);
    mutex.isHeld();
    bool isOver = changed.wait_for(lock, pace.start, [&] {
      mutex.isHeld();
      return hasBegun || status != COMMRT_OK;
    });
    if (hasBegun)
      return COMMRT_OK; // what has failed since then is told to the context
    failed = isOver ? status : COMMRT_ERR_TIMEOUT;
    text = isOver ? "rank " + std::to_string(errorRank) + ": " + errorText
                  : "waited " + std::to_string(pace.start.count() / 1'000'000) + " ms at " + address + "; " +
                        missingRanks() + " did not come";
    if (!isOver && !refused.empty())
      text += "; refused " + refused;
  }
  if (failed == COMMRT_ERR_TIMEOUT)
    raise(failed, 0, text);
  close();
  return failed;
}

//===- Errors -----------------------------------------------------------------------------------===//

void Server::raise(int32_t error, int32_t rank, const std::string &text) {
  {
    Lock lock(job->mutex);
    job->raise(error, rank, text);
  }
  // The upcalls have done this where there is a rank to tell.
  Lock lock(mutex);
  if (status == COMMRT_OK) {
    status = error;
    errorRank = rank;
    errorText = text;
  }
  changed.notify_all();
}

void Server::failRemote(void *context, int32_t status, int32_t rank, const char *message) {
  auto &member = *static_cast<Member *>(context);
  Server &server = *member.server;
  member.connection.post(encodeFailure(status, rank, message));
  Lock lock(server.mutex);
  if (server.status == COMMRT_OK) {
    server.status = status;
    server.errorRank = rank;
    server.errorText = message;
  }
  server.changed.notify_all();
}

//===- Rank 0 -----------------------------------------------------------------------------------===//

int32_t Server::attach(const commrt_host *host, void *context) {
  int32_t result = engine.attach(job, 0, host, context, &ownPeer);
  std::unique_lock<std::mutex> lock(mutex);
  mutex.isHeld();
  if (result != COMMRT_OK || status == COMMRT_OK)
    return result;
  // The job failed before there was somebody to tell.
  int32_t error = status, rank = errorRank;
  std::string text = errorText;
  lock.unlock();
  host->failed(context, error, rank, text.c_str());
  return COMMRT_OK;
}

void Server::detach() {
  bool isAwaited = false;
  {
    Lock lock(mutex);
    hasLeft = true;
    for (auto &member : members)
      isAwaited |= member && member->hasValue;
  }
  if (isAwaited)
    raise(COMMRT_ERR_PEER, 0, kLeftBeforeCombining);
  engine.detach(ownPeer);
  ownPeer = nullptr;
}

int32_t Server::createGroup(const char *name, const int32_t *groupMembers, int32_t size, int32_t index, Group &group) {
  char unused[1];
  return engine.group_create(ownPeer, name, groupMembers, size, index, &group.ofEngine, unused, sizeof(unused));
}

int32_t Server::submit(const Group &group, commrt_work *work) { return engine.submit(group.ofEngine, work); }

void Server::abort(int32_t error, const char *message) { raise(error, 0, message); }

std::string Server::describe() {
  constexpr size_t longest = 4096;
  char text[longest] = "";
  engine.describe(ownPeer, text, sizeof(text));
  return text;
}

std::string Server::missingValues() {
  std::vector<int32_t> late;
  {
    Lock lock(mutex);
    if (!isCombining)
      late.push_back(0);
    for (int32_t rank = 1; rank < launch.ranks; ++rank)
      if (!members[rank] || !members[rank]->hasValue)
        late.push_back(rank);
  }
  std::string text = "no word from";
  Lock lock(job->mutex);
  for (size_t i = 0; i < late.size() && i < kMostNamed; ++i)
    text += " rank " + std::to_string(late[i]) + " (" + job->lastOf(late[i]) + ")";
  return late.size() > kMostNamed ? text + " and " + std::to_string(late.size() - kMostNamed) + " more" : text;
}

int32_t Server::combine(void *value, int64_t bytes, commrt_combine_fn combineTwo, int64_t timeoutNs,
                        std::string &text) {
  std::unique_lock<std::mutex> lock(mutex);
  mutex.isHeld();
  isCombining = true;
  int32_t gone = -1;
  bool differs = false;
  auto isReady = [&] {
    mutex.isHeld();
    bool all = true;
    for (int32_t rank = 1; rank < launch.ranks; ++rank) {
      Member *member = members[rank].get();
      if (member && member->hasValue)
        differs |= static_cast<int64_t>(member->value.size()) != bytes;
      else if (member && member->hasLeft)
        gone = rank;
      else
        all = false;
    }
    return all || differs || gone >= 0 || status != COMMRT_OK;
  };
  bool inTime = changed.wait_for(lock, std::chrono::nanoseconds(timeoutNs), isReady);
  if (inTime && gone < 0 && !differs && status == COMMRT_OK) {
    for (int32_t rank = 1; rank < launch.ranks; ++rank) {
      combineTwo(value, members[rank]->value.data(), bytes);
      members[rank]->value = Bytes();
      members[rank]->hasValue = false;
    }
    isCombining = false;
    lock.unlock();
    auto *begin = static_cast<const char *>(value);
    Bytes frame = encodeFrame(Kind::result, Bytes(begin, begin + bytes));
    for (int32_t rank = 1; rank < launch.ranks; ++rank)
      members[rank]->connection.post(frame);
    return COMMRT_OK;
  }
  int32_t failed = status;
  lock.unlock();
  if (!inTime) {
    text = missingValues();
    return COMMRT_ERR_TIMEOUT;
  }
  if (failed == COMMRT_OK) {
    failed = differs ? COMMRT_ERR_MISMATCH : COMMRT_ERR_PEER;
    raise(failed, differs ? 0 : gone, differs ? kDifferentCombinations : kLeftBeforeCombining);
  }
  return failed;
}

//===- Closing ----------------------------------------------------------------------------------===//

void Server::close() {
  if (!job)
    return;
  if (thread.joinable()) {
    std::unique_lock<std::mutex> lock(mutex);
    mutex.isHeld();
    auto isAlone = [&] {
      mutex.isHeld();
      return numGone == numCome;
    };
    bool failed = status != COMMRT_OK;
    if (!failed)
      failed = !changed.wait_for(lock, pace.timeout, [&] {
        mutex.isHeld();
        return isAlone() || status != COMMRT_OK;
      }) || status != COMMRT_OK;
    if (failed && !isAlone()) {
      lock.unlock();
      raise(COMMRT_ERR_PEER, 0, "left, and its process is about to end: the others' messages pass through it");
      lock.lock();
      changed.wait_for(lock, kFarewell, isAlone);
    }
    stopping = true;
    lock.unlock();
    waker.wake();
    thread.join();
  }
  if (ownPeer)
    engine.detach(ownPeer);
  for (auto &member : members)
    if (member)
      member->leaveEngine(engine);
  engine.close(job);
  job = nullptr;
}
