//===- MpiBackend.cpp - Ranks as processes over MPI -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One rank per process of mpirun. Each group has a communicator of its own, so that collectives of different groups
// never meet; a control communicator carries the comparison of schedules and errors. Errors are returned
// (MPI_ERRORS_RETURN) everywhere, MPI_COMM_WORLD included, whose handler OpenMPI calls for others' errors, too. Nothing
// blocks inside MPI once it is initialised.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Support/Text.h"
#include "MpiJob.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

using namespace commsched::runtime;
using Clock = MpiJob::Clock;

/// How long a rank waits for the others after an error, so that each can report before mpirun ends them all.
static constexpr auto farewellTime = std::chrono::seconds(2);

//===- Progress and errors ----------------------------------------------------------------------===//

static int32_t progressMpi(void *opaque) {
  auto *job = static_cast<MpiJob *>(opaque);
  if (!job->poller.joinable()) {
    job->progress();
    return COMMRT_OK;
  }
  Lock lock(job->queueMutex);
  job->isAwaited = true;
  job->queueChanged.notify_one();
  return COMMRT_OK;
}

static void abortMpi(void *opaque, int32_t status, const char *message) {
  auto *job = static_cast<MpiJob *>(opaque);
  int isMain = 0;
  if (job->threadLevel < MPI_THREAD_SERIALIZED && MPI_Is_thread_main(&isMain) == MPI_SUCCESS && !isMain) {
    Lock lock(job->queueMutex); // the main thread tells the other ranks
    if (job->abortStatus == COMMRT_OK) {
      job->abortStatus = status;
      job->abortText = message;
      job->hasQueued = true;
    }
    return;
  }
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

//===- Job --------------------------------------------------------------------------------------===//

static bool leftInError = false;

static void finalizeAtExit() {
  int done = 0;
  // After an error, ranks may be gone, and MPI_Finalize could wait for them for ever.
  if (leftInError || MPI_Finalized(&done) != MPI_SUCCESS || done)
    return;
  freeRetired(farewellTime);
  MPI_Finalize();
}

namespace {
/// The arguments of MPI_Comm_idup, which MPI keeps if the caller gives up.
struct Duplicate {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
};

/// Makes MPI_COMM_WORLD return errors while a job is open, since Open MPI also reports errors of other communicators
/// there.
struct WorldErrors {
  int jobs = 0;
  MPI_Errhandler before = MPI_ERRHANDLER_NULL;
  void take() {
    if (jobs++ > 0)
      return;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  void restore() {
    if (--jobs > 0)
      return;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    if (before != MPI_ERRHANDLER_NULL)
      MPI_Errhandler_free(&before);
  }
};
} // namespace

static WorldErrors worldErrors;

int32_t commsched::runtime::duplicate(MpiJob &job, MPI_Comm from, MPI_Comm &to, std::string &text) {
  auto made = std::make_unique<Duplicate>();
  int code = MPI_SUCCESS, flag = 0;
  {
    std::lock_guard<std::recursive_mutex> lock(job.mutex);
    code = MPI_Comm_idup(from, &made->comm, &made->request);
  }
  if (code == MPI_SUCCESS)
    job.pollUntil(Clock::now() + std::chrono::nanoseconds(job.timeoutNs), [&] {
      code = MPI_Test(&made->request, &flag, MPI_STATUS_IGNORE);
      return flag || code != MPI_SUCCESS || job.status != COMMRT_OK;
    });
  if (code != MPI_SUCCESS)
    text = "MPI_Comm_idup: " + mpiErrorText(code);
  if (code == MPI_SUCCESS && flag) {
    to = made->comm;
    MPI_Comm_set_errhandler(to, MPI_ERRORS_RETURN);
    return COMMRT_OK;
  }
  leakObject(made);
  return code != MPI_SUCCESS ? COMMRT_ERR_BACKEND : job.status != COMMRT_OK ? job.status.load() : COMMRT_ERR_TIMEOUT;
}

/// Makes Open MPI's symbols visible: its plug-ins look for them globally, while this backend was opened with hidden
/// symbols.
static void showMpiToItsParts() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void *>(&MPI_Init_thread), &info) && info.dli_fname)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

/// Initialises MPI unless the application has done so. Returns a status, and a message on an error.
static int32_t initialize(bool wantsThread, int &level, std::string &text) {
  int initialized = 0, finalized = 0, isMain = 0;
  MPI_Finalized(&finalized);
  MPI_Initialized(&initialized);
  if (finalized) {
    text = "MPI has been finalized";
    return COMMRT_ERR_BACKEND;
  }
  if (!initialized) {
    // If ranks outnumber cores, mpirun makes Open MPI yield after each unsuccessful test. Beside other busy processes a
    // yield takes as long as their time slices (18 ms measured). Waits in this backend sleep in any case.
    setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
    int provided = 0;
    showMpiToItsParts();
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
      text = "MPI_Init_thread failed";
      return COMMRT_ERR_BACKEND;
    }
    std::atexit(finalizeAtExit);
  }
  MPI_Query_thread(&level);
  // An application that initialised MPI may call it at the same time as the progress thread.
  int needed = !wantsThread ? MPI_THREAD_SINGLE : initialized ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
  if (level < needed) {
    text = std::string("a progress thread needs ") +
           (initialized ? "MPI_THREAD_MULTIPLE, but the application initialised MPI with less"
                        : "MPI_THREAD_SERIALIZED, which this MPI does not provide");
    return COMMRT_ERR_UNSUPPORTED;
  }
  if (level < MPI_THREAD_SERIALIZED && MPI_Is_thread_main(&isMain) == MPI_SUCCESS && !isMain) {
    text = "MPI was initialised for its main thread only, and this is another thread";
    return COMMRT_ERR_UNSUPPORTED;
  }
  return COMMRT_OK;
}

/// Makes the control communicator and finds the neighbours.
static int32_t meetOthers(MpiJob &job, std::string &text) {
  struct Meeting {
    MpiAddress mine = MpiAddress::ofThisProcess();
    std::vector<MpiAddress> all;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  auto meeting = std::make_unique<Meeting>();
  int32_t status = duplicate(job, MPI_COMM_WORLD, job.control, text);
  if (status == COMMRT_OK) {
    meeting->all.resize(job.ranks);
    int code = MPI_Iallgather(&meeting->mine, sizeof(MpiAddress), MPI_BYTE, meeting->all.data(), sizeof(MpiAddress),
                              MPI_BYTE, job.control, &meeting->request);
    int flag = 0;
    if (code == MPI_SUCCESS)
      job.pollUntil(Clock::now() + std::chrono::nanoseconds(job.timeoutNs), [&] {
        code = MPI_Test(&meeting->request, &flag, MPI_STATUS_IGNORE);
        return flag || code != MPI_SUCCESS;
      });
    if (code != MPI_SUCCESS)
      text = "MPI_Iallgather: " + mpiErrorText(code);
    status = code != MPI_SUCCESS ? COMMRT_ERR_BACKEND : flag ? COMMRT_OK : COMMRT_ERR_TIMEOUT;
  }
  if (status == COMMRT_ERR_TIMEOUT)
    text =
        "waited " + std::to_string(job.timeoutNs / 1'000'000) + " ms; not all processes of mpirun opened this backend";
  if (status == COMMRT_OK)
    job.neighbours = std::make_unique<MpiNeighbours>(meeting->all, job.rank);
  else
    leakObject(meeting);
  return status;
}

static int32_t openMpi(const commrt_backend_config *config, void **result, int32_t *ranks, int32_t *localRank,
                       char *message, size_t size) {
  auto job = std::make_unique<MpiJob>();
  std::string text;
  auto refuse = [&](int32_t status) {
    copyText(text, message, size);
    return status;
  };
  if (int32_t status = initialize(config->progress_thread != 0, job->threadLevel, text))
    return refuse(status);
  MPI_Comm_rank(MPI_COMM_WORLD, &job->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job->ranks);
  if (config->ranks > 0 && config->ranks != job->ranks) {
    text = "asked for " + std::to_string(config->ranks) + " ranks, but mpirun started " + std::to_string(job->ranks);
    return refuse(COMMRT_ERR_INVALID);
  }
  job->timeoutNs = config->timeout_ns;
  job->wantsThread = config->progress_thread != 0;
  job->leaving.resize(job->ranks);
  worldErrors.take();
  MPI_Request request = MPI_REQUEST_NULL;
  int32_t status = meetOthers(*job, text);
  if (status == COMMRT_OK && MPI_Irecv(&job->incoming, sizeof(job->incoming), MPI_BYTE, MPI_ANY_SOURCE, mpiErrorTag,
                                       job->control, &request) != MPI_SUCCESS) {
    text = "MPI_Irecv failed";
    status = COMMRT_ERR_BACKEND;
  }
  if (status != COMMRT_OK) {
    leftInError = true;
    return refuse(status);
  }
  job->requests.add(request, nullptr, 0);
  // All ranks have left the job before this one.
  freeRetired(farewellTime);
  *ranks = job->ranks;
  *localRank = job->rank;
  *result = job.release();
  return COMMRT_OK;
}

static void closeMpi(void *opaque) {
  std::unique_ptr<MpiJob> job(static_cast<MpiJob *>(opaque));
  if (job->status != COMMRT_OK) {
    leftInError = true;
    leakObject(job); // requests that never complete point into it
    return;
  }
  job->requests.abandon();
  retire(std::move(job));
  worldErrors.restore();
}

static int32_t attachMpi(void *opaque, int32_t rank, const commrt_host *host, void *context, void **peer) {
  auto *job = static_cast<MpiJob *>(opaque);
  std::lock_guard<std::recursive_mutex> lock(job->mutex);
  job->host = host;
  job->context = context;
  if (job->wantsThread)
    job->poller = std::thread([job] { job->pollLoop(); });
  *peer = job;
  return COMMRT_OK;
}

static void detachMpi(void *opaque) {
  auto *job = static_cast<MpiJob *>(opaque);
  job->stopPoller();
  {
    std::lock_guard<std::recursive_mutex> lock(job->mutex);
    job->takeQueue();
    if (!job->operations.empty())
      job->raise(COMMRT_ERR_PEER, "left with collectives in flight");
    job->sayLeaving();
  }
  if (job->status != COMMRT_OK)
    job->pollUntil(Clock::now() + farewellTime, [&] {
      job->takeLeaving();
      return job->isLast();
    });
  std::lock_guard<std::recursive_mutex> lock(job->mutex);
  job->host = nullptr;
  job->context = nullptr;
}

//===- Groups and works -------------------------------------------------------------------------===//

static int32_t createGroup(void *opaque, const char *name, const int32_t *members, int32_t size, int32_t index,
                           void **group, char *message, size_t messageSize) {
  auto *job = static_cast<MpiJob *>(opaque);
  *group = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;
  std::string text;
  job->isMakingGroup = true;
  int32_t status = duplicate(*job, job->control, comm, text);
  job->isMakingGroup = false;
  if (status != COMMRT_OK) {
    if (text.empty())
      text = status == COMMRT_ERR_TIMEOUT ? "not all ranks made the group in time" : "another rank failed";
    copyText(text, message, messageSize);
    return status;
  }
  std::lock_guard<std::recursive_mutex> lock(job->mutex);
  int64_t ordinal = job->groupsMade++;
  if (index < 0)
    return MPI_Comm_free(&comm) == MPI_SUCCESS ? COMMRT_OK : COMMRT_ERR_BACKEND;
  auto result = std::make_unique<MpiGroup>();
  result->job = job;
  result->comm = comm;
  result->members.assign(members, members + size);
  result->index = index;
  result->ordinal = ordinal;
  result->largestTag = largestMpiTag(comm);
  result->sent.resize(size);
  result->received.resize(size);
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
    leakObject(group);
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
    Lock lock(job.queueMutex);
    job.queue.push_back(std::move(operation));
    job.hasQueued = true;
    job.queueChanged.notify_one();
    return COMMRT_OK;
  }
  std::lock_guard<std::recursive_mutex> lock(job.mutex);
  job.admit(std::move(operation));
  if (job.numHeld > 0)
    job.progress(); // older operations may have completed
  return COMMRT_OK;
}

static int32_t identifyMpi(void *, char *text, size_t size) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  // Some libraries write a page about how they were built.
  std::string line(version, length);
  line.resize(std::min(line.find('\n'), line.size()));
  copyText(line, text, size);
  return static_cast<int32_t>(std::strlen(text));
}

//===- The table --------------------------------------------------------------------------------===//

extern "C" COMMRT_API const commrt_backend *commrt_backend_entry(uint32_t version) {
  static const commrt_backend table = {COMMRT_BACKEND_ABI_VERSION,
                                       sizeof(commrt_backend),
                                       "mpi",
                                       COMMRT_BACKEND_POLLED | COMMRT_BACKEND_PER_PROCESS | COMMRT_BACKEND_RANK_ORDER,
                                       openMpi,
                                       closeMpi,
                                       attachMpi,
                                       detachMpi,
                                       createGroup,
                                       destroyGroup,
                                       submitMpi,
                                       progressMpi,
                                       combineMpi,
                                       abortMpi,
                                       describeMpi,
                                       nullptr,
                                       nullptr,
                                       identifyMpi,
                                       nullptr};
  return version == COMMRT_BACKEND_ABI_VERSION ? &table : nullptr;
}
