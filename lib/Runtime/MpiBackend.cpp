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

#include "MpiJob.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace commsched::runtime;
using Clock = MpiJob::Clock;

namespace {
constexpr int farewellTag = 2, exchangeTag = 16;
/// Exchanges in flight differ by their tag; more than two never are.
constexpr int64_t exchangeTags = 1024;
constexpr auto farewellTime = std::chrono::seconds(2);
} // namespace

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
  size_t count = 0;
  for (auto &operation : job->operations) {
    if (count++ == shown)
      break;
    report += (report.empty() ? "" : "; ") + operation->text + " waits for " + operation->missing();
  }
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
    // mpirun tells Open MPI when ranks outnumber cores, and each look at a request that finds nothing then yields.
    // Beside other busy processes a yield takes as long as their time slices (18 ms measured), and waits here sleep in
    // any case.
    setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
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
  MPI_Request request;
  if (MPI_Irecv(&job->incoming, sizeof(job->incoming), MPI_BYTE, MPI_ANY_SOURCE, mpiErrorTag, job->control, &request) !=
      MPI_SUCCESS) {
    copyText("MPI_Irecv failed", message, size);
    return COMMRT_ERR_BACKEND;
  }
  job->requests.add(request, nullptr, 0);
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
  job->requests.abandon();
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
  auto result = std::make_unique<MpiGroup>();
  result->job = job;
  result->comm = comm;
  result->members.assign(members, members + size);
  result->index = index;
  job->groups.push_back(result.get());
  *group = result.release();
  return COMMRT_OK;
}

static void destroyGroup(void *opaque) {
  std::unique_ptr<MpiGroup> group(static_cast<MpiGroup *>(opaque));
  std::lock_guard<std::recursive_mutex> lock(group->job->mutex);
  auto &groups = group->job->groups;
  groups.erase(std::remove(groups.begin(), groups.end(), group.get()), groups.end());
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
  if (job.status != COMMRT_OK)
    return job.status;
  auto operation = std::make_unique<MpiOperation>(group, work, text);
  if (!operation->hasValidTag())
    return COMMRT_ERR_UNSUPPORTED;
  if (job.poller.joinable()) {
    std::lock_guard<std::mutex> lock(job.queueMutex);
    job.queue.push_back(std::move(operation));
    job.queueChanged.notify_one();
    return COMMRT_OK;
  }
  std::lock_guard<std::recursive_mutex> lock(job.mutex);
  job.admit(std::move(operation));
  if (job.numHeld > 0)
    job.progress(); // older ones may have made room
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
