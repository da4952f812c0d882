//===- Client.cpp - Any rank but 0 of the control plane ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Connecting, comparing starts, and the frames that come back.
//
//===------------------------------------------------------------------------------------------===//

#include "Control/Client.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>

using namespace commsched::runtime;
using namespace commsched::runtime::control;

/// Between two rounds of attempts to connect.
static constexpr auto kFirstPause = std::chrono::milliseconds(5), kLongestPause = std::chrono::milliseconds(250);
/// How long rank 0 may take to answer a question before the report is written without it.
static constexpr auto kAnswerTime = std::chrono::seconds(2);
static constexpr const char *kGone = "its connection was closed: its process has ended, or its machine is gone";

Client::Client(const Launch &launch, const MeetingPoint &point, const commrt_backend_config &config)
    : launch(launch), point(point), pace(config.timeout_ns, point) {}

//===- Opening ----------------------------------------------------------------------------------===//

static int millisecondsUntil(Clock::time_point moment) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(moment - Clock::now()).count();
  constexpr int64_t longest = 1 << 30;
  return static_cast<int>(std::clamp<int64_t>(left + 1, 0, longest));
}

/// Waits for a connection that was begun; errno's value, 0 if it stands.
static int finishConnecting(const Socket &socket, Clock::time_point deadline) {
  pollfd query = {socket.get(), POLLOUT, 0};
  while (true) {
    int count = poll(&query, 1, millisecondsUntil(deadline));
    if (count > 0)
      return socket.connectError();
    if (count == 0)
      return ETIMEDOUT;
    if (errno != EINTR)
      return errno;
  }
}

std::string Client::connect(Clock::time_point deadline, Socket &socket) {
  std::string error;
  auto pause = std::chrono::duration_cast<Clock::duration>(kFirstPause);
  while (true) {
    std::vector<SocketAddress> addresses = resolve(point.host, point.port, error);
    for (const SocketAddress &candidate : addresses) {
      if (point.secret.empty() && !candidate.isLoopback())
        return candidate.text() + " is on the network: set COMMRT_SECRET to the same text on all ranks";
      int code = 0;
      socket = Socket::connect(candidate, code);
      if (socket.isOpen())
        code = finishConnecting(socket, deadline);
      address = candidate.text();
      if (code == 0)
        return "";
      error = std::strerror(code);
      socket.close();
    }
    Clock::time_point now = Clock::now();
    if (now >= deadline)
      return "rank 0 did not answer at " + point.host + ", port " + std::to_string(point.port) + ": " + error;
    pollfd none = {-1, 0, 0};
    poll(&none, 1, millisecondsUntil(std::min(deadline, now + pause)));
    pause = std::min<Clock::duration>(2 * pause, kLongestPause);
  }
}

int32_t Client::open(std::string &text) {
  Clock::time_point deadline = Clock::now() + pace.start;
  std::string waited = "waited " + std::to_string(pace.start.count() / 1'000'000) + " ms; ";
  if (!waker.open()) {
    text = std::string("no socket: ") + std::strerror(errno);
    return COMMRT_ERR_BACKEND;
  }
  auto pause = std::chrono::duration_cast<Clock::duration>(kFirstPause);
  do {
    Socket socket;
    if (std::string why = connect(deadline, socket); !why.empty()) {
      bool isLate = Clock::now() >= deadline;
      text = (isLate ? waited : "") + why;
      return isLate ? COMMRT_ERR_TIMEOUT : COMMRT_ERR_INVALID;
    }
    greet(std::move(socket), deadline);
  } while (forgetDropped(deadline, pause));
  int32_t failed;
  {
    Lock lock(mutex);
    if (state == State::running)
      return COMMRT_OK; // what has failed since then is told to the context
    failed = status != COMMRT_OK ? status : COMMRT_ERR_TIMEOUT;
    if (status != COMMRT_OK)
      text = errorRank < 0 ? errorText : "rank " + std::to_string(errorRank) + ": " + errorText;
    else if (state == State::greeting)
      text = waited + "what listens at " + address + " does not answer as rank 0 of a job does";
    else
      text = waited + missing + " did not come";
  }
  close();
  return failed;
}

/// Sends the greeting, and waits until the job begins, something fails, or rank 0 drops the connection without an
/// answer.
void Client::greet(Socket socket, Clock::time_point deadline) {
  connection = std::make_unique<Connection>(std::move(socket), waker);
  connection->post(encodeGreeting({point.secret, kVersion, launch.rank, launch.ranks, point.job}));
  nextTick = lastPoll = Clock::now();
  thread = std::thread([this] { loop(); });
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait_until(lock, deadline, [&] {
    mutex.isHeld();
    return state == State::running || status != COMMRT_OK || (isOver && isDropped);
  });
}

/// Returns true if rank 0 has dropped the connection without an answer and there is time to try again. Rank 0 does so
/// when many connections that are not of this job come at once.
bool Client::forgetDropped(Clock::time_point deadline, Clock::duration &pause) {
  {
    Lock lock(mutex);
    if (!isDropped || !isOver || status != COMMRT_OK || Clock::now() + pause >= deadline)
      return false;
    isDropped = isOver = false;
  }
  thread.join(); // the loop has ended with the connection
  connection.reset();
  pollfd none = {-1, 0, 0};
  poll(&none, 1, millisecondsUntil(Clock::now() + pause));
  pause = std::min<Clock::duration>(2 * pause, kLongestPause);
  return true;
}

void Client::close() {
  if (!thread.joinable())
    return;
  detach();
  {
    // Whoever closes a socket with unread bytes takes back what it sent last.
    std::unique_lock<std::mutex> lock(mutex);
    mutex.isHeld();
    changed.wait_for(lock, kFarewell, [&] {
      mutex.isHeld();
      return isOver;
    });
    stopping = true;
  }
  waker.wake();
  thread.join();
  connection.reset();
}

//===- The rank's calls -------------------------------------------------------------------------===//

int32_t Client::attach(const commrt_host *hostTable, void *of) {
  Lock lock(mutex);
  host = hostTable;
  context = of;
  if (status != COMMRT_OK)
    host->failed(context, status, std::max(errorRank, 0), errorText.c_str());
  return COMMRT_OK;
}

void Client::detach() {
  Lock lock(mutex);
  if (hasLeft)
    return;
  hasLeft = true;
  for (auto &[number, work] : works)
    host->complete(work, status == COMMRT_OK ? COMMRT_ERR_ABORTED : status, 0);
  works.clear();
  host = nullptr;
  connection->post(encodeFrame(Kind::leave));
}

int32_t Client::createGroup(const char *name, const int32_t *members, int32_t size, int32_t index, Group &group) {
  Bytes body;
  Writer writer(body);
  writer.u64(numGroups);
  writer.i32(index);
  writer.text(name);
  writer.u32(static_cast<uint32_t>(size));
  for (int32_t i = 0; i < size; ++i)
    writer.i32(members[i]);
  connection->post(encodeFrame(Kind::group, body));
  group.number = numGroups++;
  return COMMRT_OK;
}

int32_t Client::submit(const Group &group, commrt_work *work) {
  Bytes body;
  Writer writer(body);
  writer.u64(numWorks); // of this thread only
  writer.u64(group.number);
  encodeWork(*work, writer);
  {
    Lock lock(mutex);
    if (status != COMMRT_OK)
      return status;
    works.emplace(numWorks++, work);
  }
  connection->post(encodeFrame(Kind::start, body));
  return COMMRT_OK;
}

int32_t Client::combine(void *value, int64_t bytes, commrt_combine_fn, int64_t timeoutNs, std::string &text) {
  auto *begin = static_cast<const char *>(value);
  Bytes frame = encodeFrame(Kind::value, Bytes(begin, begin + bytes));
  std::unique_lock<std::mutex> lock(mutex);
  mutex.isHeld();
  if (status != COMMRT_OK)
    return status;
  hasResult = false;
  lock.unlock();
  connection->post(std::move(frame));
  lock.lock();
  bool inTime = changed.wait_for(lock, std::chrono::nanoseconds(timeoutNs), [&] {
    mutex.isHeld();
    return hasResult || status != COMMRT_OK;
  });
  if (!inTime) {
    lock.unlock();
    text = ask(1);
    if (text.empty())
      text = "no word from rank 0, which does not answer";
    return COMMRT_ERR_TIMEOUT;
  }
  if (!hasResult)
    return status;
  if (static_cast<int64_t>(result.size()) != bytes)
    return COMMRT_ERR_MISMATCH;
  std::memcpy(value, result.data(), bytes);
  return COMMRT_OK;
}

void Client::abort(int32_t error, const char *message) {
  connection->post(encodeFailure(error, launch.rank, message));
  fail(error, launch.rank, message, /*tells=*/false);
}

std::string Client::ask(uint32_t about) {
  std::unique_lock<std::mutex> lock(mutex);
  mutex.isHeld();
  if (status != COMMRT_OK || isOver)
    return "";
  uint64_t question = numQuestions++;
  Bytes body;
  Writer writer(body);
  writer.u64(question);
  writer.u32(about);
  lock.unlock();
  connection->post(encodeFrame(Kind::ask, body));
  lock.lock();
  changed.wait_for(lock, kAnswerTime, [&] {
    mutex.isHeld();
    return answers.count(question) || isOver;
  });
  auto found = answers.find(question);
  std::string text = found == answers.end() ? "" : found->second;
  answers.clear();
  return text;
}

std::string Client::whereabouts() {
  Lock lock(mutex);
  if (works.empty() || !host)
    return "";
  constexpr size_t longest = 1024;
  char text[longest] = "";
  host->describe(works.begin()->second, text, sizeof(text));
  return "; rank " + std::to_string(launch.rank) + " is in " + text;
}

std::string Client::describe() {
  if (std::string text = ask(0); !text.empty())
    return text;
  Lock lock(mutex);
  constexpr size_t shown = 3, longest = 1024;
  std::string report;
  size_t count = 0;
  for (auto &[number, work] : works) {
    if (!host || ++count > shown)
      break;
    char text[longest] = "";
    host->describe(work, text, sizeof(text));
    report += (report.empty() ? "" : "; ") + std::string(text) + " waits for rank 0, which does not answer";
  }
  if (works.size() > shown)
    report += "; and " + std::to_string(works.size() - shown) + " more";
  return report;
}

void Client::fail(int32_t error, int32_t rank, const std::string &text, bool tells) {
  Lock lock(mutex);
  if (status == COMMRT_OK && !hasLeft) {
    status = error;
    errorRank = rank;
    errorText = text;
    if (host && tells)
      host->failed(context, error, std::max(rank, 0), text.c_str());
  }
  for (auto &[number, work] : works)
    host->complete(work, status, 0);
  works.clear();
  changed.notify_all();
}

//===- The polling thread -----------------------------------------------------------------------===//

void Client::loop() {
  while (true) {
    {
      Lock lock(mutex);
      if (stopping)
        return;
    }
    if (!pollOnce())
      return;
    tick();
  }
}

/// Returns false once the connection has ended. The loop ends by this, not by `isOver`, because open() may already have
/// reset that for the next connection.
bool Client::pollOnce() {
  short events = connection->wantsToWrite() ? POLLIN | POLLOUT : POLLIN;
  pollfd polled[] = {{waker.get(), POLLIN, 0}, {connection->get(), events, 0}};
  if (poll(polled, 2, millisecondsUntil(nextTick)) < 0)
    return true; // a signal
  if (polled[0].revents)
    waker.clear();
  if (polled[1].revents & POLLOUT)
    connection->flush();
  if (!(polled[1].revents & (POLLIN | POLLHUP | POLLERR)))
    return true;
  Connection::Status how = connection->receive([&](Kind kind, Bytes &body) { return handle(kind, body); });
  if (how == Connection::Status::open)
    return true;
  bool hasGreeted;
  {
    Lock lock(mutex);
    hasGreeted = state != State::greeting;
  }
  bool wasDropped = !hasGreeted && how == Connection::Status::closed;
  if (!hasGreeted) {
    // After a connection that was closed without an answer, open() tries again.
    if (!wasDropped)
      fail(COMMRT_ERR_INVALID, -1, "what listens at " + address + " does not answer as rank 0 of a job does");
  } else if (how == Connection::Status::closed) {
    fail(COMMRT_ERR_PEER, 0, kGone + whereabouts());
  } else {
    fail(COMMRT_ERR_PEER, 0, "it sent something that is not a message of this version");
  }
  connection->finish();
  Lock lock(mutex);
  isDropped = wasDropped;
  isOver = true;
  changed.notify_all();
  return false;
}

bool Client::handle(Kind kind, Bytes &body) {
  Reader reader(body);
  switch (kind) {
  case Kind::heartbeat:
    return true;
  case Kind::completed:
    return handleCompleted(reader);
  case Kind::answer:
    return handleAnswer(reader);
  case Kind::failed:
    return handleFailed(reader);
  case Kind::waiting: {
    std::string text = reader.text();
    Lock lock(mutex);
    state = State::waiting;
    missing = text;
    return reader.isComplete();
  }
  case Kind::begin: {
    Lock lock(mutex);
    state = State::running;
    changed.notify_all();
    return true;
  }
  case Kind::result: {
    Lock lock(mutex);
    result = std::move(body);
    hasResult = true;
    changed.notify_all();
    return true;
  }
  default:
    return false;
  }
}

bool Client::handleCompleted(Reader &reader) {
  uint64_t number = reader.u64();
  int32_t how = reader.i32();
  if (!reader.isComplete())
    return false;
  Lock lock(mutex);
  auto found = works.find(number);
  if (found == works.end())
    return true; // cancelled meanwhile
  host->complete(found->second, how, 0);
  works.erase(found);
  return true;
}

bool Client::handleAnswer(Reader &reader) {
  uint64_t question = reader.u64();
  std::string text = reader.text();
  Lock lock(mutex);
  answers[question] = text;
  changed.notify_all();
  return reader.isComplete();
}

bool Client::handleFailed(Reader &reader) {
  int32_t error = reader.i32(), rank = reader.i32();
  std::string text = reader.text();
  if (!reader.isComplete() || error == COMMRT_OK)
    return false;
  fail(error, rank, rank < 0 ? address + " refused rank " + std::to_string(launch.rank) + ": " + text : text);
  return true;
}

void Client::tick() {
  Clock::time_point now = Clock::now();
  if (now - lastPoll > 2 * pace.heartbeat + kHeartbeat)
    connection->lastHeard = now; // this process itself did not run
  lastPoll = now;
  if (now < nextTick)
    return;
  nextTick = now + pace.heartbeat;
  if (connection->isFlushed())
    connection->post(encodeFrame(Kind::heartbeat));
  auto silent = now - connection->lastHeard;
  if (silent > pace.silence)
    fail(COMMRT_ERR_PEER, 0,
         "no heartbeat for " + std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(silent).count()) +
             " ms: its process does not run, or its machine is gone" + whereabouts());
}
