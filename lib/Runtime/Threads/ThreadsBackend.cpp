//===- ThreadsBackend.cpp - N ranks in one process --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The default backend: ranks are threads of one process and meet in memory. No set-up, every kind of collective, and an
// error for each way in which ranks can disagree. The sim backend is the same with a virtual clock.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/BackendLoader.h"
#include "Core/Support/Text.h"
#include "ThreadsExecute.h"
#include "ThreadsJob.h"
#include <algorithm>
#include <cstring>
#include <sys/mman.h>

using namespace commsched::runtime;

/// The largest collective, bytes, that the last rank to arrive carries out itself, since waking a worker costs more.
static constexpr int64_t inlineBytes = 16 << 10;

static bool isPointToPoint(const commrt_work *work) { return work->kind == COMMRT_SEND || work->kind == COMMRT_RECV; }

//===- Job -----------------------------------------------------------------------------------===//

static int32_t openThreads(const commrt_backend_config *config, void **job, int32_t *ranks, int32_t *localRank,
                           char *message, size_t size) {
  *ranks = std::max(1, config->ranks);
  *localRank = -1;
  auto result = std::make_unique<ThreadsJob>(*ranks);
  int32_t workers = config->workers;
  if (workers == 0)
    workers = static_cast<int32_t>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
  for (int32_t i = 0; i < workers; ++i)
    result->workers.emplace_back([job = result.get()] { job->work(); });
  *job = result.release();
  return COMMRT_OK;
}

static void closeThreads(void *opaque) {
  std::unique_ptr<ThreadsJob> job(static_cast<ThreadsJob *>(opaque));
  {
    Lock lock(job->mutex);
    job->stopping = true;
    job->workChanged.notify_all();
  }
  for (std::thread &worker : job->workers)
    worker.join();
  Lock lock(job->mutex);
  for (const ThreadsJob::Segment &segment : job->segments)
    munmap(segment.base, segment.bytes * job->ranks);
}

static int32_t createSegment(void *opaque, int64_t index, int64_t bytes, void **base, char *message, size_t size) {
  auto *peer = static_cast<ThreadsPeer *>(opaque);
  ThreadsJob &job = *peer->job;
  auto ranks = static_cast<int64_t>(job.ranks);
  Lock lock(job.mutex);
  if (index == static_cast<int64_t>(job.segments.size())) {
    void *memory = bytes > INT64_MAX / ranks ? MAP_FAILED
                                             : mmap(nullptr, bytes * ranks, PROT_READ | PROT_WRITE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      copyText("no memory for " + std::to_string(ranks) + " parts of " + std::to_string(bytes) + " bytes", message,
               size);
      return COMMRT_ERR_MEMORY;
    }
    job.segments.push_back({static_cast<char *>(memory), bytes});
  }
  *base = job.segments[index].base + peer->rank * bytes;
  return COMMRT_OK;
}

static int32_t attachThreads(void *opaque, int32_t rank, const commrt_host *host, void *context, void **peer) {
  auto *job = static_cast<ThreadsJob *>(opaque);
  Lock lock(job->mutex);
  auto result = std::make_unique<ThreadsPeer>();
  result->job = job;
  result->rank = rank;
  result->host = host;
  result->context = context;
  *peer = result.get();
  job->peers[rank] = std::move(result);
  return COMMRT_OK;
}

/// The open collective or exchange that needs a rank that has left, which makes the other ranks fail. Empty if none.
static std::string whoNeeds(ThreadsJob &job, int32_t rank) {
  job.mutex.isHeld();
  for (auto &[key, lane] : job.lanes)
    for (auto &slot : lane->slots)
      for (size_t i = 0; i < slot->ranks.size(); ++i)
        if (slot->ranks[i] == rank && !slot->works[i])
          for (commrt_work *work : slot->works)
            if (work)
              return "while others are in " + job.describe(work);
  if (job.numArrived > 0 && !job.exchangeArrived[rank])
    return "while others compare schedules or end the program";
  return "";
}

static void detachThreads(void *opaque) {
  auto *peer = static_cast<ThreadsPeer *>(opaque);
  ThreadsJob &job = *peer->job;
  int32_t rank = peer->rank;
  std::unique_lock<std::mutex> lock(job.mutex);
  job.mutex.isHeld();
  job.left[rank] = true;
  ++job.numLeft;
  peer->last = job.lastOf(rank);
  // Neither its own open works nor those of others that need it can complete.
  bool hasOpen = false;
  for (auto &[key, lane] : job.lanes) {
    for (auto &slot : lane->slots)
      for (size_t i = 0; i < slot->ranks.size(); ++i)
        hasOpen |= slot->ranks[i] == rank && slot->works[i];
    for (auto *open : {&lane->sends, &lane->receives})
      for (auto &[key, works] : *open)
        hasOpen |= !works.empty() && (lane->members[key.source] == rank || lane->members[key.target] == rank);
  }
  // A work that a fault delays would keep this rank waiting. All other matched works only need their copies.
  for (auto &[due, slot] : job.delayed)
    hasOpen |= std::find(slot->ranks.begin(), slot->ranks.end(), rank) != slot->ranks.end();
  std::string need = whoNeeds(job, rank);
  if (hasOpen && need.empty())
    need = "with collectives in flight";
  if (!need.empty())
    job.raise(COMMRT_ERR_PEER, rank, "left " + need, peer);
  job.executed.wait(lock, [&] { return peer->executing == 0; });
  job.peers[rank].reset();
}

static int32_t createLane(void *opaque, const char *name, const int32_t *members, int32_t size, int32_t index,
                          void **group, char *message, size_t messageSize) {
  auto *peer = static_cast<ThreadsPeer *>(opaque);
  *group = nullptr;
  if (index < 0)
    return COMMRT_OK;
  ThreadsJob &job = *peer->job;
  Lock lock(job.mutex);
  std::vector<int32_t> key(members, members + size);
  auto &lane = job.lanes[{name, key}];
  if (!lane) {
    lane = std::make_unique<Lane>();
    lane->members = key;
    lane->started.resize(size);
  }
  *group = new LaneHandle{peer, lane.get(), index};
  return COMMRT_OK;
}

static void destroyLane(void *group) { delete static_cast<LaneHandle *>(group); }

//===- Errors --------------------------------------------------------------------------------===//

std::vector<std::pair<int32_t, commrt_work *>> ThreadsJob::takeUnfinished() {
  std::vector<std::pair<int32_t, commrt_work *>> result;
  auto takeSlot = [&](const Slot &slot, bool wasDispatched) {
    mutex.isHeld();
    for (size_t i = 0; i < slot.works.size(); ++i)
      if (slot.works[i]) {
        result.push_back({slot.ranks[i], slot.works[i]});
        if (wasDispatched)
          --peers[slot.ranks[i]]->executing;
      }
  };
  for (auto &[key, lane] : lanes) {
    for (auto &slot : lane->slots)
      takeSlot(*slot, false);
    lane->slots.clear();
    for (auto *open : {&lane->sends, &lane->receives}) {
      for (auto &[key, works] : *open)
        for (commrt_work *work : works)
          result.push_back({lane->members[open == &lane->sends ? key.source : key.target], work});
      open->clear();
    }
  }
  for (auto &slot : ready)
    takeSlot(*slot, true);
  ready.clear();
  for (auto &[due, slot] : delayed)
    takeSlot(*slot, true);
  delayed.clear();
  return result;
}

void ThreadsJob::raise(int32_t error, int32_t rank, const std::string &message, void *except) {
  if (status == COMMRT_OK) {
    status = error;
    for (auto &peer : peers)
      if (peer && peer.get() != except)
        peer->host->failed(peer->context, error, rank, message.c_str());
  }
  for (auto &[owner, work] : takeUnfinished())
    peers[owner]->host->complete(work, status, 0);
  exchangeChanged.notify_all();
  executed.notify_all();
  workChanged.notify_all();
}

static void abortThreads(void *opaque, int32_t status, const char *message) {
  auto *peer = static_cast<ThreadsPeer *>(opaque);
  Lock lock(peer->job->mutex);
  peer->job->raise(status, peer->rank, message);
}

std::string ThreadsJob::describe(const commrt_work *work) {
  for (auto &peer : peers)
    if (peer) {
      char text[1024] = "";
      peer->host->describe(work, text, sizeof(text));
      return text;
    }
  return "";
}

std::string ThreadsJob::lastOf(int32_t rank) {
  if (left[rank])
    return "left";
  if (!peers[rank])
    return "not attached";
  return peers[rank]->last.empty() ? "has started nothing" : "last started " + peers[rank]->last;
}

std::string ThreadsJob::missing(const Lane &lane, const Slot &slot) {
  constexpr int shown = 4;
  std::string text;
  int count = 0;
  for (size_t i = 0; i < slot.works.size(); ++i) {
    if (slot.works[i])
      continue;
    if (count++ < shown)
      text += (count > 1 ? ", rank " : "rank ") + std::to_string(slot.ranks[i]) + " (" + lastOf(slot.ranks[i]) + ")";
  }
  if (count > shown)
    text += " and " + std::to_string(count - shown) + " more";
  return text;
}

static int32_t describeThreads(void *opaque, char *text, size_t size) {
  auto *peer = static_cast<ThreadsPeer *>(opaque);
  ThreadsJob &job = *peer->job;
  constexpr int shown = 3;
  std::string report;
  int count = 0;
  auto add = [&](const std::string &line) {
    if (count++ < shown)
      report += (report.empty() ? "" : "; ") + line;
  };
  Lock lock(job.mutex);
  for (auto &[key, lane] : job.lanes) {
    auto own = std::find(lane->members.begin(), lane->members.end(), peer->rank);
    if (own == lane->members.end())
      continue;
    auto index = static_cast<int32_t>(own - lane->members.begin());
    for (auto &slot : lane->slots)
      if (commrt_work *work = slot->works[index])
        add(job.describe(work) + " waits for " + job.missing(*lane, *slot));
    for (auto *open : {&lane->sends, &lane->receives})
      for (auto &[key, works] : *open) {
        int32_t self = open == &lane->sends ? key.source : key.target;
        int32_t other = open == &lane->sends ? key.target : key.source;
        if (self == index && !works.empty())
          add(job.describe(works.front()) + " waits for rank " + std::to_string(lane->members[other]) + " (" +
              job.lastOf(lane->members[other]) + ")");
      }
  }
  if (peer->executing > 0)
    add(std::to_string(peer->executing) + " matched collectives are being carried out");
  if (count > shown)
    report += "; and " + std::to_string(count - shown) + " more";
  copyText(report, text, size);
  return COMMRT_OK;
}

//===- Rendezvous ----------------------------------------------------------------------------===//

std::unique_ptr<Slot> ThreadsJob::dispatch(std::unique_ptr<Slot> slot, Lane &lane) {
  int64_t begin = lane.freeNs, cost = 0, delay = 0;
  for (size_t i = 0; i < slot->works.size(); ++i) {
    begin = std::max(begin, slot->works[i]->issue_ns);
    cost = std::max(cost, slot->works[i]->cost_ns);
    delay = std::max(delay, slot->works[i]->delay_ns);
    ThreadsPeer *peer = peers[slot->ranks[i]].get();
    ++peer->executing;
    slot->peers.push_back(peer);
  }
  slot->virtualEndNs = begin + cost;
  lane.freeNs = slot->virtualEndNs;
  if (delay > 0) {
    delayed.emplace(Clock::now() + std::chrono::nanoseconds(delay), std::move(slot));
    workChanged.notify_one();
    return nullptr;
  }
  if (bytesMoved(slot->works) <= inlineBytes)
    return slot;
  ready.push_back(std::move(slot));
  workChanged.notify_one();
  return nullptr;
}

void ThreadsJob::execute(std::unique_ptr<Slot> slot) {
  int32_t result = executeCollective(slot->works);
  for (size_t i = 0; i < slot->works.size(); ++i)
    slot->peers[i]->host->complete(slot->works[i], result, slot->virtualEndNs);
  Lock lock(mutex);
  for (ThreadsPeer *peer : slot->peers)
    --peer->executing;
  if (numLeft > 0)
    executed.notify_all();
}

void ThreadsJob::work() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    mutex.isHeld();
    std::unique_ptr<Slot> slot;
    if (!delayed.empty() && delayed.begin()->first <= Clock::now()) {
      slot = std::move(delayed.begin()->second);
      delayed.erase(delayed.begin());
    } else if (!ready.empty()) {
      slot = std::move(ready.front());
      ready.pop_front();
    }
    if (slot) {
      lock.unlock();
      execute(std::move(slot));
      lock.lock();
    } else if (stopping) {
      return;
    } else if (delayed.empty()) {
      workChanged.wait(lock);
    } else {
      // A copy: the entry may go away while this thread waits.
      Clock::time_point due = delayed.begin()->first;
      workChanged.wait_until(lock, due);
    }
  }
}

/// Describes how the works of a full slot disagree; empty if they agree. Only uneven splits remain to be compared.
static std::string checkSplits(const Slot &slot) {
  if (!slot.works[0]->send_counts)
    return "";
  for (size_t from = 0; from < slot.works.size(); ++from)
    for (size_t to = 0; to < slot.works.size(); ++to)
      if (slot.works[from]->send_counts[to] != slot.works[to]->recv_counts[from])
        return "rank " + std::to_string(slot.ranks[from]) + " sends " +
               std::to_string(slot.works[from]->send_counts[to]) + " elements to rank " +
               std::to_string(slot.ranks[to]) + ", which expects " + std::to_string(slot.works[to]->recv_counts[from]);
  return "";
}

static int32_t mismatch(ThreadsJob &job, int32_t rank, const std::string &text) {
  job.mutex.isHeld();
  job.raise(COMMRT_ERR_MISMATCH, rank, text);
  return COMMRT_ERR_MISMATCH;
}

/// Fails the works that wait for a rank that has left. The mutex is locked.
static int32_t checkLeft(ThreadsJob &job, const Lane &lane, int32_t rank, const Slot &slot, commrt_work *work) {
  job.mutex.isHeld();
  for (size_t i = 0; job.numLeft > 0 && i < lane.members.size(); ++i)
    if (!slot.works[i] && job.left[lane.members[i]]) {
      job.raise(COMMRT_ERR_PEER, lane.members[i],
                "left, but rank " + std::to_string(rank) + " is in " + job.describe(work));
      return COMMRT_ERR_PEER;
    }
  return COMMRT_OK;
}

static int32_t arrive(LaneHandle &handle, commrt_work *work, std::unique_ptr<Slot> &toExecute) {
  ThreadsJob &job = *handle.peer->job;
  job.mutex.isHeld();
  Lane &lane = *handle.lane;
  int64_t number = lane.started[handle.index]++ - lane.firstOpen;
  if (number == static_cast<int64_t>(lane.slots.size())) {
    auto slot = std::make_unique<Slot>();
    slot->ranks = lane.members;
    slot->works.resize(lane.members.size());
    lane.slots.push_back(std::move(slot));
  }
  Slot &slot = *lane.slots[number];
  for (size_t i = 0; slot.arrived > 0 && i < slot.works.size(); ++i)
    if (commrt_work *other = slot.works[i]) {
      if (other->fingerprint == work->fingerprint && !other->send_counts == !work->send_counts)
        break;
      return mismatch(job, handle.peer->rank,
                      "rank " + std::to_string(lane.members[i]) + " is in " + job.describe(other) + ", but rank " +
                          std::to_string(handle.peer->rank) + " is in " + job.describe(work));
    }
  if (int32_t status = checkLeft(job, lane, handle.peer->rank, slot, work))
    return status;
  slot.works[handle.index] = work;
  if (++slot.arrived < static_cast<int32_t>(lane.members.size()))
    return COMMRT_OK;
  if (std::string text = checkSplits(slot); !text.empty()) {
    text += " in " + job.describe(work);
    slot.works[handle.index] = nullptr;
    return mismatch(job, handle.peer->rank, text);
  }
  // Members arrive in order, so the first slot to fill is the oldest.
  std::unique_ptr<Slot> full = std::move(lane.slots.front());
  lane.slots.pop_front();
  ++lane.firstOpen;
  toExecute = job.dispatch(std::move(full), lane);
  return COMMRT_OK;
}

static int32_t matchMessage(LaneHandle &handle, commrt_work *work, std::unique_ptr<Slot> &toExecute) {
  ThreadsJob &job = *handle.peer->job;
  job.mutex.isHeld();
  Lane &lane = *handle.lane;
  bool sends = work->kind == COMMRT_SEND;
  MessageKey key{sends ? handle.index : work->peer, sends ? work->peer : handle.index, work->tag};
  auto &mine = sends ? lane.sends : lane.receives, &theirs = sends ? lane.receives : lane.sends;
  int32_t other = lane.members[work->peer];
  auto waiting = theirs.find(key);
  if (waiting == theirs.end()) {
    if (job.left[other]) {
      job.raise(COMMRT_ERR_PEER, other,
                "left, but rank " + std::to_string(handle.peer->rank) + " is in " + job.describe(work));
      return COMMRT_ERR_PEER;
    }
    mine[key].push_back(work);
    return COMMRT_OK;
  }
  commrt_work *partner = waiting->second.front();
  if (partner->fingerprint != work->fingerprint)
    return mismatch(job, handle.peer->rank,
                    "rank " + std::to_string(other) + " is in " + job.describe(partner) + ", but rank " +
                        std::to_string(handle.peer->rank) + " is in " + job.describe(work));
  waiting->second.pop_front();
  if (waiting->second.empty())
    theirs.erase(waiting); // the tag may never be used again
  auto slot = std::make_unique<Slot>();
  int32_t self = handle.peer->rank;
  slot->ranks = sends ? std::vector<int32_t>{self, other} : std::vector<int32_t>{other, self};
  slot->works = sends ? std::vector<commrt_work *>{work, partner} : std::vector<commrt_work *>{partner, work};
  slot->arrived = 2;
  toExecute = job.dispatch(std::move(slot), lane);
  return COMMRT_OK;
}

static int32_t submitThreads(void *group, commrt_work *work) {
  auto &handle = *static_cast<LaneHandle *>(group);
  ThreadsJob &job = *handle.peer->job;
  std::unique_ptr<Slot> slot;
  char text[1024] = "";
  handle.peer->host->describe(work, text, sizeof(text));
  {
    Lock lock(job.mutex);
    if (job.status != COMMRT_OK)
      return job.status;
    handle.peer->last = text;
    int32_t status = isPointToPoint(work) ? matchMessage(handle, work, slot) : arrive(handle, work, slot);
    if (status != COMMRT_OK)
      return status;
  }
  if (slot)
    job.execute(std::move(slot));
  return COMMRT_OK;
}

static int32_t progressThreads(void *) { return COMMRT_OK; }

//===- Combining -----------------------------------------------------------------------------===//

static int32_t combineThreads(void *opaque, void *value, int64_t bytes, commrt_combine_fn combine, int64_t timeoutNs,
                              char *message, size_t size) {
  auto *peer = static_cast<ThreadsPeer *>(opaque);
  ThreadsJob &job = *peer->job;
  std::unique_lock<std::mutex> lock(job.mutex);
  job.mutex.isHeld();
  int32_t ranks = job.ranks;
  if (job.status != COMMRT_OK)
    return job.status;
  if (job.numArrived == 0) {
    job.exchange = std::make_shared<std::vector<char>>(bytes * ranks);
    job.exchangeBytes = bytes;
    std::fill(job.exchangeArrived.begin(), job.exchangeArrived.end(), false);
  }
  if (job.exchangeBytes != bytes)
    return mismatch(job, peer->rank, "some ranks compare schedules while others end the program");
  for (int32_t rank = 0; job.numLeft > 0 && rank < ranks; ++rank)
    if (job.left[rank] && !job.exchangeArrived[rank]) {
      job.raise(COMMRT_ERR_PEER, rank, "left before all ranks had compared schedules or ended the program");
      return job.status;
    }
  std::shared_ptr<std::vector<char>> buffer = job.exchange;
  std::memcpy(buffer->data() + peer->rank * bytes, value, bytes);
  job.exchangeArrived[peer->rank] = true;
  int64_t number = job.exchangeNumber;
  if (++job.numArrived == ranks) {
    for (int32_t rank = 1; rank < ranks; ++rank)
      combine(buffer->data(), buffer->data() + rank * bytes, bytes);
    ++job.exchangeNumber;
    job.numArrived = 0;
    job.exchangeChanged.notify_all();
  } else {
    bool inTime = job.exchangeChanged.wait_for(lock, std::chrono::nanoseconds(timeoutNs), [&] {
      job.mutex.isHeld();
      return job.exchangeNumber != number || job.status != COMMRT_OK;
    });
    if (!inTime) {
      std::string text = "no word from";
      for (int32_t rank = 0, shown = 0; rank < ranks && shown < 8; ++rank)
        if (!job.exchangeArrived[rank] && ++shown)
          text += " rank " + std::to_string(rank) + " (" + job.lastOf(rank) + ")";
      copyText(text, message, size);
      return COMMRT_ERR_TIMEOUT;
    }
    if (job.exchangeNumber == number)
      return job.status;
  }
  lock.unlock();
  std::memcpy(value, buffer->data(), bytes);
  return COMMRT_OK;
}

//===- The tables ----------------------------------------------------------------------------===//

static commrt_backend makeTable(const char *name, uint32_t flags) {
  return {COMMRT_BACKEND_ABI_VERSION,
          sizeof(commrt_backend),
          name,
          flags,
          openThreads,
          closeThreads,
          attachThreads,
          detachThreads,
          createLane,
          destroyLane,
          submitThreads,
          progressThreads,
          combineThreads,
          abortThreads,
          describeThreads,
          createSegment,
          nullptr,
          nullptr,
          nullptr};
}

const commrt_backend *commsched::runtime::threadsBackend() {
  static const commrt_backend table = makeTable("threads", COMMRT_BACKEND_RANK_ORDER);
  return &table;
}

const commrt_backend *commsched::runtime::simBackend() {
  static const commrt_backend table = makeTable("sim", COMMRT_BACKEND_VIRTUAL | COMMRT_BACKEND_RANK_ORDER);
  return &table;
}
