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

#include "Core/Text.h"
#include "NcclJob.h"
#include <climits>
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
};

/// What rank 0 gives out, and what all ranks have to have in common.
struct Invitation {
  NcclUniqueId id;
  int32_t failed; ///< rank 0 could not make the identifier
  int lowest, highest;
  int32_t rankOfLowest, rankOfHighest;
};
} // namespace

static constexpr int ncclInProgress = 7;
static constexpr int noColor = -1;
/// Ranks ask for the state of a communicator this often without a pause, which is enough for a launch, and then at
/// this interval.
static constexpr int quickPolls = 64;
static constexpr std::chrono::microseconds pollInterval(50);

static NcclConfig makeConfig(const NcclJob &job, const char *name) {
  NcclConfig config;
  config.blocking = job.blocking;
  // Communicators that share resources run their kernels one after the other.
  config.splitShare = 0;
  config.commName = name;
  return config;
}

int32_t commsched::runtime::settleComm(NcclPeer &peer, ncclComm *comm, std::string &error) {
  Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(peer.job->timeoutNs);
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

static void combineInvitations(void *lower, const void *higher, int64_t) {
  auto &a = *static_cast<Invitation *>(lower);
  const auto &b = *static_cast<const Invitation *>(higher);
  if (b.lowest < a.lowest) {
    a.lowest = b.lowest;
    a.rankOfLowest = b.rankOfLowest;
  }
  if (b.highest > a.highest) {
    a.highest = b.highest;
    a.rankOfHighest = b.rankOfHighest;
  }
}

/// The identifier of rank 0, when all ranks have the same version of NCCL.
static int32_t exchangeId(NcclPeer &peer, NcclUniqueId &id, std::string &error) {
  NcclJob &job = *peer.job;
  int version = job.libraries.ncclVersion;
  Invitation invitation = {{}, 0, version, version, peer.rank, peer.rank};
  if (peer.rank == 0)
    invitation.failed = job.nccl().getUniqueId(&invitation.id);
  char text[1024] = "";
  if (int32_t status = job.control.backend->combine(peer.control, &invitation, sizeof(invitation), combineInvitations,
                                                    job.timeoutNs, text, sizeof(text))) {
    error = std::string("exchanging NCCL's identifier: ") + text;
    return status;
  }
  if (invitation.lowest != invitation.highest) {
    error = "all ranks need the same version of NCCL: rank " + std::to_string(invitation.rankOfLowest) + " has " +
            ncclVersionText(invitation.lowest) + ", rank " + std::to_string(invitation.rankOfHighest) + " has " +
            ncclVersionText(invitation.highest);
    return COMMRT_ERR_MISMATCH;
  }
  if (invitation.failed) {
    error = "rank 0: " + peer.ncclError("ncclGetUniqueId", invitation.failed, nullptr);
    return COMMRT_ERR_BACKEND;
  }
  id = invitation.id;
  return COMMRT_OK;
}

static int32_t ensureWorld(NcclPeer &peer, std::string &error) {
  NcclJob &job = *peer.job;
  if (peer.world || job.ranks == 1)
    return COMMRT_OK;
  NcclUniqueId id;
  if (int32_t status = exchangeId(peer, id, error))
    return status;
  std::lock_guard<std::timed_mutex> issuing(peer.issuing);
  if (peer.isAborted)
    return peer.failing;
  NcclConfig config = makeConfig(job, "world");
  int result = job.nccl().commInitRankConfig(&peer.world, job.ranks, id, peer.rank, &config);
  if (result && result != ncclInProgress) {
    error = peer.ncclError("ncclCommInitRankConfig", result, nullptr);
    peer.world = nullptr;
    return COMMRT_ERR_BACKEND;
  }
  int32_t status = settleComm(peer, peer.world, error);
  if (status != COMMRT_OK && error.empty())
    error = "another rank failed while the communicators were made";
  return status;
}

//===- Groups --------------------------------------------------------------------------------===//

/// Ranks of one color make one communicator; the key orders them.
static int32_t split(NcclPeer &peer, int color, int key, const char *name, ncclComm **comm, std::string &error) {
  NcclJob &job = *peer.job;
  std::lock_guard<std::timed_mutex> issuing(peer.issuing);
  if (peer.isAborted)
    return peer.failing;
  NcclConfig config = makeConfig(job, name);
  int result = job.nccl().commSplit(peer.world, color, key, comm, &config);
  if (result && result != ncclInProgress) {
    error = peer.ncclError("ncclCommSplit", result, peer.world);
    *comm = nullptr;
    return COMMRT_ERR_BACKEND;
  }
  int32_t status = settleComm(peer, peer.world, error);
  if (status == COMMRT_OK && color != noColor)
    status = settleComm(peer, *comm, error);
  if (status != COMMRT_OK && error.empty())
    error = "another rank failed while the communicators were made";
  return status;
}

static bool prepareLane(NcclGroup &group, NcclLane &lane, std::string &error) {
  lane.group = &group;
  lane.stream = makeStream(*group.peer, true, error);
  if (!lane.stream)
    return false;
  std::lock_guard<std::mutex> lock(group.peer->mutex);
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
    std::lock_guard<std::timed_mutex> issuing(peer.issuing);
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
    if (int32_t status = split(peer, color, index, name, &made->collectives.comm, error))
      return status;
    if (int32_t status = split(peer, color, index, messages.c_str(), &made->messages.comm, error))
      return status;
  }
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

bool commsched::runtime::finalizeComms(NcclPeer &peer) {
  const NcclApi &nccl = peer.job->nccl();
  std::lock_guard<std::timed_mutex> issuing(peer.issuing);
  if (peer.isAborted)
    return true;
  bool isGood = true;
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
    isGood = isGood && (result == 0 || result == ncclInProgress) && settleComm(peer, comm, error) == COMMRT_OK;
  });
  if (!isGood)
    return false;
  std::lock_guard<std::mutex> lock(peer.mutex);
  forEachComm(peer, [&](ncclComm *comm) { nccl.commDestroy(comm); });
  forgetComms(peer);
  peer.isAborted = true;
  return true;
}

void commsched::runtime::abortComms(NcclPeer &peer) {
  peer.enter();
  std::lock_guard<std::timed_mutex> issuing(peer.issuing);
  if (peer.isAborted)
    return;
  peer.isAborted = true;
  forEachComm(peer, [&](ncclComm *comm) { peer.job->nccl().commAbort(comm); });
  std::lock_guard<std::mutex> lock(peer.mutex);
  forgetComms(peer);
}
