//===- NcclInit.cpp - Communicators of the emulated NCCL --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Members of a communicator are threads of one process. A communicator that is not blocking answers ncclInProgress
// until all members are there, and then for a random number of polls more.
//
//===------------------------------------------------------------------------------------------===//

#include "CudaApi.h"
#include "NcclComm.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <unistd.h>

namespace emulator {
namespace {
/// What communicators of this process have in common. Guarded by stateLock().
struct World {
  std::map<std::string, std::shared_ptr<Shared>> byId;
  std::set<ncclComm *> comms;
  std::mt19937_64 random{uint64_t(option("NCCL_EMU_SEED", 0))};
  std::map<std::string, std::array<int, 3>> ctas; ///< by name
  int mostIdentifiers = 0;
  uint64_t ids = 0;
};
} // namespace

static World &world() {
  static auto *made = new World;
  return *made;
}

int randomPolls() {
  static const int64_t most = option("NCCL_EMU_POLLS", 3);
  return most > 0 ? int(world().random() % uint64_t(most + 1)) : 0;
}

void forget(ncclComm *comm) { world().comms.erase(comm); }
bool isLive(ncclComm *comm) { return world().comms.count(comm) != 0; }

/// The library's ncclConfig_t with what the caller's has, as far as the caller's reaches.
static bool readConfig(const ncclConfig_t *given, ncclConfig_t &config) {
  memset(&config, 0, sizeof(config));
  config.size = sizeof(config);
  for (int *undefined : {&config.blocking, &config.minCTAs, &config.maxCTAs, &config.CTAPolicy})
    *undefined = NCCL_CONFIG_UNDEF_INT;
  if (!given)
    return true;
  if (given->size < offsetof(ncclConfig_t, cgaClusterSize) || given->magic != NCCL_API_MAGIC)
    return false;
  memcpy(&config, given, std::min(sizeof(config), given->size));
  constexpr int mostCtas = 64, policies = 3;
  auto isWithin = [](int value, int least, int most) {
    return value == NCCL_CONFIG_UNDEF_INT || (value >= least && value <= most);
  };
  bool isOrdered = config.minCTAs == NCCL_CONFIG_UNDEF_INT || config.maxCTAs == NCCL_CONFIG_UNDEF_INT ||
                   config.minCTAs <= config.maxCTAs;
  return isOrdered && isWithin(config.minCTAs, 1, mostCtas) && isWithin(config.maxCTAs, 1, mostCtas) &&
         isWithin(config.CTAPolicy, 0, policies - 1);
}

/// True if ranks are processes.
static bool isOfProcesses() {
  static const bool is = !optionText("CUDA_EMU_SHARED", "").empty();
  return is;
}

static void wakeAll(Shared &shared) {
  for (Waiter *waiter : shared.waiters)
    waiter->wake();
  shared.waiters.clear();
}

/// Makes a member, which still has to join. With the lock.
static ncclComm *makeComm(int rank, int device, const ncclConfig_t &config) {
  auto *comm = new ncclComm;
  comm->rank = rank;
  comm->device = device;
  comm->isBlocking = config.blocking == NCCL_CONFIG_UNDEF_INT || config.blocking != 0;
  comm->isJoining = true;
  comm->ctas = {config.minCTAs, config.maxCTAs, config.CTAPolicy};
  if (config.commName)
    world().ctas[config.commName] = comm->ctas;
  comm->polls = comm->isBlocking ? 0 : randomPolls();
  world().comms.insert(comm);
  return comm;
}

static size_t mailCount(int size) { return (size_t(kChannels) * size_t(size) + 1) * size_t(size); }

/// The member takes its place among processes.
static void joinProcesses(ncclComm *comm, const std::shared_ptr<Shared> &shared) {
  constexpr int most = sizeof(Common::isTaken) / sizeof(Common::isTaken[0]);
  if (shared->size > most)
    report("expected at most " + std::to_string(most) + " processes, got " + std::to_string(shared->size));
  std::string name = shared->id + "/" + shared->name;
  void *memory = emulatorSharedMemory(name.c_str(), sizeof(Common) + mailCount(shared->size) * sizeof(Mail));
  auto *common = static_cast<Common *>(memory);
  if (common->isTaken[comm->rank].exchange(1))
    report("rank " + std::to_string(comm->rank) + " of " + shared->name + " is there twice");
  Held held;
  comm->shared = shared;
  shared->common = common;
  shared->mail = common->mail();
  shared->members[size_t(comm->rank)] = comm;
  ++shared->users;
  ++common->joined;
}

/// NCCL would hang, or corrupt data.
static void checkCtas(const Shared &shared, const ncclComm &comm) {
  for (int other = 0; other < shared.size; ++other)
    if (const ncclComm *member = shared.members[size_t(other)]; member && member->ctas != comm.ctas)
      report("ranks " + std::to_string(other) + " and " + std::to_string(comm.rank) + " of " + shared.name +
             " have different numbers or policies of CTAs");
}

/// The member takes its place. The last one makes the mailboxes, without the lock.
static void join(ncclComm *comm, const std::shared_ptr<Shared> &shared) {
  if (isOfProcesses())
    return joinProcesses(comm, shared);
  bool isLast = false;
  {
    Held held;
    comm->shared = shared;
    if (shared->members[size_t(comm->rank)])
      report("rank " + std::to_string(comm->rank) + " of " + shared->name + " is there twice");
    for (int other = 0; other < shared->size; ++other)
      if (shared->members[size_t(other)] && shared->devices[size_t(other)] == comm->device &&
          option("NCCL_EMU_SHARED_DEVICES", 0) == 0)
        report("duplicate GPU detected: ranks " + std::to_string(other) + " and " + std::to_string(comm->rank) +
               " of " + shared->name + " are both on device " + std::to_string(comm->device));
    checkCtas(*shared, *comm);
    shared->members[size_t(comm->rank)] = comm;
    shared->devices[size_t(comm->rank)] = comm->device;
    ++shared->users;
    isLast = ++shared->joined == shared->size;
  }
  if (!isLast)
    return;
  size_t count = mailCount(shared->size);
  void *memory = nullptr;
  check(cudaHostAlloc(&memory, count * sizeof(Mail), 0), "cudaHostAlloc");
  auto *mail = static_cast<Mail *>(memory);
  std::uninitialized_value_construct_n(mail, count);
  Held held;
  shared->mail = mail;
  shared->isReady = true;
  wakeAll(*shared);
}

static std::shared_ptr<Shared> makeShared(int size, const std::string &name, std::shared_ptr<Job> job) {
  auto shared = std::make_shared<Shared>();
  shared->job = std::move(job);
  shared->size = size;
  shared->name = name;
  shared->members.resize(size_t(size));
  shared->devices.resize(size_t(size));
  return shared;
}

/// When all members of the parent have given colour and key: who is in which part, at which rank.
static void decideSplit(Shared &parent, Shared::Split &split, uint64_t number) {
  std::map<int, std::vector<int>> parts; // by colour: the parent's ranks
  for (int member = 0; member < parent.size; ++member)
    if (split.colorAndKey[size_t(member)].first >= 0)
      parts[split.colorAndKey[size_t(member)].first].push_back(member);
  split.results.resize(size_t(parent.size));
  split.ranks.resize(size_t(parent.size));
  for (auto &[color, members] : parts) {
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return split.colorAndKey[size_t(a)].second < split.colorAndKey[size_t(b)].second;
    });
    auto shared = makeShared(int(members.size()),
                             parent.name + "." + std::to_string(number) + ":" + std::to_string(color), parent.job);
    shared->id = parent.id;
    for (size_t place = 0; place < members.size(); ++place) {
      split.results[size_t(members[place])] = shared;
      split.ranks[size_t(members[place])] = int(place);
    }
  }
  wakeAll(parent);
}

static CommonSplit *commonSplit(const Shared &parent, uint64_t number) {
  std::string name = parent.id + "/" + parent.name + " split " + std::to_string(number);
  return static_cast<CommonSplit *>(emulatorSharedMemory(name.c_str(), sizeof(CommonSplit)));
}

/// If ranks are processes: takes over what they gave, once all have.
static void readSplit(Shared &parent, Shared::Split &split, uint64_t number) {
  if (!parent.common || split.posted == parent.size)
    return;
  const CommonSplit *common = commonSplit(parent, number);
  if (common->posted != parent.size)
    return;
  for (int member = 0; member < parent.size; ++member)
    split.colorAndKey[size_t(member)] = {common->colorAndKey[member][0], common->colorAndKey[member][1]};
  split.posted = parent.size;
  decideSplit(parent, split, number);
}

bool hasJoined(ncclComm *comm) {
  if (!comm->isJoining)
    return true;
  if (!comm->shared) {
    Shared::Split &split = comm->parent->splits[comm->splitNumber];
    readSplit(*comm->parent, split, comm->splitNumber);
    if (split.posted < comm->parent->size)
      return false;
    std::shared_ptr<Shared> shared = split.results[size_t(comm->parentRank)];
    comm->rank = split.ranks[size_t(comm->parentRank)];
    stateLock().unlock();
    join(comm, shared);
    stateLock().lock();
  }
  if (comm->shared->common)
    comm->shared->isReady = comm->shared->common->joined == comm->shared->size;
  if (!comm->shared->isReady)
    return false;
  comm->isJoining = false;
  return true;
}

ncclResult_t waitUntilJoined(ncclComm *comm) {
  static thread_local Waiter waiter;
  Held held;
  while (!comm->isFailed && !hasJoined(comm)) {
    Shared &until = comm->shared ? *comm->shared : *comm->parent;
    until.waiters.push_back(&waiter);
    waiter.sleep(isOfProcesses() ? 1 : -1);
  }
  return comm->isFailed ? ncclSystemError : ncclSuccess;
}

} // namespace emulator

using namespace emulator;

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  InFunction function("ncclGetUniqueId");
  Held held;
  memset(id, 0, sizeof(*id));
  snprintf(id->internal, sizeof(id->internal), "emulator %d %llu", int(getpid()),
           static_cast<unsigned long long>(world().ids++));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *result, int ranks, ncclUniqueId id, int rank, ncclConfig_t *given) {
  InFunction function("ncclCommInitRankConfig");
  ncclConfig_t config;
  if (!result || ranks < 1 || rank < 0 || rank >= ranks || !readConfig(given, config))
    return ncclInvalidArgument;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  ncclComm *comm = nullptr;
  std::shared_ptr<Shared> shared;
  {
    Held held;
    std::shared_ptr<Shared> &slot = world().byId[std::string(id.internal, sizeof(id.internal))];
    if (!slot)
      slot = makeShared(ranks, "world", std::make_shared<Job>());
    slot->id = std::string(id.internal, strnlen(id.internal, sizeof(id.internal)));
    if (slot->size != ranks)
      report("expected " + std::to_string(slot->size) + " ranks, as another member said, got " + std::to_string(ranks));
    shared = slot;
    comm = makeComm(rank, device, config);
    comm->jobRank = rank;
  }
  *result = comm;
  join(comm, shared);
  return startJoining(comm);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int ids, ncclUniqueId *id,
                                      ncclConfig_t *config) {
  needsVersion(22300, "ncclCommInitRankScalable");
  if (ids < 1 || ids > ranks)
    return ncclInvalidArgument;
  InFunction function("ncclCommInitRankScalable");
  std::set<std::string> different;
  for (int i = 0; i < ids; ++i)
    different.emplace(id[i].internal, sizeof(id[i].internal));
  if (different.size() < size_t(ids))
    report("two of the " + std::to_string(ids) + " identifiers are the same");
  // All members have to give the same ones in the same order: they meet under the sequence of them.
  {
    Held held;
    world().mostIdentifiers = std::max(world().mostIdentifiers, ids);
  }
  ncclUniqueId all = id[0];
  size_t hash = 0;
  for (int i = 0; i < ids; ++i)
    hash = hash * 31 + std::hash<std::string>()(std::string(id[i].internal, sizeof(id[i].internal)));
  size_t length = strnlen(all.internal, sizeof(all.internal));
  snprintf(all.internal + length, sizeof(all.internal) - length, " of %d: %zx", ids, hash);
  return ncclCommInitRankConfig(comm, ranks, all, rank, config);
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *result, ncclConfig_t *given) {
  Using use("ncclCommSplit", parent);
  ncclConfig_t config;
  if (!result || color < NCCL_SPLIT_NOCOLOR || !readConfig(given, config))
    return ncclInvalidArgument;
  if (!given)
    config.blocking = parent->isBlocking;
  ncclComm *comm = nullptr;
  {
    Held held;
    uint64_t number = parent->splits++;
    Shared::Split &split = parent->shared->splits[number];
    split.colorAndKey.resize(size_t(parent->shared->size));
    split.colorAndKey[size_t(parent->rank)] = {color, key};
    if (color >= 0) {
      comm = makeComm(0, parent->device, config);
      comm->jobRank = parent->jobRank;
      comm->parent = parent->shared;
      comm->parentRank = parent->rank;
      comm->splitNumber = number;
    }
    if (parent->shared->common) {
      CommonSplit *common = commonSplit(*parent->shared, number);
      common->colorAndKey[parent->rank][0] = color;
      common->colorAndKey[parent->rank][1] = key;
      ++common->posted;
    } else if (++split.posted == parent->shared->size)
      decideSplit(*parent->shared, split, number);
  }
  *result = comm;
  if (!comm)
    return ncclSuccess;
  return startJoining(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  InFunction function("ncclCommGetAsyncError");
  std::vector<std::pair<Call, cudaStream_t>> deferred;
  {
    Held held;
    if (!isLive(comm))
      report("the communicator is destroyed, or was never made");
    *result = ncclInProgress;
    if (!hasJoined(comm))
      return ncclSuccess;
    // As NCCL does, it waits until graphs with its calls are destroyed.
    dropForgotten(comm);
    // Ranks of one machine finalize together: seen with NCCL 2.32.3, whose bootstrapIntraNodeBarrier waits for a rank
    // that has died until the abort.
    const Shared &shared = *comm->shared;
    int finalized = shared.common ? shared.common->finalized.load() : shared.finalized;
    bool isBusy = comm->isFinalized && (!comm->tasks.empty() || finalized < shared.size);
    if (comm->polls > 0 || isBusy) {
      comm->polls -= comm->polls > 0;
      return ncclSuccess;
    }
    if (comm->isRevoked) {
      bool hangs = faultOf("hang-revoke", comm->jobRank, 0);
      *result = hangs || comm->isRevoking ? ncclInProgress : ncclSuccess;
      return ncclSuccess;
    }
    *result = comm->isFailed ? ncclRemoteError : ncclSuccess;
    deferred.swap(comm->deferred);
  }
  if (!deferred.empty())
    launch(comm, deferred);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  Using use("ncclCommCount", comm);
  *count = comm->shared->size;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  Using use("ncclCommCuDevice", comm);
  *device = comm->device;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  Using use("ncclCommUserRank", comm);
  *rank = comm->rank;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
#define EMULATOR_CASE(name, value)                                                                                     \
  case name:                                                                                                           \
    return #name;
  switch (result) { EMULATOR_NCCL_RESULTS(EMULATOR_CASE) }
#undef EMULATOR_CASE
  return "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm) {
  Held held;
  return comm && isLive(comm) ? comm->lastError.c_str() : "";
}

int emulatorCtasOf(const char *name, int *least, int *most, int *policy) {
  Held held;
  auto found = world().ctas.find(name);
  if (found == world().ctas.end())
    return 0;
  *least = found->second[0];
  *most = found->second[1];
  *policy = found->second[2];
  return 1;
}

int emulatorMostIdentifiers() {
  Held held;
  return world().mostIdentifiers;
}
}
