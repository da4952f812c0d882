//===- NcclComms.cpp - Communicators of groups ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// All ranks make their groups in one order, and so their communicators: the one of all ranks first, from an identifier
// that rank 0 gives out over the control plane, then a part of it for each group. Nothing here blocks inside NCCL:
// communicators are made in the background, and asked until they are ready or the deadline has passed.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Support/Compared.h"
#include "Core/Support/Text.h"
#include "NcclJob.h"
#include <algorithm>
#include <cstddef>
#include <cstring>

using namespace commsched::runtime;
using Clock = std::chrono::steady_clock;

namespace {
/// nccl.h's ncclConfig_t as of 2.28; the library takes as much of it as `size` says.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 22800;
  int blocking = INT_MIN;
  int cgaClusterSize = INT_MIN, minCtas = INT_MIN, maxCtas = INT_MIN;
  const char *netName = nullptr;
  int splitShare = INT_MIN, trafficClass = INT_MIN;
  const char *commName = nullptr;
  int collnetEnable = INT_MIN, ctaPolicy = INT_MIN, shrinkShare = INT_MIN, nvlsCtas = INT_MIN;
  int nChannelsPerNetPeer = INT_MIN, nvlinkCentricSched = INT_MIN;
  // As of 2.30.5; given only if one of them is set.
  int graphUsageMode = INT_MIN, numRmaCtx = INT_MIN, maxP2pPeers = INT_MIN, graphStreamOrdering = INT_MIN;
};

/// What all ranks have to have in common.
struct Settings {
  int version;
  int32_t identifiers;
  int64_t check;
  char groups[240]; ///< COMMRT_NCCL_GROUPS, as far as it fits
  uint64_t hash;    ///< of all of it
  int32_t overlap = 0;
};

/// What ranks give out: one identifier each, behind the result of making it. Both are zero on all ranks but the maker.
struct Invitation {
  int32_t failed;
  NcclUniqueId id;
};
} // namespace

static constexpr int ncclInProgress = 7;
static constexpr int noColor = -1;
/// Ranks ask for the state of a communicator this often without a pause, which is enough for a launch, and then at
/// this interval.
static constexpr int quickPolls = 64;
static constexpr std::chrono::microseconds pollInterval(50);

/// For communicators of a group, or of all ranks, which carries out nothing.
static NcclConfig makeConfig(const NcclJob &job, const char *name, const std::string *group = nullptr) {
  NcclConfig config;
  if (job.options.graphOverlap) {
    config.version = job.libraries.ncclVersion;
    config.graphUsageMode = 1; // one graph at a time, and nothing beside it
    config.graphStreamOrdering = 0;
  } else {
    config.size = offsetof(NcclConfig, graphUsageMode);
  }
  CtaOptions ctas = group ? job.options.ctasOf(*group) : CtaOptions();
  config.minCtas = ctas.least;
  config.maxCtas = ctas.most;
  config.ctaPolicy = ctas.policy;
  config.blocking = job.blocking;
  // Communicators that share resources run their kernels one after the other.
  config.splitShare = 0;
  config.commName = name;
  return config;
}

int32_t commsched::runtime::awaitComm(NcclPeer &peer, ncclComm *comm, std::string &error) {
  return awaitComm(peer, comm, Clock::now() + std::chrono::nanoseconds(peer.job->timeoutNs), error);
}

int32_t commsched::runtime::awaitComm(NcclPeer &peer, ncclComm *comm, Clock::time_point deadline, std::string &error) {
  for (int polls = 0;; ++polls) {
    int state = 0;
    int result = peer.job->nccl().commGetAsyncError(comm, &state);
    if (result == 0 && state == 0)
      return COMMRT_OK;
    if (result || state != ncclInProgress) {
      error = peer.ncclError("NCCL", result ? result : state, comm);
      return COMMRT_ERR_BACKEND;
    }
    if (int32_t failing = peer.failing)
      return failing;
    if (Clock::now() >= deadline) {
      error = "NCCL was in progress for " + std::to_string(peer.job->timeoutNs / 1'000'000) + " ms";
      return COMMRT_ERR_TIMEOUT;
    }
    if (polls >= quickPolls)
      std::this_thread::sleep_for(pollInterval);
  }
}

//===- The communicator of all ranks ---------------------------------------------------------===//

static bool isSameSetting(const Settings &a, const Settings &b) {
  return a.version == b.version && a.identifiers == b.identifiers && a.check == b.check && a.hash == b.hash &&
         a.overlap == b.overlap;
}

static void combineSettings(void *lower, const void *higher, int64_t) {
  static_cast<Compared<Settings> *>(lower)->add(*static_cast<const Compared<Settings> *>(higher), isSameSetting);
}

static void combineInvitations(void *lower, const void *higher, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i)
    static_cast<char *>(lower)[i] |= static_cast<const char *>(higher)[i];
}

/// What two ranks do not have in common.
static std::string describeDifference(const Compared<Settings> &all) {
  const Settings &a = all.first, &b = all.other;
  std::string first = "rank " + std::to_string(all.firstRank) + " has ";
  std::string other = ", rank " + std::to_string(all.otherRank) + " has ";
  if (a.version != b.version)
    return "all ranks need the same version of NCCL: " + first + ncclVersionText(a.version) + other +
           ncclVersionText(b.version);
  if (a.identifiers != b.identifiers)
    return "all ranks need the same COMMRT_NCCL_RANKS_OF_ONE_ID and COMMRT_NCCL_RANKS_PER_ID: " + first +
           std::to_string(a.identifiers) + " identifiers" + other + std::to_string(b.identifiers);
  if (a.check != b.check)
    return "all ranks need the same COMMRT_CHECK: " + first + std::to_string(a.check) + other + std::to_string(b.check);
  if (a.overlap != b.overlap)
    return "all ranks need the same COMMRT_NCCL_GRAPH_OVERLAP: " + first + std::to_string(a.overlap) + other +
           std::to_string(b.overlap);
  return "all ranks need the same COMMRT_NCCL_GROUPS: " + first + "'" + a.groups + "'" + other + "'" + b.groups + "'";
}

static int32_t combineRanks(NcclPeer &peer, void *value, size_t bytes, commrt_combine_fn combine, std::string &error) {
  NcclJob &job = *peer.job;
  char text[1024] = "";
  int32_t status = job.control.backend->combine(peer.control, value, static_cast<int64_t>(bytes), combine,
                                                job.timeoutNs, text, sizeof(text));
  if (status != COMMRT_OK)
    error = std::string("exchanging NCCL's identifier: ") + text;
  return status;
}

/// The identifiers, when all ranks have the same settings.
static int32_t exchangeIds(NcclPeer &peer, int32_t count, std::vector<NcclUniqueId> &ids, std::string &error) {
  NcclJob &job = *peer.job;
  Settings mine = {job.libraries.ncclVersion, count, job.options.checkEvery, "",
                   std::hash<std::string>()(job.options.groups)};
  mine.overlap = job.options.graphOverlap;
  copyText(job.options.groups, mine.groups, sizeof(mine.groups));
  Compared<Settings> settings(mine, peer.rank);
  if (int32_t status = combineRanks(peer, &settings, sizeof(settings), combineSettings, error))
    return status;
  if (settings.otherRank >= 0) {
    error = describeDifference(settings);
    return COMMRT_ERR_MISMATCH;
  }
  std::vector<Invitation> invitations(count);
  for (int32_t index = 0; index < count; ++index)
    if (makerOf(index, job.ranks, count) == peer.rank)
      invitations[index].failed = job.nccl().getUniqueId(&invitations[index].id);
  if (int32_t status = combineRanks(peer, invitations.data(), count * sizeof(Invitation), combineInvitations, error))
    return status;
  for (int32_t index = 0; index < count; ++index) {
    if (int32_t failed = invitations[index].failed) {
      error = "rank " + std::to_string(makerOf(index, job.ranks, count)) + ": " +
              peer.ncclError("ncclGetUniqueId", failed, nullptr);
      return COMMRT_ERR_BACKEND;
    }
    ids.push_back(invitations[index].id);
  }
  return COMMRT_OK;
}

static int32_t ensureWorld(NcclPeer &peer, std::string &error) {
  NcclJob &job = *peer.job;
  if (job.ranks == 1)
    return COMMRT_OK;
  {
    // An abort may forget it meanwhile.
    Lock issuing(peer.issuing);
    if (peer.world)
      return COMMRT_OK;
  }
  int32_t count = job.nccl().commInitRankScalable ? job.options.identifiers(job.ranks) : 1;
  std::vector<NcclUniqueId> ids;
  if (int32_t status = exchangeIds(peer, count, ids, error))
    return status;
  Lock issuing(peer.issuing);
  if (peer.isAborted)
    return peer.failing;
  NcclConfig config = makeConfig(job, "world");
  // One identifier is one process that all others connect to first.
  int result = count > 1
                   ? job.nccl().commInitRankScalable(&peer.world, job.ranks, peer.rank, count, ids.data(), &config)
                   : job.nccl().commInitRankConfig(&peer.world, job.ranks, ids[0], peer.rank, &config);
  if (result && result != ncclInProgress) {
    error = peer.ncclError(count > 1 ? "ncclCommInitRankScalable" : "ncclCommInitRankConfig", result, nullptr);
    peer.world = nullptr;
    return COMMRT_ERR_BACKEND;
  }
  int32_t status = awaitComm(peer, peer.world, error);
  if (status != COMMRT_OK && error.empty())
    error = "another rank failed while the communicators were made";
  return status;
}

//===- Groups --------------------------------------------------------------------------------===//

/// Ranks of one color make one communicator; the key orders them.
static int32_t split(NcclPeer &peer, int color, int key, const std::string &group, const char *name, ncclComm **comm,
                     std::string &error) {
  NcclJob &job = *peer.job;
  Lock issuing(peer.issuing);
  if (peer.isAborted)
    return peer.failing;
  NcclConfig config = makeConfig(job, name, &group);
  int result = job.nccl().commSplit(peer.world, color, key, comm, &config);
  if (result && result != ncclInProgress) {
    error = peer.ncclError("ncclCommSplit", result, peer.world);
    *comm = nullptr;
    return COMMRT_ERR_BACKEND;
  }
  int32_t status = awaitComm(peer, peer.world, error);
  if (status == COMMRT_OK && color != noColor)
    status = awaitComm(peer, *comm, error);
  if (status != COMMRT_OK && error.empty())
    error = "another rank failed while the communicators were made";
  return status;
}

static bool prepareLane(NcclGroup &group, NcclLane &lane, std::string &error) {
  lane.group = &group;
  lane.stream = makeStream(*group.peer, true, error);
  if (!lane.stream)
    return false;
  Lock lock(group.peer->mutex);
  group.peer->lanes.push_back(&lane);
  return true;
}

int32_t commsched::runtime::createGroup(NcclPeer &peer, const char *name, const int32_t *members, int32_t size,
                                        int32_t index, NcclGroup **group, std::string &error) {
  *group = nullptr;
  peer.enter();
  if (int32_t status = ensureWorld(peer, error))
    return status;
  auto owner = std::make_unique<NcclGroup>();
  NcclGroup *made = owner.get();
  {
    // From now on: an abort has to find communicators that are not ready.
    Lock issuing(peer.issuing);
    peer.groups.push_back(std::move(owner));
  }
  made->peer = &peer;
  made->name = name;
  made->index = index;
  if (index >= 0)
    made->members.assign(members, members + size);
  // Ranks without a communicator of their own take part: the split is one call of all ranks.
  int color = size > 1 && index >= 0 ? members[0] : noColor;
  if (peer.job->ranks > 1) {
    // A member that never sends cannot know that others do, so the second one is made here, too.
    std::string messages = made->name + ".messages";
    if (int32_t status = split(peer, color, index, made->name, name, &made->collectives.comm, error))
      return status;
    if (int32_t status = split(peer, color, index, made->name, messages.c_str(), &made->messages.comm, error))
      return status;
  }
  if (int32_t status = createShadowGroup(*made, members, size, error))
    return status;
  if (index < 0)
    return COMMRT_OK;
  if (!prepareLane(*made, made->collectives, error) || !prepareLane(*made, made->messages, error))
    return COMMRT_ERR_BACKEND;
  if (peer.job->matcher)
    made->meeting = peer.job->matcher->meetingOf(made->name, made->members);
  *group = made;
  return COMMRT_OK;
}

//===- Ending --------------------------------------------------------------------------------===//

template <typename Each> static void forEachComm(NcclPeer &peer, Each each) {
  for (auto &group : peer.groups)
    for (NcclLane *lane : {&group->messages, &group->collectives})
      if (lane->comm)
        each(lane->comm);
  if (peer.world)
    each(peer.world);
}

static void forgetComms(NcclPeer &peer) {
  for (auto &group : peer.groups)
    for (NcclLane *lane : {&group->messages, &group->collectives})
      lane->comm = nullptr;
  peer.world = nullptr;
}

/// NCCL finalizes a communicator on all ranks of a machine together. This rank hears no longer what becomes of the
/// others, so it waits for them only as long as they may take to end.
static constexpr std::chrono::seconds finalizeLimit(30);

bool commsched::runtime::finalizeComms(NcclPeer &peer) {
  const NcclApi &nccl = peer.job->nccl();
  Clock::time_point deadline =
      Clock::now() + std::min<Clock::duration>(finalizeLimit, std::chrono::nanoseconds(peer.job->timeoutNs));
  Lock issuing(peer.issuing);
  if (peer.isAborted)
    return true;
  bool isGood = true;
  endGraphs(peer);
  for (auto &[comm, window] : peer.windows)
    isGood &= nccl.commWindowDeregister(comm, window) == 0;
  peer.windows.clear();
  for (auto &group : peer.groups)
    for (NcclLane *lane : {&group->messages, &group->collectives})
      for (auto &[key, operation] : lane->scaled)
        nccl.redOpDestroy(operation, lane->comm);
  std::string error;
  forEachComm(peer, [&](ncclComm *comm) {
    int result = isGood ? nccl.commFinalize(comm) : 0;
    isGood = isGood && (result == 0 || result == ncclInProgress) && awaitComm(peer, comm, deadline, error) == COMMRT_OK;
  });
  if (!isGood)
    return false;
  Lock lock(peer.mutex);
  forEachComm(peer, [&](ncclComm *comm) { nccl.commDestroy(comm); });
  forgetComms(peer);
  peer.isAborted = true;
  return true;
}

/// Stops what is in flight on all communicators, where NCCL can, until the deadline.
static void revokeComms(NcclPeer &peer, Clock::time_point deadline) {
  constexpr std::chrono::milliseconds pause(1);
  const NcclApi &nccl = peer.job->nccl();
  if (!nccl.commRevoke)
    return;
  std::vector<ncclComm *> open;
  forEachComm(peer, [&](ncclComm *comm) {
    // One that is still being made can only be aborted.
    int state = 0;
    if (nccl.commGetAsyncError(comm, &state) != 0 || state == ncclInProgress)
      return;
    if (nccl.commRevoke(comm, 0) == ncclInProgress)
      open.push_back(comm);
  });
  auto isQuiet = [&](ncclComm *comm) {
    int state = 0;
    return nccl.commGetAsyncError(comm, &state) != 0 || state != ncclInProgress;
  };
  while (!open.empty() && Clock::now() < deadline) {
    open.erase(std::remove_if(open.begin(), open.end(), isQuiet), open.end());
    if (!open.empty())
      std::this_thread::sleep_for(pause);
  }
}

void commsched::runtime::abortComms(NcclPeer &peer) {
  // The shortest time that an abort has is twice that.
  constexpr std::chrono::seconds longestRevoke(1);
  peer.enter();
  Lock issuing(peer.issuing);
  if (peer.isAborted)
    return;
  peer.isAborted = true;
  endGraphs(peer);
  revokeComms(peer, Clock::now() + longestRevoke);
  forEachComm(peer, [&](ncclComm *comm) { peer.job->nccl().commAbort(comm); });
  Lock lock(peer.mutex);
  forgetComms(peer);
}
