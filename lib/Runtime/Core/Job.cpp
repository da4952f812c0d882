//===- Job.cpp - Jobs, contexts and groups ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Opens a job on a backend, makes one context per rank, and ends them in an order in which nothing is used after it is
// gone.
//
//===------------------------------------------------------------------------------------------===//

#include "BackendLoader.h"
#include "Core.h"
#include "Launcher.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <thread>

using namespace commsched::runtime;

static constexpr int64_t defaultTimeoutNs = 60'000'000'000;
static constexpr int32_t maxRanks = 1 << 20;

static commrt_options defaultOptions() {
  commrt_options options = {};
  options.struct_size = sizeof(commrt_options);
  options.backend = "threads";
  options.timeout_ns = defaultTimeoutNs;
  if (const char *text = std::getenv("COMMRT_TIMEOUT_MS"))
    if (int64_t ms = std::strtoll(text, nullptr, 10); ms > 0)
      options.timeout_ns = std::min(ms, longestNs / 1'000'000) * 1'000'000;
  options.fault = std::getenv("COMMRT_FAULT");
  if (const char *text = std::getenv("COMMRT_PROGRESS_THREAD"))
    options.progress_thread = std::strtol(text, nullptr, 10) != 0;
  return options;
}

void commrt_options_init_sized(commrt_options *options, size_t size) {
  if (!options || size < sizeof(options->struct_size))
    return;
  commrt_options defaults = defaultOptions();
  defaults.struct_size = static_cast<uint32_t>(size);
  std::memset(options, 0, size);
  std::memcpy(options, &defaults, std::min(size, sizeof(defaults)));
}

/// The caller's options, with defaults where its structure ends earlier. An error text if they cannot be understood.
static std::string readOptions(const commrt_options *given, commrt_options &options) {
  options = defaultOptions();
  if (!given || given->struct_size < offsetof(commrt_options, backend))
    return "options were not set up by commrt_options_init";
  const char *bytes = reinterpret_cast<const char *>(given);
  std::memcpy(static_cast<void *>(&options), bytes, std::min<size_t>(given->struct_size, sizeof(options)));
  for (size_t i = sizeof(options); i < given->struct_size; ++i)
    if (bytes[i] != 0)
      return "options are set that only a later version of the library knows";
  if (options.ranks < 0 || options.ranks > maxRanks)
    return "the number of ranks must be from 0 to " + std::to_string(maxRanks);
  if (options.timeout_ns <= 0 || options.workers < 0)
    return "timeout_ns must be positive and workers not negative";
  options.timeout_ns = std::min(options.timeout_ns, longestNs);
  return "";
}

/// Loads and opens one backend; on an error nothing of it stays.
static int32_t openBackend(commrt_job &job, const commrt_options &options, const std::string &name,
                           std::string &error) {
  job.backend = loadBackend(name, &job.library, error);
  if (!job.backend)
    return COMMRT_ERR_BACKEND;
  commrt_backend_config config = {};
  config.struct_size = sizeof(config);
  config.ranks = options.ranks;
  config.workers = options.workers;
  config.progress_thread = options.progress_thread;
  config.virtual_clock = (job.backend->flags & COMMRT_BACKEND_VIRTUAL) != 0;
  config.timeout_ns = options.timeout_ns;
  config.trace = options.trace != 0;
  char text[1024] = "";
  int32_t status = job.backend->open(&config, &job.state, &job.ranks, &job.localRank, text, sizeof(text));
  if (status != COMMRT_OK) {
    error = name + ": " + text;
    job.state = nullptr;
    unloadBackend(job.library);
    return status;
  }
  job.device = job.backend->flags & COMMRT_BACKEND_DEVICE ? job.backend->device : nullptr;
  return status;
}

/// Whether this machine has a core for each thread of the job's ranks. All of its cores count, since a launcher may
/// bind each rank to one of them.
static bool hasOwnCores(const commrt_job &job, const commrt_options &options) {
  Launch launch;
  int64_t ranks = job.ranks;
  if (isPerProcess(&job) && readLaunch(processEnvironment(), launch).empty() && launch.localRanks > 0)
    ranks = launch.localRanks;
  return ranks * (options.progress_thread ? 2 : 1) <= std::thread::hardware_concurrency();
}

int32_t commrt_job_create(const commrt_options *given, commrt_job **job, char *message, size_t size) {
  auto refuse = [&](int32_t status, const std::string &text) {
    copyText(text, message, size);
    return status;
  };
  copyText("", message, size);
  if (!job)
    return refuse(COMMRT_ERR_INVALID, "job is NULL");
  *job = nullptr;
  commrt_options options;
  if (std::string error = readOptions(given, options); !error.empty())
    return refuse(COMMRT_ERR_INVALID, error);
  auto result = std::make_unique<commrt_job>();
  if (std::string error = Fault::parse(options.fault, result->fault); !error.empty())
    return refuse(COMMRT_ERR_INVALID, error);
  result->timeoutNs = options.timeout_ns;
  result->trace = options.trace != 0;
  result->poison = options.poison != 0;
  result->began = Clock::now();
  std::string names = options.backend && *options.backend ? options.backend : "threads", errors;
  int32_t status = COMMRT_OK;
  for (size_t begin = 0; !result->state && begin <= names.size();) {
    size_t end = std::min(names.find(',', begin), names.size());
    std::string error;
    status = openBackend(*result, options, names.substr(begin, end - begin), error);
    if (status != COMMRT_OK)
      errors += (errors.empty() ? "" : "; ") + error;
    begin = end + 1;
  }
  if (status != COMMRT_OK)
    return refuse(status, errors);
  result->hasOwnCores = hasOwnCores(*result, options);
  {
    Lock lock(result->mutex);
    result->attached.resize(result->ranks);
  }
  *job = result.release();
  return COMMRT_OK;
}

int32_t commrt_job_destroy(commrt_job *job) {
  if (!job)
    return COMMRT_OK;
  {
    Lock lock(job->mutex);
    if (job->contexts > 0)
      return COMMRT_ERR_INVALID;
  }
  job->backend->close(job->state);
  unloadBackend(job->library);
  delete job;
  return COMMRT_OK;
}

uint32_t commrt_abi_version(void) { return COMMRT_ABI_VERSION; }

int32_t commrt_check_abi(commrt_context *context, uint32_t version) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (version == COMMRT_ABI_VERSION)
    return latched(context);
  return fail(context, COMMRT_ERR_INVALID,
              "the program was built for version " + std::to_string(version) + " of the runtime, and this is version " +
                  std::to_string(COMMRT_ABI_VERSION));
}

const char *commrt_job_backend(const commrt_job *job) { return job ? job->backend->name : nullptr; }
int32_t commrt_job_identify(commrt_job *job, char *text, size_t size) {
  if (!text || size == 0)
    return 0;
  *text = '\0';
  if (!job || !COMMRT_BACKEND_HAS(job->backend, identify))
    return 0;
  return job->backend->identify(job->state, text, size);
}

int32_t commrt_job_is_rank_ordered(const commrt_job *job) {
  return job && (job->backend->flags & COMMRT_BACKEND_RANK_ORDER) != 0;
}
int32_t commrt_context_is_device(const commrt_context *context) { return context && context->job->device; }
bool commsched::runtime::isPerProcess(const commrt_job *job) {
  return (job->backend->flags & COMMRT_BACKEND_PER_PROCESS) || job->localRank >= 0;
}
int32_t commrt_job_ranks(const commrt_job *job) { return job ? job->ranks : -1; }
int32_t commrt_job_local_rank(const commrt_job *job) { return job ? job->localRank : -1; }

int32_t commrt_context_create(commrt_job *job, int32_t rank, commrt_context **context) {
  if (!job || !context)
    return COMMRT_ERR_INVALID;
  *context = nullptr;
  if (rank < 0 || rank >= job->ranks || (job->localRank >= 0 && rank != job->localRank))
    return COMMRT_ERR_INVALID;
  {
    Lock lock(job->mutex);
    if (job->attached[rank])
      return COMMRT_ERR_INVALID;
    job->attached[rank] = true;
    ++job->contexts;
  }
  auto result = std::make_unique<commrt_context>();
  result->job = job;
  result->rank = rank;
  {
    Lock lock(result->mutex);
    result->tokens.next = result->tokens.previous = &result->tokens;
  }
  int32_t status = job->backend->attach(job->state, rank, &hostTable, result.get(), &result->peer);
  if (status == COMMRT_OK)
    status = commrt_stream_get(result.get(), COMMRT_STREAM_COMPUTE, 0, &result->stream);
  if (status != COMMRT_OK) {
    Lock lock(job->mutex);
    --job->contexts;
    job->attached[rank] = false; // it may be tried again
    return status;
  }
  *context = result.release();
  beginDeviceClock(*context);
  return COMMRT_OK;
}

static thread_local commrt_context *currentContext = nullptr;

void commrt_make_current(commrt_context *context) { currentContext = context; }
commrt_context *commrt_current(void) { return currentContext; }

/// Frees what the context's user has not given back. Waits for whoever completed the last work and still holds the
/// mutex.
static void freeOwned(commrt_context *context) {
  const commrt_device_ops *device = context->job->device;
  for (commrt_event *event : context->events) { // without the mutex, as every call of the backend
    if (device)
      device->release(context->peer, event->handle);
    delete event;
  }
  Lock lock(context->mutex);
  for (auto &[key, stream] : context->streams)
    if (stream)
      stream->tokens.clear();
  while (context->tokens.next != &context->tokens) {
    commrt_token *token = context->tokens.next;
    context->tokens.next = token->next;
    context->retired.insert(context->retired.end(), token->works.begin(), token->works.end());
    delete token;
  }
  for (auto &[data, buffer] : context->buffers)
    if (buffer->symmetricOffset < 0 && !buffer->abandoned) {
      if (device)
        context->returned.push_back({data, buffer->bytes});
      else
        std::free(data);
    }
  for (auto &[bytes, data] : context->spare)
    std::free(data);
  if (!context->abandonedSymmetric)
    for (auto &[base, bytes] : context->ownSegments)
      munmap(base, bytes);
}

int32_t commrt_context_destroy(commrt_context *context) {
  if (!context)
    return COMMRT_OK;
  commrt_job *job = context->job;
  finishDropped(context, COMMRT_ERR_ABORTED);
  bool isAttached;
  {
    Lock lock(context->peerMutex);
    isAttached = !context->detached;
  }
  if (isAttached)
    job->backend->detach(context->peer);
  context->isCapturing = false; // the backend has ended it
  dropImages(context);
  freeOwned(context);
  dropTrace(context);
  if (job->device)
    reclaimCompleted(context);
  for (auto &[name, group] : context->groups)
    if (group->state)
      job->backend->group_destroy(group->state);
  if (currentContext == context)
    currentContext = nullptr;
  delete context;
  Lock lock(job->mutex);
  --job->contexts;
  return COMMRT_OK;
}

int32_t commrt_rank(const commrt_context *context) { return context ? context->rank : -1; }
int32_t commrt_ranks(const commrt_context *context) { return context ? context->job->ranks : -1; }

/// Checks the partition and gives the members of the subset of `rank`; an error text if it is not one.
static std::string findSubset(const commrt_context *context, int64_t numSubsets, const int64_t *offsets,
                              const int64_t *ranks, commrt_group &group) {
  std::vector<int32_t> &members = group.members;
  int32_t &index = group.index;
  if (numSubsets < 0 || (numSubsets > 0 && !offsets))
    return "no subsets given";
  std::vector<bool> seen(context->job->ranks);
  index = -1;
  for (int64_t subset = 0; subset < numSubsets; ++subset) {
    if (offsets[subset] < 0 || offsets[subset + 1] < offsets[subset])
      return "offsets must ascend";
    for (int64_t i = offsets[subset]; i < offsets[subset + 1]; ++i) {
      int64_t rank = ranks ? ranks[i] : -1;
      if (rank < 0 || rank >= context->job->ranks)
        return "rank " + std::to_string(rank) + " is not below " + std::to_string(context->job->ranks);
      if (seen[rank])
        return "rank " + std::to_string(rank) + " appears twice";
      seen[rank] = true;
      if (rank == context->rank) {
        index = static_cast<int32_t>(i - offsets[subset]);
        group.subset = subset;
        for (int64_t k = offsets[subset]; k < offsets[subset + 1]; ++k)
          members.push_back(static_cast<int32_t>(std::clamp<int64_t>(ranks[k], 0, INT32_MAX)));
      }
    }
  }
  return "";
}

int32_t commrt_group_create(commrt_context *context, const char *name, int64_t numSubsets, const int64_t *offsets,
                            const int64_t *ranks, commrt_group **group) {
  if (!context || !group)
    return COMMRT_ERR_INVALID;
  *group = nullptr;
  if (int32_t status = context->groups.count(name ? name : "")
                           ? latched(context)
                           : refuseInCapture(context, std::string("a new group @") + (name ? name : "")))
    return status;
  if (!name)
    return fail(context, COMMRT_ERR_INVALID, "commrt_group_create: the name is NULL");
  auto result = std::make_unique<commrt_group>();
  result->context = context;
  result->name = name;
  result->subsets = numSubsets;
  result->number = static_cast<int64_t>(context->groups.size());
  if (std::string error = findSubset(context, numSubsets, offsets, ranks, *result); !error.empty())
    return fail(context, COMMRT_ERR_INVALID, "group @" + result->name + ": " + error);
  if (auto found = context->groups.find(name); found != context->groups.end()) {
    if (found->second->members != result->members)
      return fail(context, COMMRT_ERR_INVALID, "group @" + result->name + " was made before with other ranks");
    *group = found->second.get();
    return COMMRT_OK;
  }
  char text[512] = "";
  int32_t status = context->job->backend->group_create(context->peer, name, result->members.data(),
                                                       static_cast<int32_t>(result->members.size()), result->index,
                                                       &result->state, text, sizeof(text));
  if (status != COMMRT_OK)
    return fail(context, status, "group @" + result->name + ": " + text);
  *group = result.get();
  context->groups.emplace(name, std::move(result));
  return COMMRT_OK;
}

int32_t commrt_group_find(commrt_context *context, const char *name, commrt_group **group) {
  if (!context || !name || !group)
    return COMMRT_ERR_INVALID;
  auto found = context->groups.find(name);
  *group = found == context->groups.end() ? nullptr : found->second.get();
  return *group ? latched(context) : fail(context, COMMRT_ERR_INVALID, std::string("no group @") + name);
}

int32_t commrt_group_size(const commrt_group *group) { return group ? static_cast<int32_t>(group->members.size()) : 0; }
int32_t commrt_group_rank(const commrt_group *group) { return group ? group->index : -1; }
