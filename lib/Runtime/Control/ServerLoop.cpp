//===- ServerLoop.cpp - The polling thread of rank 0 ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Accepts connections, lets ranks join that know the secret, carries out what they ask, and notices those that are
// gone.
//
//===------------------------------------------------------------------------------------------===//

#include "Control/Server.h"
#include "Core/BackendLoader.h"
#include "Core/Support/Text.h"
#include <algorithm>
#include <poll.h>

using namespace commsched::runtime;
using namespace commsched::runtime::control;

/// A connection that does not say who it is within this time is closed.
static constexpr auto kGreetingTime = std::chrono::seconds(10);
/// Connections that have not said who they are, beyond one per rank; the oldest is closed where there are more.
static constexpr size_t kMostStrangers = 64;

void Server::loop() {
  while (true) {
    {
      Lock lock(mutex);
      if (stopping)
        return;
    }
    pollOnce();
    tick();
  }
}

void Server::pollOnce() {
  std::vector<pollfd> polled;
  polled.push_back({waker.get(), POLLIN, 0});
  for (const Socket &listener : listeners)
    polled.push_back({listener.get(), POLLIN, 0});
  size_t firstStranger = polled.size();
  for (const Stranger &stranger : strangers)
    polled.push_back({stranger.socket.get(), POLLIN, 0});
  size_t firstMember = polled.size();
  std::vector<Member *> open;
  for (auto &member : members)
    if (member && !member->isGone) {
      open.push_back(member.get());
      short events = member->connection.wantsToWrite() ? POLLIN | POLLOUT : POLLIN;
      polled.push_back({member->connection.get(), events, 0});
    }
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(nextTick - Clock::now()).count();
  int wait = static_cast<int>(std::clamp<int64_t>(left + 1, 0, 1000));
  if (poll(polled.data(), polled.size(), wait) < 0)
    return; // a signal; the next round asks again
  if (polled[0].revents)
    waker.clear();
  for (size_t i = 0; i < open.size(); ++i) {
    short events = polled[firstMember + i].revents;
    if (events & POLLOUT)
      open[i]->connection.flush();
    if (events & (POLLIN | POLLHUP | POLLERR))
      serve(*open[i]);
  }
  std::vector<short> events;
  for (size_t i = firstStranger; i < firstMember; ++i)
    events.push_back(polled[i].revents);
  readStrangers(events);
  bool isSomebodyNew = false;
  for (size_t i = 1; i < firstStranger; ++i)
    isSomebodyNew |= polled[i].revents != 0;
  if (isSomebodyNew)
    acceptAll();
  beginOnceComplete();
}

//===- Joining ----------------------------------------------------------------------------------===//

void Server::acceptAll() {
  for (const Socket &listener : listeners)
    for (Socket socket = listener.accept(); socket.isOpen(); socket = listener.accept()) {
      if (strangers.size() >= members.size() + kMostStrangers)
        makeRoom();
      strangers.push_back({std::move(socket), {}, Clock::now() + kGreetingTime});
    }
}

/// A rank whose greeting has arrived joins, however many connections stand in front of it. Only a connection that has
/// not sent a whole greeting is closed, the oldest one first; if it was a rank, it tries again.
void Server::makeRoom() {
  for (Stranger &stranger : strangers)
    readStranger(stranger, /*hasData=*/true);
  forgetClosedStrangers();
  if (strangers.size() >= members.size() + kMostStrangers)
    strangers.erase(strangers.begin());
}

void Server::readStranger(Stranger &stranger, bool hasData) {
  bool isOver = Clock::now() > stranger.deadline;
  while (hasData && !isOver && stranger.greeting.size() < kGreetingBytes) {
    char part[kGreetingBytes];
    size_t count = 0;
    Transfer transfer = stranger.socket.read(part, kGreetingBytes - stranger.greeting.size(), count);
    if (transfer == Transfer::later)
      break;
    isOver = transfer == Transfer::closed;
    stranger.greeting.insert(stranger.greeting.end(), part, part + count);
  }
  if (stranger.greeting.size() == kGreetingBytes)
    greet(stranger);
  if (isOver)
    stranger.socket.close();
}

void Server::readStrangers(const std::vector<short> &events) {
  for (size_t i = 0; i < events.size(); ++i)
    readStranger(strangers[i], events[i] != 0);
  forgetClosedStrangers();
}

void Server::forgetClosedStrangers() {
  strangers.erase(std::remove_if(strangers.begin(), strangers.end(),
                                 [](const Stranger &stranger) { return !stranger.socket.isOpen(); }),
                  strangers.end());
}

std::string Server::whyRefused(const Greeting &greeting) {
  if (!isSameSecret(greeting.secret, point.secret))
    return "COMMRT_SECRET is another one on rank 0";
  if (greeting.version != kVersion)
    return "rank 0 has another version of the runtime";
  if (greeting.job != point.job)
    return "another job uses this port";
  if (greeting.ranks != launch.ranks)
    return "the job at this port has " + std::to_string(launch.ranks) + " ranks, not " + std::to_string(greeting.ranks);
  if (greeting.rank < 1 || greeting.rank >= launch.ranks)
    return "there is no rank " + std::to_string(greeting.rank);
  Lock lock(mutex);
  if (members[greeting.rank])
    return "rank " + std::to_string(greeting.rank) + " is there already; does another job use this port?";
  return status != COMMRT_OK ? "the job has failed: " + errorText : "";
}

void Server::greet(Stranger &stranger) {
  Socket socket = std::move(stranger.socket);
  Greeting greeting;
  if (!decodeGreeting(stranger.greeting.data(), greeting))
    return; // not one of ours
  std::string why = whyRefused(greeting);
  if (why.empty())
    return join(greeting, std::move(socket));
  {
    Lock lock(mutex);
    refused = "one that says it is rank " + std::to_string(greeting.rank) + ": " + why;
  }
  Bytes frame = encodeFailure(COMMRT_ERR_INVALID, -1, why);
  size_t written = 0;
  socket.write(frame.data(), frame.size(), written); // a few bytes fit into an empty buffer
  socket.finishWriting();
}

void Server::join(const Greeting &greeting, Socket socket) {
  auto made = std::make_unique<Member>(this, greeting.rank, std::move(socket));
  Member &member = *made;
  if (engine.attach(job, greeting.rank, &remoteHost(), &member, &member.peer) != COMMRT_OK)
    return;
  std::string missing;
  {
    Lock lock(mutex);
    members[greeting.rank] = std::move(made);
    if (++numCome == launch.ranks - 1 && status == COMMRT_OK)
      return; // the job begins at the end of this round
    missing = missingRanks();
  }
  Bytes body;
  Writer(body).text(missing);
  member.connection.post(encodeFrame(Kind::waiting, body));
}

void Server::beginOnceComplete() {
  {
    Lock lock(mutex);
    if (hasBegun || numCome < launch.ranks - 1 || status != COMMRT_OK)
      return;
  }
  // From here on the port is free: the next job of these ranks may meet there while this one ends.
  listeners.clear();
  strangers.clear();
  for (auto &other : members)
    if (other)
      other->connection.post(encodeFrame(Kind::begin));
  Lock lock(mutex);
  hasBegun = true;
  changed.notify_all();
}

//===- Serving ----------------------------------------------------------------------------------===//

void Server::serve(Member &member) {
  Connection::Status status =
      member.connection.receive([&](Kind kind, Bytes &body) { return handle(member, kind, body); });
  switch (status) {
  case Connection::Status::open:
    return;
  case Connection::Status::closed:
    return lose(member, "its connection was closed: its process has ended, or its machine is gone");
  case Connection::Status::malformed:
    return lose(member, "it sent something that is not a message of this version");
  }
}

void Server::lose(Member &member, const std::string &why) {
  bool hadLeft;
  {
    Lock lock(mutex);
    hadLeft = member.hasLeft;
  }
  if (!hadLeft) {
    std::string last;
    {
      Lock lock(job->mutex);
      last = job->lastOf(member.rank);
    }
    raise(COMMRT_ERR_PEER, member.rank, why + "; it " + last);
  }
  member.leaveEngine(engine);
  member.isGone = true;
  member.connection.finish();
  Lock lock(mutex);
  member.hasLeft = true;
  numGone += !hadLeft;
  changed.notify_all();
}

bool Server::handle(Member &member, Kind kind, Bytes &body) {
  Reader reader(body);
  if (!member.peer) // after it left
    return kind == Kind::heartbeat || kind == Kind::ask;
  switch (kind) {
  case Kind::heartbeat:
    return true;
  case Kind::group:
    return handleGroup(member, reader);
  case Kind::start:
    return handleStart(member, reader);
  case Kind::value:
    return handleValue(member, body);
  case Kind::failed: {
    int32_t error = reader.i32(), rank = reader.i32();
    std::string text = reader.text();
    if (!reader.isComplete() || error == COMMRT_OK || rank != member.rank)
      return false;
    raise(error, member.rank, text);
    return true;
  }
  case Kind::ask:
    handleAsk(member, reader);
    return reader.isComplete();
  case Kind::leave:
    handleLeave(member);
    return true;
  default:
    return false;
  }
}

bool Server::handleGroup(Member &member, Reader &reader) {
  uint64_t number = reader.u64();
  int32_t index = reader.i32();
  std::string name = reader.text();
  size_t size = reader.u32();
  if (!reader.isGood() || size == 0 || size > members.size() || reader.remaining() != size * sizeof(int32_t))
    return false;
  std::vector<int32_t> ranks(size);
  std::vector<bool> seen(members.size());
  for (int32_t &rank : ranks) {
    rank = reader.i32();
    if (rank < 0 || rank >= launch.ranks || seen[rank])
      return false;
    seen[rank] = true;
  }
  if (index < 0 || index >= static_cast<int32_t>(size) || ranks[index] != member.rank || member.groups.count(number))
    return false;
  Member::Group group = {nullptr, static_cast<int32_t>(size)};
  char unused[1];
  if (engine.group_create(member.peer, name.c_str(), ranks.data(), group.size, index, &group.handle, unused,
                          sizeof(unused)) != COMMRT_OK)
    return false;
  member.groups.emplace(number, group);
  return true;
}

bool Server::handleStart(Member &member, Reader &reader) {
  auto work = std::make_unique<RemoteWork>();
  work->member = &member;
  work->number = reader.u64();
  auto group = member.groups.find(reader.u64());
  if (!reader.isGood() || group == member.groups.end() ||
      !decodeWork(reader, group->second.size, work->base, work->location))
    return false;
  work->base.owner = work.get();
  commrt_work *submitted = &work.release()->base;
  if (int32_t status = engine.submit(group->second.handle, submitted))
    completeRemote(submitted, status, 0);
  return true;
}

void Server::completeRemote(commrt_work *base, int32_t status, int64_t) {
  std::unique_ptr<RemoteWork> work(static_cast<RemoteWork *>(base->owner));
  Bytes body;
  Writer writer(body);
  writer.u64(work->number);
  writer.i32(status);
  work->member->connection.post(encodeFrame(Kind::completed, body));
}

const commrt_host &Server::remoteHost() {
  static const commrt_host table = {sizeof(commrt_host), completeRemote, failRemote,
                                    [](const commrt_work *work, char *text, size_t size) {
                                      return static_cast<int32_t>(copyText(work->location, text, size));
                                    },
                                    [](commrt_work *work, int32_t status) { completeRemote(work, status, 0); }};
  return table;
}

bool Server::handleValue(Member &member, Bytes &body) {
  bool isAlone;
  {
    Lock lock(mutex);
    if (member.hasValue)
      return false;
    member.value = std::move(body);
    member.hasValue = true;
    isAlone = hasLeft && !isCombining;
    changed.notify_all();
  }
  if (isAlone)
    raise(COMMRT_ERR_PEER, 0, kLeftBeforeCombining);
  return true;
}

void Server::handleAsk(Member &member, Reader &reader) {
  uint64_t question = reader.u64();
  bool isAboutValues = reader.u32() != 0;
  constexpr size_t longestReport = 4096;
  char text[longestReport] = "";
  if (isAboutValues)
    copyText(missingValues(), text, sizeof(text));
  else if (member.peer)
    engine.describe(member.peer, text, sizeof(text));
  Bytes body;
  Writer writer(body);
  writer.u64(question);
  writer.text(text);
  member.connection.post(encodeFrame(Kind::answer, body));
}

void Server::handleLeave(Member &member) {
  int32_t waiting = -1;
  {
    Lock lock(mutex);
    member.hasLeft = true;
    ++numGone;
    if (isCombining && !member.hasValue)
      waiting = 0;
    for (auto &other : members)
      if (other && other->hasValue && !member.hasValue)
        waiting = other->rank;
    changed.notify_all();
  }
  if (waiting >= 0)
    raise(COMMRT_ERR_PEER, member.rank, kLeftBeforeCombining);
  member.leaveEngine(engine);
  member.connection.post(encodeFrame(Kind::heartbeat));
  member.connection.finish();
}

//===- Heartbeats -------------------------------------------------------------------------------===//

void Server::tick() {
  Clock::time_point now = Clock::now();
  // Where this thread itself did not run, the silence says nothing about the others.
  bool didNotRun = now - lastPoll > 2 * pace.heartbeat + kHeartbeat;
  lastPoll = now;
  if (didNotRun)
    for (auto &member : members)
      if (member)
        member->connection.lastHeard = now;
  if (now < nextTick)
    return;
  nextTick = now + pace.heartbeat;
  std::string missing;
  bool isForming;
  {
    Lock lock(mutex);
    isForming = !hasBegun;
    missing = missingRanks();
  }
  Bytes body;
  Writer(body).text(missing);
  for (auto &member : members) {
    if (!member || member->isGone)
      continue;
    if (now - member->connection.lastHeard > pace.silence) {
      auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(now - member->connection.lastHeard).count();
      lose(*member,
           "no heartbeat for " + std::to_string(silent) + " ms: its process does not run, or its machine is gone");
    } else if (member->connection.isFlushed()) {
      member->connection.post(isForming ? encodeFrame(Kind::waiting, body) : encodeFrame(Kind::heartbeat));
    }
  }
}
