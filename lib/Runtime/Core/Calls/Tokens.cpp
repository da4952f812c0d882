//===- Tokens.cpp - Errors, tokens, waits, streams and events ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What happens between a start and its wait, and how the first error of any rank ends all of them.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include "Core/Trace/Ranges.h"
#include <algorithm>
#include <csignal>
#include <cstring>
#include <numeric>
#include <thread>

using namespace commsched::runtime;

int64_t commsched::runtime::elapsedNs(const commrt_job *job) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - job->began).count();
}

static bool isVirtual(const commrt_job *job) { return job->backend->flags & COMMRT_BACKEND_VIRTUAL; }

int64_t commsched::runtime::contextNs(const commrt_context *context) {
  return isVirtual(context->job) ? context->virtualNs : elapsedNs(context->job) + context->clockShiftNs;
}

//===- Errors --------------------------------------------------------------------------------===//

/// Sets the error if there is none; true if it was set.
static bool latch(commrt_context *context, int32_t status, int32_t rank, const std::string &message) {
  Lock lock(context->mutex);
  if (context->status != COMMRT_OK)
    return false;
  context->message = message;
  context->errorRank = rank;
  context->status = status;
  ++context->changes;
  context->changed.notify_all();
  return true;
}

int32_t commsched::runtime::fail(commrt_context *context, int32_t status, const std::string &message) {
  if (latch(context, status, context->rank, "rank " + std::to_string(context->rank) + ": " + message)) {
    context->job->backend->abort(context->peer, status, message.c_str());
    finishDropped(context, status);
  }
  return latched(context);
}

int32_t commsched::runtime::injectExit(commrt_context *context, const std::string &message) {
  if (isPerProcess(context->job))
    std::raise(SIGKILL);
  if (latch(context, COMMRT_ERR_INJECTED, context->rank, "rank " + std::to_string(context->rank) + ": " + message)) {
    finishDropped(context, COMMRT_ERR_INJECTED);
    {
      Lock lock(context->peerMutex);
      context->detached = true;
    }
    context->job->backend->detach(context->peer);
  }
  return latched(context);
}

int32_t commsched::runtime::latched(commrt_context *context) {
  int32_t status = context->status;
  if (status == COMMRT_OK)
    return status;
  commrt_error_handler handler = nullptr;
  void *user = nullptr;
  int32_t rank = -1;
  std::string message;
  {
    Lock lock(context->mutex);
    if (context->handler && !context->handled) {
      context->handled = true;
      handler = context->handler;
      user = context->handlerUser;
      rank = context->errorRank;
      message = context->message;
    }
  }
  if (handler)
    handler(user, rank, status, message.c_str());
  return status;
}

int32_t commrt_last_error(const commrt_context *context, char *message, size_t size) {
  if (!context)
    return COMMRT_ERR_INVALID;
  Lock lock(context->mutex);
  copyText(context->message, message, size);
  return context->status;
}

int32_t commrt_abort(commrt_context *context, int32_t status, const char *message) {
  if (!context)
    return COMMRT_ERR_INVALID;
  return fail(context, status == COMMRT_OK ? COMMRT_ERR_ABORTED : status, message ? message : "aborted");
}

int32_t commrt_set_error_handler(commrt_context *context, commrt_error_handler handler, void *user) {
  if (!context)
    return COMMRT_ERR_INVALID;
  Lock lock(context->mutex);
  context->handler = handler;
  context->handlerUser = user;
  return COMMRT_OK;
}

//===- Upcalls of the backend ----------------------------------------------------------------===//

/// Moves a staged result [n][outer][inner] to the caller's [outer][n][inner]; `inner` may differ by member.
static void unpack(Work &work) {
  const char *from = work.stagedOut.get();
  int64_t total = std::accumulate(work.rowBytes.begin(), work.rowBytes.end(), int64_t(0)), offset = 0;
  for (int64_t bytes : work.rowBytes) {
    for (int64_t row = 0; row < work.outOuter; ++row, from += bytes)
      std::memcpy(work.userOut + row * total + offset, from, bytes);
    offset += bytes;
  }
}

/// The context's mutex is held. The backend gets the works of a device from the own thread.
static void unlinkToken(commrt_token *token) COMMRT_REQUIRES(token->context->mutex) {
  auto &retired = token->context->retired;
  for (Work *work : token->works)
    work->isRetired = true;
  retired.insert(retired.end(), token->works.begin(), token->works.end());
  token->previous->next = token->next;
  token->next->previous = token->previous;
  delete token;
}

/// The token loses one work; the context's mutex is held.
static void completePart(commrt_token *token, int32_t status, int64_t virtualEndNs)
    COMMRT_REQUIRES(token->context->mutex) {
  if (token->status == COMMRT_OK)
    token->status = status;
  token->virtualEndNs = std::max(token->virtualEndNs, virtualEndNs);
  if (--token->pending > 0)
    return;
  for (Buffer *buffer : token->holds) {
    buffer->context->mutex.isHeld();
    dropHold(buffer);
  }
  token->holds.clear();
  if (token->references == 0)
    unlinkToken(token);
}

/// `isFree`: nothing uses the work's memory any more.
static void endWork(commrt_work *base, int32_t status, int64_t virtualEndNs, bool isFree) {
  std::unique_ptr<Work> work(static_cast<Work *>(base->owner));
  if (status == COMMRT_OK && work->stagedOut)
    unpack(*work);
  commrt_context *context = work->token->context;
  Lock lock(context->mutex);
  for (Buffer *buffer : work->buffers) {
    buffer->context->mutex.isHeld();
    if (isFree) {
      dropHold(buffer);
    } else {
      buffer->abandoned = true;
      context->abandonedSymmetric |= buffer->symmetricOffset >= 0;
    }
  }
  if (context->job->trace && !tracesDevice(context)) {
    int64_t end = isVirtual(context->job) ? virtualEndNs : elapsedNs(context->job);
    context->trace.push_back({base->kind, base->site, work->beginNs, end, base->group});
  }
  work->token->context->mutex.isHeld();
  completePart(work->token, status, virtualEndNs);
  --context->inFlight;
  ++context->changes;
  context->changed.notify_all();
  if (!isFree || context->job->device) [[maybe_unused]]
    Work *left = work.release(); // with what it staged; on devices the token has it
}

static void completeWork(commrt_work *work, int32_t status, int64_t virtualEndNs) {
  endWork(work, status, virtualEndNs, true);
}

static void abandonWork(commrt_work *work, int32_t status) { endWork(work, status, 0, false); }

static void contextFailed(void *opaque, int32_t status, int32_t rank, const char *message) {
  auto *context = static_cast<commrt_context *>(opaque);
  latch(context, status, rank, "rank " + std::to_string(rank) + ": " + message);
  finishDropped(context, status);
}

static int32_t describeForBackend(const commrt_work *work, char *text, size_t size) {
  return static_cast<int32_t>(copyText(describeWork(*work), text, size));
}

const commrt_host commsched::runtime::hostTable = {sizeof(commrt_host), completeWork, contextFailed, describeForBackend,
                                                   abandonWork};

void commsched::runtime::finishWork(Work *work, int32_t status) { completeWork(&work->base, status, 0); }

void commsched::runtime::finishDropped(commrt_context *context, int32_t status) {
  std::vector<Work *> works;
  {
    Lock lock(context->mutex);
    works.swap(context->dropped);
    context->heldBack = nullptr;
  }
  for (Work *work : works)
    finishWork(work, status);
}

//===- Tokens --------------------------------------------------------------------------------===//

commrt_token *commsched::runtime::makeToken(commrt_context *context) {
  auto *token = new commrt_token();
  token->context = context;
  Lock lock(context->mutex);
  token->next = &context->tokens;
  token->previous = context->tokens.previous;
  token->previous->next = token;
  context->tokens.previous = token;
  token->number = registerObject(context, Owned::Kind::token, token);
  return token;
}

void commsched::runtime::retainToken(commrt_token *token) {
  Lock lock(token->context->mutex);
  ++token->references;
}

void commsched::runtime::releaseToken(commrt_token *token) {
  Lock lock(token->context->mutex);
  if (--token->references == 0 && token->pending == 0)
    unlinkToken(token);
}

bool commsched::runtime::isComplete(commrt_token *token) {
  Lock lock(token->context->mutex);
  return token->pending == 0;
}

/// How long a wait asks again and again before its thread gives the core away. Longer than falling asleep and waking up
/// take on a busy machine (70 us and more). With less, a rank that sleeps once lets the next one fall asleep while it
/// wakes up, and from then on every small collective takes as long as a sleep.
static constexpr std::chrono::microseconds spinTime(200);
/// A lower bound of the bandwidth of a memory, bytes per nanosecond: a wait for large data spins for as long as they
/// take, since a backend that moves data in pieces stands still while the thread sleeps.
static constexpr int64_t spinBytesPerNs = 1;

/// Until when a wait that begins now for that many bytes spins.
static Clock::time_point spinUntil(commrt_context *context, int64_t bytes, Clock::time_point now) {
  std::chrono::nanoseconds transfer(bytes / spinBytesPerNs);
  return context->job->hasOwnCores ? now + spinTime + transfer : now;
}

/// Polls a backend until done() or the deadline, and sleeps between two polls at last. Before that it spins if each
/// rank has a core of its own, and yields otherwise. A long yield says that others want the core: it lasts for all of
/// their time slices, while who wakes from a sleep runs at once. From then on the context sleeps for a while instead.
template <typename Done>
static bool poll(commrt_context *context, int64_t bytes, std::chrono::nanoseconds timeout, Done done) {
  constexpr int mostYields = 100;
  constexpr std::chrono::microseconds longYield(200), crowdedTime(200'000), pause(20);
  Clock::time_point began, spins;
  for (int round = 0;; ++round) {
    context->job->backend->progress(context->peer);
    {
      Lock lock(context->mutex);
      if (done())
        return true;
    }
    Clock::time_point now = Clock::now();
    if (round == 0) {
      began = now;
      spins = spinUntil(context, bytes, now);
    }
    if (now - began >= timeout)
      return false;
    if (now < spins)
      continue;
    if (round >= mostYields || now < context->crowdedUntil) {
      std::this_thread::sleep_for(pause);
      continue;
    }
    std::this_thread::yield();
    if (Clock::time_point after = Clock::now(); after - now > longYield)
      context->crowdedUntil = after + crowdedTime;
  }
}

/// Lets the other thread of the same core run meanwhile.
static void pauseCore() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Spins until something has changed in the context, or the time is over.
static void spinForChange(commrt_context *context, int64_t seen, Clock::time_point end) {
  constexpr int roundsPerLook = 64; // between two looks at the clock
  while (context->changes == seen && Clock::now() < end)
    for (int round = 0; round < roundsPerLook && context->changes == seen; ++round)
      pauseCore();
}

template <typename Done>
static bool waitFor(commrt_context *context, int64_t bytes, std::chrono::nanoseconds timeout, Done done) {
  if (context->job->backend->flags & COMMRT_BACKEND_POLLED)
    return poll(context, bytes, timeout, done);
  std::unique_lock<std::mutex> lock(context->mutex);
  if (done())
    return true;
  Clock::time_point now = Clock::now(), deadline = now + timeout;
  if (context->spinsToSkip > 0) {
    --context->spinsToSkip;
    return context->changed.wait_until(lock, deadline, done);
  }
  Clock::time_point spins = std::min(spinUntil(context, 0, now), deadline);
  while (!done() && Clock::now() < spins) {
    int64_t seen = context->changes;
    lock.unlock();
    spinForChange(context, seen, spins);
    lock.lock();
  }
  // The system may have put two ranks on one core. The fewer spins succeed, the fewer there are.
  constexpr int32_t mostSkipped = 63;
  context->failedSpins = done() ? 0 : std::min(2 * context->failedSpins + 1, mostSkipped);
  context->spinsToSkip = context->failedSpins;
  return context->changed.wait_until(lock, deadline, done);
}

/// How long a cancelled work may still need. A backend completes at once what it has not begun to copy; this is a net
/// for one that does not.
static constexpr auto drainTime = std::chrono::seconds(30);

/// Waits for done(), which needs that many bytes to move; a timeout becomes the job's error, with the backend's report.
template <typename Done>
static int32_t waitOrFail(commrt_context *context, int64_t bytes, int64_t timeoutNs, Done done) {
  timeoutNs = timeoutNs < 0 ? context->job->timeoutNs : std::min(timeoutNs, longestNs);
  if (!waitFor(context, bytes, std::chrono::nanoseconds(timeoutNs), done)) {
    char report[2048] = "";
    context->job->backend->describe(context->peer, report, sizeof(report));
    std::string text = "waited " + std::to_string(timeoutNs / 1'000'000) + " ms; ";
    text += *report ? report : "nothing else is in flight";
    {
      Lock lock(context->mutex);
      for (Work *work : context->dropped)
        text += "; held back by an injected fault: " + describeWork(work->base);
    }
    fail(context, COMMRT_ERR_TIMEOUT, text);
    waitFor(context, 0, drainTime, done);
  }
  return latched(context);
}

int32_t commsched::runtime::waitToken(commrt_token *token, int64_t timeoutNs) {
  commrt_context *context = token->context;
  bool isTraced = context->job->trace && !context->isAligning;
  int64_t begin = isTraced ? contextNs(context) : 0;
  int32_t status = waitOrFail(context, token->bytes, timeoutNs, [&] { return token->pending == 0; });
  if (isVirtual(context->job))
    context->virtualNs = std::max(context->virtualNs, token->virtualEndNs);
  if (isTraced) {
    Lock lock(context->mutex);
    context->trace.push_back({100, token->site, begin, contextNs(context), token->group});
  }
  return status;
}

/// "wait for @dp (step.mlir:4:7)".
static std::string describeWait(const commrt_token *token) {
  const commrt_context *context = token->context;
  bool hasSite = token->site >= 0 && token->site < context->numSites && context->sites[token->site].location;
  return std::string("wait for @") + token->group +
         (hasSite ? std::string(" (") + context->sites[token->site].location + ")" : "");
}

int32_t commrt_wait(commrt_token *token, commrt_stream *stream) {
  if (!token || (stream && stream->context != token->context))
    return COMMRT_ERR_INVALID;
  Range range([&] { return describeWait(token); });
  if (!token->context->job->device)
    return waitToken(token, -1);
  waitOnStream(token, stream);
  return latched(token->context);
}

/// "a wait of the host for all_gather of 64 x f32 on @dp (step.mlir:4:7)".
static std::string describeToken(const char *what, const commrt_token *token) {
  std::string text = what;
  return token->works.empty() ? text + "a collective" : text + describeWork(token->works.front()->base);
}

int32_t commrt_wait_host(commrt_token *token, int64_t timeoutNs) {
  if (!token)
    return COMMRT_ERR_INVALID;
  if (token->context->isCapturing)
    return refuseInCapture(token->context, describeToken("a wait of the host for ", token));
  Range range([&] { return describeWait(token); });
  return waitToken(token, timeoutNs);
}

int32_t commrt_test(commrt_token *token, int32_t *done) {
  if (!token || !done)
    return COMMRT_ERR_INVALID;
  if (token->context->isCapturing)
    return refuseInCapture(token->context,
                           describeToken("a question of the host whether there is the result of ", token));
  commrt_progress(token->context);
  *done = isComplete(token);
  return latched(token->context);
}

int32_t commrt_token_output(commrt_token *token, int64_t index, void **pointer) {
  if (!pointer)
    return COMMRT_ERR_INVALID;
  *pointer = nullptr;
  if (!token || index < 0 || index >= static_cast<int64_t>(token->outputs.size()))
    return COMMRT_ERR_INVALID;
  *pointer = token->outputs[index];
  return latched(token->context);
}

int32_t commrt_token_release(commrt_token *token) {
  if (!token)
    return COMMRT_OK;
  {
    Lock lock(token->context->mutex);
    unregisterObject(token->context, token->number);
  }
  releaseToken(token);
  return COMMRT_OK;
}

int32_t commrt_progress(commrt_context *context) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (context->job->backend->flags & COMMRT_BACKEND_POLLED)
    context->job->backend->progress(context->peer);
  if (context->job->device)
    reclaimCompleted(context);
  return latched(context);
}

int32_t commsched::runtime::waitAll(commrt_context *context) {
  return waitOrFail(context, 0, -1, [&] {
    context->mutex.isHeld();
    return context->inFlight == 0;
  });
}

int32_t commsched::runtime::waitFor(commrt_context *context, const std::function<bool()> &done) {
  return waitOrFail(context, 0, -1, done);
}

//===- Streams and events --------------------------------------------------------------------===//

int32_t commrt_stream_get(commrt_context *context, int32_t kind, int32_t lane, commrt_stream **stream) {
  if (!context || !stream || lane < 0 || (kind != COMMRT_STREAM_COMPUTE && kind != COMMRT_STREAM_COMM))
    return COMMRT_ERR_INVALID;
  auto &slot = context->streams[{kind, lane}];
  if (!slot) {
    auto made = std::make_unique<commrt_stream>();
    made->context = context;
    made->kind = kind;
    made->lane = lane;
    if (const commrt_device_ops *device = context->job->device)
      if (int32_t status = device->stream(context->peer, kind, lane, &made->handle))
        return fail(context, status, "cannot make stream " + std::to_string(lane));
    slot = std::move(made);
    // Buffers that were made before are for this stream, too.
    if (context->job->device && kind == COMMRT_STREAM_COMPUTE)
      joinComputeStreams(context);
  }
  *stream = slot.get();
  return COMMRT_OK;
}

int32_t commrt_set_stream(commrt_context *context, commrt_stream *stream) {
  if (!context || (stream && stream->context != context))
    return COMMRT_ERR_INVALID;
  context->stream = stream ? stream : context->streams[{COMMRT_STREAM_COMPUTE, 0}].get();
  return COMMRT_OK;
}

void commsched::runtime::trim(commrt_stream *stream) {
  while (!stream->tokens.empty() && isComplete(stream->tokens.front())) {
    releaseToken(stream->tokens.front());
    stream->tokens.pop_front();
    ++stream->dropped;
  }
}

void commsched::runtime::noteIssued(commrt_stream *stream, commrt_token *token) {
  retainToken(token);
  stream->tokens.push_back(token);
  trim(stream);
}

int32_t commrt_group_stream(commrt_group *group, int32_t messages, commrt_stream **stream) {
  if (!group || !stream)
    return COMMRT_ERR_INVALID;
  *stream = nullptr;
  const commrt_device_ops *device = group->context->job->device;
  if (!device || !COMMRT_REACHES(device, commrt_device_ops, group_stream) || !device->group_stream || !group->state)
    return COMMRT_ERR_UNSUPPORTED;
  std::unique_ptr<commrt_stream> &slot = group->streams[messages != 0];
  if (!slot) {
    auto made = std::make_unique<commrt_stream>();
    made->context = group->context;
    made->kind = COMMRT_STREAM_COMM;
    made->lane = -1;
    if (int32_t status = device->group_stream(group->state, messages, &made->handle))
      return fail(group->context, status, "group @" + group->name + " has no stream");
    slot = std::move(made);
  }
  *stream = slot.get();
  return COMMRT_OK;
}

/// Records an event. `isTimed`: with its time.
static int32_t recordOn(commrt_context *context, commrt_stream *stream, bool isTimed, commrt_event **event) {
  if (!context || !event || (stream && stream->context != context))
    return COMMRT_ERR_INVALID;
  *event = nullptr;
  if (int32_t status = latched(context))
    return status;
  if (!stream)
    stream = context->streams[{COMMRT_STREAM_COMPUTE, 0}].get();
  void *handle = nullptr;
  if (const commrt_device_ops *device = context->job->device) {
    if (isTimed && (!COMMRT_REACHES(device, commrt_device_ops, record_timed) || !device->record_timed))
      return COMMRT_ERR_UNSUPPORTED;
    auto record = isTimed ? device->record_timed : device->record;
    if (int32_t status = record(context->peer, stream->handle, &handle))
      return fail(context, status, "cannot record an event");
  }
  *event = new commrt_event{context, stream, stream->dropped + static_cast<int64_t>(stream->tokens.size()), handle};
  (*event)->capture = context->isCapturing ? context->captures : 0;
  (*event)->isTimed = isTimed;
  (*event)->ns = contextNs(context);
  context->events.insert(*event);
  Lock lock(context->mutex);
  (*event)->number = registerObject(context, Owned::Kind::event, *event);
  return COMMRT_OK;
}

int32_t commrt_event_record(commrt_context *context, commrt_stream *stream, commrt_event **event) {
  return recordOn(context, stream, /*isTimed=*/false, event);
}

int32_t commrt_event_record_timed(commrt_context *context, commrt_stream *stream, commrt_event **event) {
  return recordOn(context, stream, /*isTimed=*/true, event);
}

int32_t commrt_event_elapsed(commrt_event *begin, commrt_event *end, int64_t *ns) {
  if (!begin || !end || !ns || begin->context != end->context || !begin->isTimed || !end->isTimed)
    return COMMRT_ERR_INVALID;
  for (commrt_event *event : {begin, end}) {
    int32_t done = 0;
    if (int32_t status = commrt_event_test(event, &done))
      return status;
    if (!done)
      return COMMRT_ERR_INVALID;
  }
  *ns = end->ns - begin->ns;
  commrt_context *context = begin->context;
  if (const commrt_device_ops *device = context->job->device)
    if (int32_t status = device->elapsed(context->peer, begin->handle, end->handle, ns))
      return fail(context, status, "cannot read the time of an event");
  return COMMRT_OK;
}

int32_t commrt_event_await(commrt_context *context, commrt_stream *stream, commrt_event *event) {
  if (!context || !event || event->context != context || (stream && stream->context != context))
    return COMMRT_ERR_INVALID;
  // What came before a capture is done, and what is captured is ordered by its launches.
  if (event->capture != (context->isCapturing ? context->captures : 0))
    return latched(context);
  if (const commrt_device_ops *device = context->job->device) {
    if (int32_t status = device->stream_wait(context->peer, streamHandle(context, stream), event->handle))
      return fail(context, status, "a stream cannot wait for an event");
    int64_t covered = event->end - event->stream->dropped;
    for (int64_t i = 0; i < covered; ++i)
      waitOnStream(event->stream->tokens[i], stream);
    return latched(context);
  }
  while (event->stream->dropped < event->end) {
    if (int32_t status = waitToken(event->stream->tokens.front(), -1))
      return status;
    trim(event->stream);
  }
  return latched(context);
}

int32_t commrt_event_test(commrt_event *event, int32_t *done) {
  if (!event || !done)
    return COMMRT_ERR_INVALID;
  if (event->context->isCapturing)
    return refuseInCapture(event->context, "a question of the host for an event");
  commrt_progress(event->context);
  trim(event->stream);
  *done = event->stream->dropped >= event->end;
  if (const commrt_device_ops *device = event->context->job->device; device && *done)
    if (int32_t status = device->query(event->context->peer, event->handle, done))
      return fail(event->context, status, "cannot ask for an event");
  return latched(event->context);
}

int32_t commrt_event_release(commrt_event *event) {
  if (!event)
    return COMMRT_OK;
  event->context->events.erase(event);
  {
    Lock lock(event->context->mutex);
    unregisterObject(event->context, event->number);
  }
  if (const commrt_device_ops *device = event->context->job->device)
    device->release(event->context->peer, event->handle);
  delete event;
  return COMMRT_OK;
}
