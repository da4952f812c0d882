//===- NcclWatch.cpp - Watchdog thread: completions, deadlines, errors -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One thread looks at every rank of the process at an interval: which events are done, whether NCCL reports an error,
// whether a collective is late. Its clock starts when the collective's turn on the stream has come, since one that is
// queued behind a computation is not late; a second clock is for streams on which nothing happens at all.
//
// After an error communicators are aborted by a thread of its own, because an abort may hang. Works end with the error
// when the streams of all ranks of the process are quiet, and are abandoned when these do not become so by the
// deadline.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Support/Text.h"
#include "NcclJob.h"
#include <algorithm>
#include <cinttypes>
#include <cstdio>

using namespace commsched::runtime;
using Clock = std::chrono::steady_clock;

static constexpr std::chrono::milliseconds watchInterval(10);
/// An abort that takes longer than the timeout, within these bounds, is given up, and what the communicators use is
/// never freed.
static constexpr std::chrono::nanoseconds shortestAbort(2'000'000'000), longestAbort(10'000'000'000);

//===- Completion ----------------------------------------------------------------------------===//

void commsched::runtime::dropFlightLocked(NcclFlight *flight) {
  flight->peer->mutex.isHeld();
  if (--flight->references > 0)
    return;
  releaseEventLocked(*flight->peer, flight->begin);
  releaseEventLocked(*flight->peer, flight->done);
  releaseEventLocked(*flight->peer, flight->ended);
  delete flight;
}

static FlightEntry *findEntry(NcclLane &lane, const commrt_work *work) {
  for (FlightEntry &entry : lane.record)
    if (!entry.isDone && entry.work.fields.owner == work->owner)
      return &entry;
  return nullptr;
}

/// The flight leaves its lane; its works end with the status, or are given up.
static void endFlight(NcclFlight *flight, int32_t status, bool isFree) {
  NcclPeer &peer = *flight->peer;
  peer.mutex.isHeld();
  for (commrt_work *work : flight->works) {
    if (FlightEntry *entry = findEntry(*flight->lane, work)) {
      entry->isDone = isFree && status == COMMRT_OK;
      entry->done = Clock::now();
    }
    if (isFree)
      peer.host->complete(work, status, 0);
    else
      peer.host->abandon(work, status);
  }
  flight->works.clear();
  if (isFree)
    for (const PinnedBlock &block : flight->pinned)
      releasePinnedLocked(peer, block);
  flight->pinned.clear();
  if (isFree)
    dropFlightLocked(flight);
}

void commsched::runtime::collectDone(NcclPeer &peer) {
  // Once communicators are aborted, an event that is done says nothing of the result: drain() ends these works.
  if (peer.abort != NcclPeer::Abort::none)
    return;
  std::string error;
  for (NcclLane *lane : peer.lanes)
    while (!lane->flights.empty()) {
      NcclFlight *flight = lane->flights.front();
      int done = flight->done ? queryEvent(peer, flight->done, error) : 0;
      if (done <= 0)
        break;
      lane->flights.pop_front();
      peer.lastProgress = Clock::now();
      endFlight(flight, peer.failing, true);
    }
}

//===- Deadlines and errors ------------------------------------------------------------------===//

/// Why the rank has failed; an empty text if it has not. The peer's mutex is held. `mayAsk`: nobody else is in NCCL.
static std::string findError(NcclPeer &peer, bool mayAsk, int32_t &status) {
  peer.mutex.isHeld();
  NcclJob &job = *peer.job;
  std::string error;
  auto now = Clock::now();
  auto timeout = std::chrono::nanoseconds(job.timeoutNs);
  for (NcclLane *lane : peer.lanes) {
    int state = 0;
    constexpr int ncclInProgress = 7;
    if (mayAsk && lane->comm && job.nccl().commGetAsyncError(lane->comm, &state) == 0 && state &&
        state != ncclInProgress) {
      status = COMMRT_ERR_BACKEND;
      return peer.ncclError("NCCL", state, lane->comm) + " on @" + lane->group->name;
    }
    if (lane->flights.empty())
      continue;
    NcclFlight &flight = *lane->flights.front();
    if (!flight.hasBegun && flight.begin) {
      int begun = queryEvent(peer, flight.begin, error);
      if (begun < 0) {
        status = COMMRT_ERR_BACKEND;
        return error;
      }
      if (begun) {
        flight.hasBegun = true;
        flight.begun = peer.lastProgress = now;
        for (commrt_work *work : flight.works)
          if (FlightEntry *entry = findEntry(*lane, work)) {
            entry->hasBegun = true;
            entry->begun = now;
          }
      }
    }
    auto since = flight.hasBegun ? flight.begun : std::max(flight.issued, peer.lastProgress);
    if (now - since < timeout)
      continue;
    status = COMMRT_ERR_TIMEOUT;
    char text[1024] = "";
    if (flight.works.empty())
      copyText(flight.what, text, sizeof(text));
    else
      peer.host->describe(flight.works.front(), text, sizeof(text));
    return "waited " + std::to_string(job.timeoutNs / 1'000'000) + " ms; " + text +
           (flight.hasBegun ? " is not complete" : " has not begun: nothing happens on its stream");
  }
  return "";
}

/// Whether the abort has returned and the streams of all lanes are past their works. The peer's mutex is held.
static bool isPastWorks(NcclPeer &peer) {
  peer.mutex.isHeld();
  if (peer.abort != NcclPeer::Abort::returned)
    return false;
  std::string error;
  for (NcclLane *lane : peer.lanes)
    for (NcclFlight *flight : lane->flights)
      if (!flight->done || queryEvent(peer, flight->done, error) <= 0)
        return false;
  return true;
}

/// Ends works by the state of the abort. The peer's mutex is held. True once nothing is left. What a rank has aborted
/// ends when the streams of all ranks of the process are past their works: NCCL's kernels read the buffers of other
/// ranks of their process directly, and those of an aborted rank do not wait for them.
static bool drain(NcclPeer &peer) {
  peer.mutex.isHeld();
  if (!peer.isPast && isPastWorks(peer)) {
    peer.isPast = true;
    notifyWatchdog(*peer.job);
  }
  bool isEmpty =
      std::all_of(peer.lanes.begin(), peer.lanes.end(), [](NcclLane *lane) { return lane->flights.empty(); });
  if (isEmpty && peer.isPast)
    return true;
  std::vector<NcclPeer *> peers = peer.job->attached();
  bool isFree = std::all_of(peers.begin(), peers.end(), [](NcclPeer *other) { return other->isDone || other->isPast; });
  if (!isFree && Clock::now() < peer.abortDeadline)
    return false;
  if (peer.abort == NcclPeer::Abort::running)
    peer.abort = NcclPeer::Abort::lost;
  for (NcclLane *lane : peer.lanes) {
    for (NcclFlight *flight : lane->flights)
      endFlight(flight, peer.failing, isFree);
    lane->flights.clear();
  }
  return true;
}

static void beginAbort(NcclPeer &peer) {
  peer.mutex.isHeld();
  peer.abort = NcclPeer::Abort::running;
  peer.abortDeadline =
      Clock::now() + std::clamp(std::chrono::nanoseconds(peer.job->timeoutNs), shortestAbort, longestAbort);
  // The job stays alive for a thread that NCCL does not let go.
  std::thread([job = peer.job->shared_from_this(), &peer] {
    abortComms(peer);
    closeUnsettled(peer);
    Lock lock(peer.mutex);
    if (peer.abort == NcclPeer::Abort::running)
      peer.abort = NcclPeer::Abort::returned;
    peer.changed.notify_all();
    notifyWatchdog(*job);
  }).detach();
}

static void writeRecord(NcclPeer &peer) {
  peer.mutex.isHeld();
  if (peer.job->recordPath.empty())
    return;
  FILE *file = std::fopen((peer.job->recordPath + "." + std::to_string(peer.rank)).c_str(), "w");
  if (!file)
    return;
  auto since = [](Clock::time_point from, Clock::time_point to) {
    return static_cast<int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(to - from).count());
  };
  for (NcclLane *lane : peer.lanes)
    for (const FlightEntry &entry : lane->record) {
      char text[1024] = "";
      commrt_work work = entry.work.view();
      peer.host->describe(&work, text, sizeof(text));
      std::fprintf(file, "%" PRId64 " %s: ", entry.number, text);
      if (entry.isDone)
        std::fprintf(file, "done %" PRId64 " us after its start\n", since(entry.issued, entry.done));
      else
        std::fprintf(file, "%s, started %" PRId64 " us ago\n", entry.hasBegun ? "begun and not done" : "not begun",
                     since(entry.issued, Clock::now()));
    }
  std::fclose(file);
}

//===- The thread ----------------------------------------------------------------------------===//

/// What one round finds out about a rank; it raises errors without the peer's mutex.
static void watchPeer(NcclPeer &peer) {
  int32_t status = COMMRT_OK;
  std::string error;
  {
    // One thread at a time is in a communicator; who is asks for its state as well.
    std::unique_lock<std::mutex> issuing(peer.issuing, std::try_to_lock);
    Lock lock(peer.mutex);
    if (peer.isDone || peer.isQuiet)
      return;
    if (peer.failing && peer.abort == NcclPeer::Abort::none) {
      writeRecord(peer);
      beginAbort(peer);
    }
    if (peer.failing) {
      peer.isQuiet = drain(peer);
      peer.changed.notify_all();
      return;
    }
    collectDone(peer);
    error = findError(peer, issuing.owns_lock(), status);
  }
  if (error.empty())
    return;
  std::string who = describePeer(peer);
  raiseError(peer, status, peer.rank, who.empty() ? error : error + "; " + who);
}

static void watch(NcclJob &job) {
  // Asking for events is allowed while another thread captures a graph.
  int relaxed = 2; // cudaStreamCaptureModeRelaxed
  if (job.cuda().threadExchangeStreamCaptureMode)
    job.cuda().threadExchangeStreamCaptureMode(&relaxed);
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(job.watchMutex);
      job.watchMutex.isHeld();
      job.watchChanged.wait_for(lock, watchInterval, [&] {
        job.watchMutex.isHeld();
        return job.isStopping || job.wasNotified;
      });
      job.wasNotified = false;
      if (job.isStopping)
        return;
    }
    for (NcclPeer *peer : job.attached()) {
      peer->enter();
      watchPeer(*peer);
    }
  }
}

void commsched::runtime::startWatchdog(NcclJob &job) {
  job.watchdog = std::thread([&job] { watch(job); });
}

void commsched::runtime::stopWatchdog(NcclJob &job) {
  {
    Lock lock(job.watchMutex);
    job.isStopping = true;
    job.watchChanged.notify_all();
  }
  if (job.watchdog.joinable())
    job.watchdog.join();
}

void commsched::runtime::notifyWatchdog(NcclJob &job) {
  Lock lock(job.watchMutex);
  job.wasNotified = true;
  job.watchChanged.notify_all();
}

/// "; @dp has 2 to 8 CTAs"; empty where no group has options. The peer's mutex is held.
static std::string describeOptions(const NcclPeer &peer) {
  peer.mutex.isHeld();
  std::string text;
  for (const NcclLane *lane : peer.lanes)
    if (CtaOptions ctas = peer.job->options.ctasOf(lane->group->name);
        lane == &lane->group->collectives && ctas.isSet())
      text += "; @" + lane->group->name + " has " + ctas.text();
  return text;
}

std::string commsched::runtime::describePeer(NcclPeer &peer) {
  if (peer.job->matcher)
    if (std::string text = peer.job->matcher->describeMissing(peer.rank); !text.empty()) {
      Lock lock(peer.mutex);
      return text + describeOptions(peer);
    }
  if (peer.openShadows > 0) {
    // The control plane knows who has not started what this rank has.
    char text[2048] = "";
    Lock control(peer.controlMutex);
    if (peer.control)
      peer.job->control.backend->describe(peer.control, text, sizeof(text));
    Lock lock(peer.mutex);
    if (*text)
      return text + describeOptions(peer);
  }
  return describeFlights(peer);
}

std::string commsched::runtime::describeFlights(NcclPeer &peer) {
  constexpr int shown = 3;
  std::string report;
  int count = 0;
  Lock lock(peer.mutex);
  for (NcclLane *lane : peer.lanes)
    for (NcclFlight *flight : lane->flights)
      for (commrt_work *work : flight->works) {
        if (count++ >= shown)
          continue;
        char text[1024] = "";
        peer.host->describe(work, text, sizeof(text));
        report +=
            (report.empty() ? "" : "; ") + std::string(text) + (flight->hasBegun ? " has begun" : " has not begun");
      }
  if (count > shown)
    report += "; and " + std::to_string(count - shown) + " more";
  return count > 0 ? report + describeOptions(peer) : report;
}

void commsched::runtime::cancelAll(NcclPeer &peer, int32_t status) {
  failPeer(peer, status);
  std::unique_lock<std::mutex> lock(peer.mutex);
  peer.changed.wait(lock, [&] {
    peer.mutex.isHeld();
    return peer.isQuiet;
  });
  lock.unlock();
  int32_t failing = peer.failing;
  for (auto *list : {&peer.messages, &peer.grouped}) {
    for (const PendingWork &pending : *list) {
      pending.work->state = nullptr;
      peer.host->complete(pending.work, failing, 0);
    }
    list->clear();
  }
}
