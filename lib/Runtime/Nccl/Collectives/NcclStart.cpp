//===- NcclStart.cpp - Submission of works to streams, and waits -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A start records an event on the producer's stream, makes the lane's stream wait for it, puts the work there and
// records the event that waits are for. The host waits for none of it.
//
// Sends and receives that follow each other are put on their lane together, when the first wait, collective or query
// comes: one that waits for its peer would otherwise keep the next one, which the peer waits for, from starting.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclPlan.h"
#include <algorithm>

using namespace commsched::runtime;
using Clock = std::chrono::steady_clock;

static constexpr int ncclInProgress = 7;
/// The state of a work that is not on its lane yet.
static char pendingMark;

static bool isMessage(const commrt_work &work) { return work.kind == COMMRT_SEND || work.kind == COMMRT_RECV; }

static NcclLane &laneOf(const PendingWork &pending) {
  return isMessage(*pending.work) ? pending.group->messages : pending.group->collectives;
}

//===- A batch -------------------------------------------------------------------------------===//

namespace {
/// Works that are put on their lanes at once.
struct Batch {
  NcclPeer &peer;
  std::vector<std::unique_ptr<Plan>> plans;
  std::vector<NcclFlight *> flights; ///< one per lane, in the order of the lanes' first works
  std::string error;
  int32_t status = COMMRT_OK;
  bool isUnsettled = false; ///< NCCL may still put calls on their streams; see NcclFlight

  explicit Batch(NcclPeer &peer) : peer(peer) {}
  void fail(int32_t with, const std::string &text) {
    status = status ? status : with;
    error = error.empty() ? text : error;
  }
  NcclFlight *flightOf(NcclLane &lane);
  void awaitProducers(NcclFlight &flight, const std::vector<PendingWork> &works);
  void plan(const std::vector<PendingWork> &works);
  void runPieces(size_t phase);
  void runCalls(size_t phase);
  void begin(const std::vector<PendingWork> &works);
  void end();
  void endCaptured();
};
} // namespace

NcclFlight *Batch::flightOf(NcclLane &lane) {
  for (NcclFlight *flight : flights)
    if (flight->lane == &lane)
      return flight;
  auto *flight = new NcclFlight();
  flight->peer = &peer;
  flight->lane = &lane;
  flights.push_back(flight);
  return flight;
}

/// The lane's stream goes on when the inputs are there.
void Batch::awaitProducers(NcclFlight &flight, const std::vector<PendingWork> &works) {
  std::vector<void *> seen;
  for (const PendingWork &pending : works) {
    void *producer = pending.work->stream;
    if (&laneOf(pending) != flight.lane || std::find(seen.begin(), seen.end(), producer) != seen.end())
      continue;
    seen.push_back(producer);
    cudaEvent *ready = recordEvent(peer, static_cast<cudaStream *>(producer), error);
    if (!ready)
      return fail(COMMRT_ERR_BACKEND, error);
    if (std::string text = awaitEvent(peer, flight.lane->stream, ready); !text.empty())
      fail(COMMRT_ERR_BACKEND, text);
    releaseEvent(peer, ready);
  }
  if (!peer.job->isSerial || !peer.newest || peer.newest->lane == flight.lane)
    return;
  // This NCCL does not keep the order of launches on the device, and two groups in flight could wait for each other.
  if (std::string text = awaitEvent(peer, flight.lane->stream, peer.newest->done); !text.empty())
    fail(COMMRT_ERR_BACKEND, text);
}

/// An injected delay, until its end or that of the job.
static void sleepInStream(void *opaque) {
  constexpr std::chrono::milliseconds pause(1);
  auto &delay = *static_cast<StreamDelay *>(opaque);
  Clock::time_point end = Clock::now() + std::chrono::nanoseconds(delay.ns);
  for (Clock::time_point now; (now = Clock::now()) < end && !delay.peer->failing;)
    std::this_thread::sleep_for(std::min<Clock::duration>(end - now, pause));
}

void Batch::begin(const std::vector<PendingWork> &works) {
  for (const PendingWork &pending : works) {
    NcclFlight *flight = flightOf(laneOf(pending));
    flight->works.push_back(pending.work);
    ++flight->references;
    pending.work->state = flight;
  }
  for (NcclFlight *flight : flights) {
    if (status == COMMRT_OK)
      awaitProducers(*flight, works);
    bool isNoted = !peer.capture || peer.job->isTraced; // no host looks at what is only captured
    if (status == COMMRT_OK && isNoted)
      flight->begin = recordEvent(peer, flight->lane->stream, error, peer.job->isTraced);
    if (status == COMMRT_OK && isNoted && !flight->begin)
      fail(COMMRT_ERR_BACKEND, error);
    int64_t delay = 0;
    for (commrt_work *work : flight->works)
      delay = std::max(delay, work->delay_ns);
    flight->delay = {&peer, delay};
    if (delay > 0 && status == COMMRT_OK)
      if (int result = peer.job->cuda().launchHostFunc(flight->lane->stream, sleepInStream, &flight->delay))
        fail(COMMRT_ERR_BACKEND, peer.cudaError("cudaLaunchHostFunc", result));
  }
}

void Batch::plan(const std::vector<PendingWork> &works) {
  std::map<NcclGroup *, std::deque<commrt_work *>> ownReceives;
  for (const PendingWork &pending : works)
    if (pending.work->kind == COMMRT_RECV && pending.work->peer == pending.group->index)
      ownReceives[pending.group].push_back(pending.work);
  for (const PendingWork &pending : works) {
    if (status != COMMRT_OK)
      return;
    auto made = std::make_unique<Plan>(*flightOf(laneOf(pending)), *pending.group, *pending.work);
    if (!isMessage(*pending.work)) {
      made->make();
    } else if (pending.work->peer != pending.group->index) {
      made->makeMessage();
    } else if (pending.work->kind == COMMRT_SEND) {
      // keepUnpaired has made sure that there is one.
      auto &receives = ownReceives[pending.group];
      made->makeSelfMessage(*receives.front());
      receives.pop_front();
    }
    if (made->status != COMMRT_OK)
      fail(made->status, made->error);
    plans.push_back(std::move(made));
  }
}

void Batch::runPieces(size_t phase) {
  for (auto &plan : plans)
    for (size_t i = 0; plan->phases.size() > phase && i < plan->phases[phase].pieces.size(); ++i)
      if (int result = plan->phases[phase].pieces[i]())
        return fail(COMMRT_ERR_BACKEND, peer.cudaError("a copy on a stream", result));
}

/// The calls of a phase, in one group of NCCL where there are several.
void Batch::runCalls(size_t phase) {
  const NcclApi &nccl = peer.job->nccl();
  std::vector<Piece *> calls;
  std::vector<ncclComm *> comms;
  for (auto &plan : plans)
    if (plan->phases.size() > phase && !plan->phases[phase].calls.empty()) {
      for (Piece &call : plan->phases[phase].calls)
        calls.push_back(&call);
      ncclComm *comm = plan->flight.lane->comm;
      if (std::find(comms.begin(), comms.end(), comm) == comms.end())
        comms.push_back(comm);
    }
  if (calls.empty())
    return;
  auto check = [&](const char *what, int result) {
    if (result && result != ncclInProgress)
      fail(COMMRT_ERR_BACKEND, peer.ncclError(what, result, comms[0]));
  };
  bool isGroup = calls.size() > 1;
  if (isGroup)
    check("ncclGroupStart", nccl.groupStart());
  for (Piece *call : calls)
    check("NCCL", (*call)());
  if (isGroup)
    check("ncclGroupEnd", nccl.groupEnd());
  // What comes next on the stream must not come before NCCL has put its kernel there.
  for (size_t i = 0; i < comms.size() && status == COMMRT_OK && !peer.job->blocking; ++i)
    if (int32_t settled = awaitComm(peer, comms[i], error))
      fail(settled, error);
  isUnsettled = status != COMMRT_OK && !peer.job->blocking && !peer.capture;
}

void Batch::end() {
  Clock::time_point now = Clock::now();
  for (NcclFlight *flight : flights) {
    flight->isUnsettled = isUnsettled;
    if (isUnsettled)
      continue;
    std::string text;
    // An event that is timed at each launch orders nothing within the capture.
    flight->done = recordEvent(peer, flight->lane->stream, text, peer.job->isTraced && !peer.capture);
    if (flight->done && peer.job->isTraced && peer.capture)
      flight->ended = recordEvent(peer, flight->lane->stream, text, /*isTimed=*/true);
    if (!text.empty())
      fail(COMMRT_ERR_BACKEND, text);
  }
  if (peer.capture)
    return endCaptured();
  Lock lock(peer.mutex);
  for (NcclFlight *flight : flights) {
    flight->issued = now;
    constexpr size_t kept = 256;
    NcclLane &lane = *flight->lane;
    for (commrt_work *work : flight->works)
      lane.record.push_back({WorkCopy(*work), lane.started++, now, {}, {}, false, false});
    while (lane.record.size() > kept + flight->works.size())
      lane.record.pop_front();
    lane.flights.push_back(flight);
  }
  if (!peer.job->isSerial || flights.empty() || isUnsettled)
    return;
  if (peer.newest)
    dropFlightLocked(peer.newest);
  peer.newest = flights.back();
  ++peer.newest->references;
}

/// Nothing is in flight; the graph keeps what each launch needs.
void Batch::endCaptured() {
  for (NcclFlight *flight : flights) {
    flight->graph = peer.capture;
    peer.capture->flights.push_back(flight);
  }
  if (!peer.job->isSerial || flights.empty())
    return;
  Lock lock(peer.mutex);
  if (peer.newest)
    dropFlightLocked(peer.newest);
  peer.newest = flights.back();
  ++peer.newest->references;
}

static void completeAll(NcclPeer &peer, const std::vector<PendingWork> &works, int32_t status) {
  for (const PendingWork &pending : works) {
    pending.work->state = nullptr;
    peer.host->complete(pending.work, status, 0);
  }
}

void commsched::runtime::issueWorks(NcclPeer &peer, const std::vector<PendingWork> &works) {
  if (works.empty())
    return;
  Batch batch(peer);
  std::string what;
  {
    Lock issuing(peer.issuing);
    if (peer.isAborted || peer.failing) {
      int32_t failing = peer.failing;
      return completeAll(peer, works, failing ? failing : COMMRT_ERR_ABORTED);
    }
    peer.enter();
    batch.begin(works);
    batch.plan(works);
    size_t phases = 0;
    for (auto &plan : batch.plans)
      phases = std::max(phases, plan->phases.size());
    for (size_t phase = 0; phase < phases && batch.status == COMMRT_OK; ++phase) {
      batch.runPieces(phase);
      if (batch.status == COMMRT_OK)
        batch.runCalls(phase);
    }
    if (batch.status != COMMRT_OK) {
      char text[1024] = "";
      peer.host->describe(works.front().work, text, sizeof(text));
      what = text;
      for (auto &plan : batch.plans)
        if (batch.isUnsettled)
          plan->moveScratchesToFlight();
        else
          plan->drop();
    }
    batch.end();
  }
  if (batch.status != COMMRT_OK && !peer.failing)
    raiseError(peer, batch.status, peer.rank, "cannot start " + what + ": " + batch.error);
}

void commsched::runtime::closeUnsettled(NcclPeer &peer) {
  std::vector<NcclFlight *> open;
  {
    Lock lock(peer.mutex);
    for (NcclLane *lane : peer.lanes)
      std::copy_if(lane->flights.begin(), lane->flights.end(), std::back_inserter(open),
                   [](const NcclFlight *flight) { return !flight->done; });
  }
  for (NcclFlight *flight : open) {
    cudaStream *stream = flight->lane->stream;
    for (auto [data, bytes] : flight->scratches)
      peer.job->cuda().freeAsync(data, stream);
    std::string error; // without an event the flight is given up by the deadline
    cudaEvent *done = recordEvent(peer, stream, error, peer.job->isTraced);
    Lock lock(peer.mutex);
    flight->done = done;
  }
}

//===- Submitting ----------------------------------------------------------------------------===//

/// Compares the start with those of the other ranks of this process. An error has been raised.
static int32_t present(NcclGroup &group, const commrt_work &work) {
  noteStart(group, work);
  if (!group.meeting)
    return COMMRT_OK;
  Refusal refusal = group.peer->job->matcher->present(*group.meeting, group.index, work);
  if (refusal.status != COMMRT_OK)
    raiseError(*group.peer, refusal.status, refusal.rank, refusal.text);
  return refusal.status;
}

/// Nothing is moved by it, on this rank.
static bool isEmpty(const NcclGroup &group, const commrt_work &work) {
  if (!work.send_counts)
    return work.count == 0 && work.kind != COMMRT_BARRIER;
  auto isZero = [](int64_t count) { return count == 0; };
  return std::all_of(work.send_counts, work.send_counts + group.size(), isZero) &&
         std::all_of(work.recv_counts, work.recv_counts + group.size(), isZero);
}

/// Completes a work that moves nothing. It is an order all the same: the compiler counts on it that a stream that waits
/// for the work comes after what the producer's stream had before the start. So its event is on the producer's stream.
static int32_t completeEmpty(NcclPeer &peer, commrt_work *work) {
  auto flight = std::make_unique<NcclFlight>();
  flight->peer = &peer;
  flight->graph = peer.capture;
  std::string error;
  peer.enter();
  flight->done = recordEvent(peer, static_cast<cudaStream *>(work->stream), error);
  if (!flight->done) {
    raiseError(peer, COMMRT_ERR_BACKEND, peer.rank, error);
    return COMMRT_ERR_BACKEND;
  }
  work->state = flight.release(); // which the work alone refers to
  peer.host->complete(work, COMMRT_OK, 0);
  return COMMRT_OK;
}

int32_t commsched::runtime::submitWork(NcclGroup &group, commrt_work *work) {
  NcclPeer &peer = *group.peer;
  if (int32_t failing = peer.failing)
    return failing;
  if (isMessage(*work)) {
    work->state = &pendingMark;
    (peer.isGrouping ? peer.grouped : peer.messages).push_back({&group, work});
    return COMMRT_OK;
  }
  if (int32_t status = present(group, *work))
    return status;
  if (isEmpty(group, *work))
    return completeEmpty(peer, work);
  work->state = &pendingMark;
  if (peer.isGrouping) {
    peer.grouped.push_back({&group, work});
    return COMMRT_OK;
  }
  flushMessages(peer);
  issueWorks(peer, {{&group, work}});
  return COMMRT_OK;
}

/// Takes messages to the own rank whose other side is missing out of the list; they stay pending.
static void keepUnpaired(NcclPeer &peer, std::vector<PendingWork> &works) {
  std::map<NcclGroup *, std::pair<int64_t, int64_t>> counts;
  auto isSelf = [](const PendingWork &one) { return isMessage(*one.work) && one.work->peer == one.group->index; };
  for (const PendingWork &one : works)
    if (isSelf(one))
      ++(one.work->kind == COMMRT_SEND ? counts[one.group].first : counts[one.group].second);
  for (auto &[group, both] : counts)
    both.first = both.second = std::min(both.first, both.second);
  std::vector<PendingWork> ready;
  for (const PendingWork &one : works) {
    int64_t *left = nullptr;
    if (isSelf(one))
      left = one.work->kind == COMMRT_SEND ? &counts[one.group].first : &counts[one.group].second;
    if (left && (*left)-- <= 0)
      peer.messages.push_back(one);
    else
      ready.push_back(one);
  }
  works.swap(ready);
}

/// Presents the messages among the works, and puts all on their lanes.
static void issueWithMessages(NcclPeer &peer, std::vector<PendingWork> works) {
  keepUnpaired(peer, works);
  int32_t status = COMMRT_OK;
  for (const PendingWork &one : works)
    if (status == COMMRT_OK && isMessage(*one.work))
      status = present(*one.group, *one.work);
  if (status != COMMRT_OK)
    return completeAll(peer, works, status);
  std::vector<PendingWork> moving;
  for (const PendingWork &one : works)
    if (!isEmpty(*one.group, *one.work))
      moving.push_back(one);
    else if (int32_t failed = completeEmpty(peer, one.work))
      completeAll(peer, {one}, failed);
  issueWorks(peer, moving);
}

void commsched::runtime::flushMessages(NcclPeer &peer) {
  if (peer.messages.empty() || peer.isGrouping)
    return;
  std::vector<PendingWork> works;
  works.swap(peer.messages);
  issueWithMessages(peer, std::move(works));
}

int32_t commsched::runtime::beginGroup(NcclPeer &peer) {
  flushMessages(peer);
  peer.isGrouping = true;
  return COMMRT_OK;
}

int32_t commsched::runtime::endGroup(NcclPeer &peer) {
  peer.isGrouping = false;
  std::vector<PendingWork> works;
  works.swap(peer.grouped);
  // Within a list the tags decide which message is which: both sides bring them into one order.
  std::vector<PendingWork> messages;
  std::copy_if(works.begin(), works.end(), std::back_inserter(messages),
               [](const PendingWork &one) { return isMessage(*one.work); });
  std::stable_sort(messages.begin(), messages.end(),
                   [](const PendingWork &a, const PendingWork &b) { return a.work->tag < b.work->tag; });
  auto next = messages.begin();
  for (PendingWork &one : works)
    if (isMessage(*one.work))
      one = *next++;
  issueWithMessages(peer, std::move(works));
  return COMMRT_OK;
}

//===- Waits ---------------------------------------------------------------------------------===//

int32_t commsched::runtime::awaitWork(NcclPeer &peer, commrt_work *work, cudaStream *stream) {
  flushMessages(peer);
  if (work->state == &pendingMark) {
    raiseError(peer, COMMRT_ERR_UNSUPPORTED, peer.rank,
               "a wait for a message to the own rank whose other side has not been started: coalesce them");
    return COMMRT_ERR_UNSUPPORTED;
  }
  if (!work->state)
    return COMMRT_OK;
  auto &flight = *static_cast<NcclFlight *>(work->state);
  // What was captured is ordered by each launch, and all that came before a capture was done.
  if (flight.graph != peer.capture)
    return COMMRT_OK;
  if (flight.isUnsettled || !flight.done ||
      std::find(flight.waited.begin(), flight.waited.end(), stream) != flight.waited.end())
    return COMMRT_OK;
  peer.enter();
  if (std::string text = awaitEvent(peer, stream, flight.done); !text.empty()) {
    raiseError(peer, COMMRT_ERR_BACKEND, peer.rank, text);
    return COMMRT_ERR_BACKEND;
  }
  flight.waited.push_back(stream);
  if (peer.capture)
    completeCaptured(flight, peer.failing);
  return COMMRT_OK;
}

NcclFlight *commsched::runtime::flightOf(const commrt_work &work) {
  return work.state == &pendingMark ? nullptr : static_cast<NcclFlight *>(work.state);
}

void commsched::runtime::releaseWork(commrt_work *work) {
  NcclFlight *flight = flightOf(*work);
  if (!flight)
    return;
  Lock lock(flight->peer->mutex);
  work->state = nullptr;
  dropFlightLocked(flight);
}
