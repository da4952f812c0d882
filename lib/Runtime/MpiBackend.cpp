//===- MpiBackend.cpp - Ranks as processes over MPI ----------------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// One rank per process of mpirun. Each group has a communicator of its own, so that collectives of different groups
// never meet; a control communicator carries the comparison of schedules and errors. Errors are returned
// (MPI_ERRORS_RETURN) everywhere, MPI_COMM_WORLD included, whose handler OpenMPI calls for others' errors, too. Nothing
// blocks inside MPI once it is initialised.
//
//===--------------------------------------------------------------------------------------------===//

#include "MpiNeighbours.h"
#include "MpiOperation.h"
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

using namespace commsched::runtime;
using Clock = std::chrono::steady_clock;

namespace {
constexpr int errorTag = 1, farewellTag = 2, exchangeTag = 16;
/// Exchanges in flight differ by their tag; more than two never are.
constexpr int64_t exchangeTags = 1024;
/// Collectives that one call of progress looks at: the oldest ones.
constexpr size_t lookedAt = 64;
constexpr auto farewellTime = std::chrono::seconds(2);
/// Between two looks at whether the processes of the other ranks on this machine live.
constexpr auto lifeInterval = std::chrono::milliseconds(20);
constexpr auto pollInterval = std::chrono::microseconds(200);

struct ErrorMessage {
  int32_t status, rank;
  char text[2040];
};
} // namespace

namespace commsched::runtime {
struct MpiJob {
  std::recursive_mutex mutex;
  MPI_Comm control = MPI_COMM_NULL;
  int rank = 0, ranks = 1;
  int64_t timeoutNs = 0;
  const commrt_host *host = nullptr;
  void *context = nullptr;
  std::atomic<int32_t> status{COMMRT_OK};
  ErrorMessage incoming = {}, outgoing = {};
  MPI_Request incomingRequest = MPI_REQUEST_NULL;
  std::vector<MPI_Request> outgoingRequests;
  std::deque<std::unique_ptr<MpiOperation>> operations;
  int64_t exchanges = 0;
  int waiting = 0; ///< exchanges and groups being made
  /// With a progress thread, all of MPI's work is that thread's, copies included: starts and waits only tell it.
  std::thread poller;
  std::mutex queueMutex; ///< may be taken under `mutex`, not the other way round
  std::condition_variable queueChanged;
  std::vector<std::unique_ptr<MpiOperation>> queue; ///< submitted, not yet among the operations
  bool isAwaited = false, stopping = false;
  std::unique_ptr<MpiNeighbours> neighbours;
  Clock::time_point nextLook;
  bool sawDead = false;

  void progress();
  void pollLoop();
  void takeQueue();
  /// Ends the job if a process that something in flight may need is gone. Its last messages have been looked at.
  void lookForDead();
  void cancelAll();
  /// Ends the job here and tells the others.
  void raise(int32_t error, const std::string &text);
  void tellOthers(int32_t error, const std::string &text);
};
} // namespace commsched::runtime

static void copyText(const std::string &from, char *to, size_t size) {
  if (!to || size == 0)
    return;
  size_t length = std::min(from.size(), size - 1);
  std::memcpy(to, from.data(), length);
  to[length] = 0;
}

/// Never frees the object: MPI may still write to it.
template <typename T> static void leave(std::unique_ptr<T> &object) { [[maybe_unused]] T *left = object.release(); }

//===- Progress and errors ----------------------------------------------------------------------===//

void MpiJob::cancelAll() {
  for (auto &operation : operations) {
    operation->cancel();
    host->complete(operation->work, status, 0);
  }
  // Messages may still arrive in what they receive into.
  for (auto &operation : operations)
    leave(operation);
  operations.clear();
}

void MpiJob::tellOthers(int32_t error, const std::string &text) {
  outgoing.status = error;
  outgoing.rank = rank;
  copyText(text, outgoing.text, sizeof(outgoing.text));
  for (int other = 0; other < ranks; ++other)
    if (other != rank) {
      MPI_Request request;
      if (MPI_Isend(&outgoing, sizeof(outgoing), MPI_BYTE, other, errorTag, control, &request) == MPI_SUCCESS)
        outgoingRequests.push_back(request);
    }
}

void MpiJob::raise(int32_t error, const std::string &text) {
  if (status != COMMRT_OK)
    return;
  status = error;
  tellOthers(error, text);
  host->failed(context, error, rank, text.c_str());
  cancelAll();
}

void MpiJob::takeQueue() {
  std::lock_guard<std::mutex> lock(queueMutex);
  for (auto &operation : queue)
    operations.push_back(std::move(operation));
  queue.clear();
}

void MpiJob::pollLoop() {
  while (true) {
    progress();
    std::unique_lock<std::mutex> lock(queueMutex);
    queueChanged.wait_for(lock, pollInterval, [&] { return !queue.empty() || isAwaited || stopping; });
    isAwaited = false;
    if (stopping)
      return;
  }
}

void MpiJob::progress() {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  takeQueue();
  if (status != COMMRT_OK && !operations.empty())
    return cancelAll(); // submitted before the error was known
  int flag = 0;
  if (incomingRequest != MPI_REQUEST_NULL && MPI_Test(&incomingRequest, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
      flag && status == COMMRT_OK) {
    status = incoming.status;
    incoming.text[sizeof(incoming.text) - 1] = 0;
    host->failed(context, incoming.status, incoming.rank, incoming.text);
    cancelAll();
    return;
  }
  for (size_t i = 0, seen = 0; i < operations.size() && seen < lookedAt; ++seen) {
    int done = 0;
    std::string error;
    if (int32_t failed = operations[i]->test(done, error))
      return raise(failed, error.empty() ? "MPI failed in " + operations[i]->text : error);
    if (!done) {
      ++i;
      continue;
    }
    commrt_work *work = operations[i]->work;
    operations.erase(operations.begin() + i);
    host->complete(work, COMMRT_OK, 0);
  }
  lookForDead();
}

void MpiJob::lookForDead() {
  Clock::time_point now = Clock::now();
  if (!neighbours || status != COMMRT_OK || now < nextLook || (operations.empty() && waiting == 0))
    return;
  nextLook = now + lifeInterval;
  int32_t dead = neighbours->findDead();
  if (dead < 0)
    return;
  if (!sawDead) { // what it said last comes first
    sawDead = true;
    nextLook = now;
    return;
  }
  std::string text = "the process of rank " + std::to_string(dead) + " has ended";
  if (!operations.empty())
    text += "; rank " + std::to_string(rank) + " is in " + operations.front()->text;
  raise(COMMRT_ERR_PEER, text);
}

static int32_t progressMpi(void *opaque) {
  auto *job = static_cast<MpiJob *>(opaque);
  if (!job->poller.joinable()) {
    job->progress();
    return COMMRT_OK;
  }
  std::lock_guard<std::mutex> lock(job->queueMutex);
  job->isAwaited = true;
  job->queueChanged.notify_one();
  return COMMRT_OK;
}

static void abortMpi(void *opaque, int32_t status, const char *message) {
  auto *job = static_cast<MpiJob *>(opaque);
  std::lock_guard<std::recursive_mutex> lock(job->mutex);
  job->raise(status, message);
}

static int32_t describeMpi(void *opaque, char *text, size_t size) {
  auto *job = static_cast<MpiJob *>(opaque);
  std::lock_guard<std::recursive_mutex> lock(job->mutex);
  constexpr size_t shown = 3;
  std::string report;
  for (size_t i = 0; i < std::min(shown, job->operations.size()); ++i)
    report += (i ? "; " : "") + job->operations[i]->text + " waits for " + job->operations[i]->missing();
  if (job->operations.size() > shown)
    report += "; and " + std::to_string(job->operations.size() - shown) + " more";
  copyText(report, text, size);
  return COMMRT_OK;
}

/// Polls until done() or the deadline.
template <typename Done> static bool pollUntil(MpiJob &job, Clock::time_point deadline, Done done) {
  struct Waiting {
    MpiJob &job;
    Waiting(MpiJob &job) : job(job) { change(1); }
    ~Waiting() { change(-1); }
    void change(int by) {
      std::lock_guard<std::recursive_mutex> lock(job.mutex);
      job.waiting += by;
    }
  } waiting(job);
  while (true) {
    job.progress();
    {
      std::lock_guard<std::recursive_mutex> lock(job.mutex);
      if (done())
        return true;
    }
    if (Clock::now() >= deadline)
      return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

//===- Job --------------------------------------------------------------------------------------===//

static bool leftInError = false;

static void finalizeAtExit() {
  int done = 0;
  // After an error ranks may be gone, and MPI_Finalize may wait for them for ever.
  if (!leftInError && MPI_Finalized(&done) == MPI_SUCCESS && !done)
    MPI_Finalize();
}

static int32_t openMpi(const commrt_backend_config *config, void **result, int32_t *ranks, int32_t *localRank,
                       char *message, size_t size) {
  int initialized = 0, finalized = 0, provided = 0;
  MPI_Finalized(&finalized);
  MPI_Initialized(&initialized);
  if (finalized) {
    copyText("MPI has been finalized", message, size);
    return COMMRT_ERR_BACKEND;
  }
  if (!initialized) {
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
      copyText("MPI_Init_thread failed", message, size);
      return COMMRT_ERR_BACKEND;
    }
    std::atexit(finalizeAtExit);
  }
  auto job = std::make_unique<MpiJob>();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &job->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job->ranks);
  if (config->ranks > 0 && config->ranks != job->ranks) {
    copyText("asked for " + std::to_string(config->ranks) + " ranks, but mpirun started " + std::to_string(job->ranks),
             message, size);
    return COMMRT_ERR_INVALID;
  }
  if (MPI_Comm_dup(MPI_COMM_WORLD, &job->control) != MPI_SUCCESS) {
    copyText("MPI_Comm_dup failed", message, size);
    return COMMRT_ERR_BACKEND;
  }
  MPI_Comm_set_errhandler(job->control, MPI_ERRORS_RETURN);
  job->timeoutNs = config->timeout_ns;
  job->neighbours = std::make_unique<MpiNeighbours>(job->control, job->rank, job->ranks);
  MPI_Irecv(&job->incoming, sizeof(job->incoming), MPI_BYTE, MPI_ANY_SOURCE, errorTag, job->control,
            &job->incomingRequest);
  *ranks = job->ranks;
  *localRank = job->rank;
  if (config->progress_thread)
    job->poller = std::thread([poll = job.get()] { poll->pollLoop(); });
  *result = job.release();
  return COMMRT_OK;
}

/// After an error every rank waits a moment for the others, so that each can report before mpirun ends them all.
static void sayFarewell(MpiJob &job) {
  std::vector<MPI_Request> requests;
  std::vector<char> words(job.ranks + 1);
  for (int other = 0; other < job.ranks; ++other)
    if (other != job.rank && !job.neighbours->isDead(other)) {
      requests.emplace_back();
      MPI_Irecv(&words[other], 1, MPI_BYTE, other, farewellTag, job.control, &requests.back());
      requests.emplace_back();
      MPI_Isend(&words[job.ranks], 1, MPI_BYTE, other, farewellTag, job.control, &requests.back());
    }
  pollUntil(job, Clock::now() + farewellTime, [&] {
    int flag = 0;
    return MPI_Testall(static_cast<int>(requests.size()), requests.data(), &flag, MPI_STATUSES_IGNORE) != MPI_SUCCESS ||
           flag;
  });
}

static void closeMpi(void *opaque) {
  std::unique_ptr<MpiJob> job(static_cast<MpiJob *>(opaque));
  {
    std::lock_guard<std::mutex> lock(job->queueMutex);
    job->stopping = true;
    job->queueChanged.notify_one();
  }
  if (job->poller.joinable())
    job->poller.join();
  if (job->status != COMMRT_OK) {
    leftInError = true;
    leave(job); // requests that nobody will complete point into it
    return;
  }
  MPI_Cancel(&job->incomingRequest);
  MPI_Wait(&job->incomingRequest, MPI_STATUS_IGNORE);
  MPI_Comm_free(&job->control);
}

static int32_t attachMpi(void *opaque, int32_t rank, const commrt_host *host, void *context, void **peer) {
  auto *job = static_cast<MpiJob *>(opaque);
  std::lock_guard<std::recursive_mutex> lock(job->mutex);
  job->host = host;
  job->context = context;
  *peer = job;
  return COMMRT_OK;
}

static void detachMpi(void *opaque) {
  auto *job = static_cast<MpiJob *>(opaque);
  std::lock_guard<std::recursive_mutex> lock(job->mutex);
  job->takeQueue();
  if (!job->operations.empty())
    job->raise(COMMRT_ERR_PEER, "left with collectives in flight");
  if (job->status != COMMRT_OK)
    sayFarewell(*job);
}

//===- Groups and works -------------------------------------------------------------------------===//

static int32_t createGroup(void *opaque, const char *name, const int32_t *members, int32_t size, int32_t index,
                           void **group, char *message, size_t messageSize) {
  auto *job = static_cast<MpiJob *>(opaque);
  *group = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request;
  {
    std::lock_guard<std::recursive_mutex> lock(job->mutex);
    if (MPI_Comm_idup(job->control, &comm, &request) != MPI_SUCCESS) {
      copyText("MPI_Comm_idup failed", message, messageSize);
      return COMMRT_ERR_BACKEND;
    }
  }
  int flag = 0;
  bool inTime = pollUntil(*job, Clock::now() + std::chrono::nanoseconds(job->timeoutNs), [&] {
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    return flag || job->status != COMMRT_OK;
  });
  if (!flag) {
    copyText(inTime ? "another rank failed" : "not all ranks made the group in time", message, messageSize);
    return inTime ? job->status.load() : COMMRT_ERR_TIMEOUT;
  }
  std::lock_guard<std::recursive_mutex> lock(job->mutex);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  if (index < 0)
    return MPI_Comm_free(&comm) == MPI_SUCCESS ? COMMRT_OK : COMMRT_ERR_BACKEND;
  *group = new MpiGroup{job, comm, std::vector<int32_t>(members, members + size), index};
  return COMMRT_OK;
}

static void destroyGroup(void *opaque) {
  std::unique_ptr<MpiGroup> group(static_cast<MpiGroup *>(opaque));
  std::lock_guard<std::recursive_mutex> lock(group->job->mutex);
  if (group->job->status == COMMRT_OK)
    MPI_Comm_free(&group->comm);
  else
    leave(group);
}

static int32_t submitMpi(void *opaque, commrt_work *work) {
  auto &group = *static_cast<MpiGroup *>(opaque);
  MpiJob &job = *group.job;
  char text[1024] = "";
  job.host->describe(work, text, sizeof(text));
  if (job.poller.joinable()) {
    if (job.status != COMMRT_OK)
      return job.status;
    auto operation = std::make_unique<MpiOperation>(group, work, text);
    std::lock_guard<std::mutex> lock(job.queueMutex);
    job.queue.push_back(std::move(operation));
    job.queueChanged.notify_one();
    return COMMRT_OK;
  }
  std::lock_guard<std::recursive_mutex> lock(job.mutex);
  if (job.status != COMMRT_OK)
    return job.status;
  auto operation = std::make_unique<MpiOperation>(group, work, text);
  if (int32_t status = operation->start()) {
    leave(operation);
    return status;
  }
  job.operations.push_back(std::move(operation));
  return COMMRT_OK;
}

//===- Exchange ---------------------------------------------------------------------------------===//

static int32_t exchangeMpi(void *opaque, const void *mine, int64_t bytes, void *all, int64_t timeoutNs, char *message,
                           size_t size) {
  auto *job = static_cast<MpiJob *>(opaque);
  int tag = exchangeTag + static_cast<int>(job->exchanges++ % exchangeTags);
  auto *blocks = static_cast<char *>(all);
  std::memcpy(blocks + job->rank * bytes, mine, bytes);
  // By rank: receive, send. Left to MPI if the exchange fails, together with what they point to.
  auto copyOfMine =
      std::make_unique<std::vector<char>>(static_cast<const char *>(mine), static_cast<const char *>(mine) + bytes);
  auto got = std::make_unique<std::vector<char>>(job->ranks * bytes);
  std::vector<MPI_Request> requests(2 * job->ranks, MPI_REQUEST_NULL);
  bool wrongSize = false;
  {
    std::lock_guard<std::recursive_mutex> lock(job->mutex);
    for (int other = 0; other < job->ranks; ++other)
      if (other != job->rank) {
        MPI_Irecv(got->data() + other * bytes, static_cast<int>(bytes), MPI_BYTE, other, tag, job->control,
                  &requests[2 * other]);
        MPI_Isend(copyOfMine->data(), static_cast<int>(bytes), MPI_BYTE, other, tag, job->control,
                  &requests[2 * other + 1]);
      }
  }
  auto isDone = [&] {
    bool open = false;
    for (MPI_Request &request : requests) {
      if (request == MPI_REQUEST_NULL)
        continue;
      int flag = 0, count = 0;
      MPI_Status status;
      bool isReceive = (&request - requests.data()) % 2 == 0;
      if (MPI_Test(&request, &flag, &status) != MPI_SUCCESS) {
        request = MPI_REQUEST_NULL;
        wrongSize = true;
      } else if (flag && isReceive) {
        MPI_Get_count(&status, MPI_BYTE, &count);
        wrongSize |= count != bytes;
      }
      open |= !flag;
    }
    return !open || wrongSize;
  };
  bool inTime = pollUntil(*job, Clock::now() + std::chrono::nanoseconds(timeoutNs),
                          [&] { return isDone() || job->status != COMMRT_OK; });
  bool isOpen = std::any_of(requests.begin(), requests.end(), [](MPI_Request r) { return r != MPI_REQUEST_NULL; });
  if (!isOpen && !wrongSize) {
    std::memcpy(got->data() + job->rank * bytes, mine, bytes);
    std::memcpy(all, got->data(), got->size());
    return COMMRT_OK;
  }
  std::string text = wrongSize ? "some ranks compare schedules while others end the program" : "no word from";
  for (int other = 0; !wrongSize && other < job->ranks; ++other)
    if (requests[2 * other] != MPI_REQUEST_NULL)
      text += " rank " + std::to_string(other);
  copyText(text, message, size);
  leave(copyOfMine);
  leave(got);
  if (wrongSize)
    return COMMRT_ERR_MISMATCH;
  return inTime ? job->status.load() : COMMRT_ERR_TIMEOUT;
}

//===- The table --------------------------------------------------------------------------------===//

extern "C" COMMRT_API const commrt_backend *commrt_backend_entry(uint32_t version) {
  static const commrt_backend table = {COMMRT_BACKEND_ABI_VERSION,
                                       sizeof(commrt_backend),
                                       "mpi",
                                       COMMRT_BACKEND_POLLED | COMMRT_BACKEND_PER_PROCESS,
                                       openMpi,
                                       closeMpi,
                                       attachMpi,
                                       detachMpi,
                                       createGroup,
                                       destroyGroup,
                                       submitMpi,
                                       progressMpi,
                                       exchangeMpi,
                                       abortMpi,
                                       describeMpi,
                                       nullptr};
  return version == COMMRT_BACKEND_ABI_VERSION ? &table : nullptr;
}
