//===- NcclCalls.cpp - Collectives, messages and groups of the emulated NCCL ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A call is checked and compared with the other members' at once, and issued at once, at the end of its group, or, on a
// communicator that is not blocking, by the poll that answers that it is done.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclComm.h"
#include <algorithm>
#include <climits>

namespace emulator {
const char *nameOf(Kind kind) {
  static const char *const names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclBroadcast",
                                      "ncclReduce",    "ncclAlltoAll",      "ncclGather",    "ncclScatter",
                                      "ncclSend",      "ncclRecv"};
  return names[int(kind)];
}

std::string textOf(const Call &call) {
  std::string text = nameOf(call.kind) + std::string("(count ") + std::to_string(call.count) + ", type " +
                     std::to_string(int(call.type));
  switch (call.kind) {
  case Kind::Reduce:
    text += ", root " + std::to_string(call.peer);
    [[fallthrough]];
  case Kind::AllReduce:
  case Kind::ReduceScatter:
    text += ", op " + std::to_string(int(call.reduction.op));
    break;
  case Kind::Broadcast:
  case Kind::Gather:
  case Kind::Scatter:
    text += ", root " + std::to_string(call.peer);
    break;
  default:
    break;
  }
  return text + ")";
}

/// The same in everything that ranks have in common; what a kind does not have is 0 on both sides.
static bool isSameCall(const Call &first, const Call &second) {
  return first.kind == second.kind && first.count == second.count && first.type == second.type &&
         first.peer == second.peer && first.reduction.op == second.reduction.op &&
         first.reduction.scale == second.reduction.scale;
}

void checkSame(const Shared &shared, const Call &first, int firstRank, const Call &second, int secondRank) {
  bool isMessage = first.kind == Kind::Recv;
  bool isSame =
      isMessage ? second.kind == Kind::Send && first.count == second.count && sizeOf(first.type) == sizeOf(second.type)
                : isSameCall(first, second);
  if (!isSame)
    report("mismatch on " + shared.name + ": rank " + std::to_string(firstRank) + " calls " + textOf(first) +
           ", rank " + std::to_string(secondRank) + " calls " + textOf(second));
}

Collective *logCall(ncclComm *comm, const Call &call) {
  if (call.kind == Kind::Send || call.kind == Kind::Recv || comm->shared->common)
    return nullptr;
  Shared &shared = *comm->shared;
  uint64_t place = comm->calls++ - shared.logged;
  if (place == shared.log.size())
    shared.log.push_back({call, comm->rank, 0, addCollective(shared, call)});
  Shared::Entry &entry = shared.log[place];
  checkSame(shared, call, comm->rank, entry.call, entry.rank);
  ++entry.callers;
  Collective *node = entry.node;
  while (!shared.log.empty() && shared.log.front().callers == shared.size) {
    shared.log.pop_front();
    ++shared.logged;
  }
  return node;
}

//===- Who is in which call --------------------------------------------------------------------===//

static int threadNumber() {
  static std::atomic<int> next{1};
  static thread_local int mine = next++;
  return mine;
}

Using::Using(const char *name, ncclComm *used) : function(name), comm(used) {
  Held held;
  if (!comm || !isLive(comm))
    report("the communicator is destroyed, or was never made");
  if (comm->inCall != 0 && comm->inCall != threadNumber())
    report("two threads are in one communicator");
  if (comm->isJoining && comm->isBlocking)
    hasJoined(comm);
  if (comm->isJoining || comm->polls > 0 || !comm->deferred.empty())
    report("the communicator is still in progress: ncclCommGetAsyncError has not yet given ncclSuccess");
  comm->inCall = threadNumber();
}

Using::~Using() {
  Held held;
  if (isLive(comm))
    comm->inCall = 0;
}

//===- Groups ----------------------------------------------------------------------------------===//

namespace {
struct Group {
  int depth = 0;
  std::vector<std::pair<ncclComm *, std::pair<Call, cudaStream_t>>> calls;
  std::vector<ncclComm *> joining;
  std::map<std::pair<std::shared_ptr<Job>, int>, std::vector<Collective *>> collectives; ///< by job and rank
};
} // namespace
static thread_local Group group;

/// Issues the calls, or leaves them to a later poll.
static ncclResult_t issueOrDefer(ncclComm *comm, std::vector<std::pair<Call, cudaStream_t>> calls) {
  if (!comm->isBlocking) {
    Held held;
    if (comm->isLate) {
      comm->polls = INT_MAX;
      comm->deferred = std::move(calls);
      return ncclInProgress;
    }
    if (int polls = randomPolls()) {
      comm->polls = polls - 1;
      comm->deferred = std::move(calls);
      return ncclInProgress;
    }
  }
  launch(comm, calls);
  return ncclSuccess;
}

ncclResult_t startJoining(ncclComm *comm) {
  if (!comm->isBlocking)
    return ncclInProgress;
  if (group.depth == 0)
    return waitUntilJoined(comm);
  group.joining.push_back(comm);
  return ncclSuccess;
}

/// Checks a call and issues it, or puts it into the group.
static ncclResult_t call(ncclComm *comm, const Call &given, cudaStream_t stream) {
  Using use(nameOf(given.kind), comm);
  if (comm->isFinalized)
    report("the communicator is finalized");
  bool isRooted = given.kind == Kind::Broadcast || given.kind == Kind::Reduce || given.kind == Kind::Gather ||
                  given.kind == Kind::Scatter || given.kind == Kind::Send || given.kind == Kind::Recv;
  if (isRooted && (given.peer < 0 || given.peer >= comm->shared->size))
    return ncclInvalidArgument;
  if (unsigned(given.type) > unsigned(ncclFloat8e5m2))
    return ncclInvalidArgument;
  {
    Held held;
    unsigned long long number = ++comm->shared->job->calls[comm->jobRank];
    if (faultOf("error", comm->jobRank, number)) {
      comm->lastError = "a fault was asked for";
      return ncclSystemError;
    }
    if (faultOf("remote", comm->jobRank, number))
      comm->isFailed = true;
    comm->isLate |= faultOf("late", comm->jobRank, number) != nullptr;
    comm->isLost |= faultOf("lose", comm->jobRank, number) != nullptr;
    if (comm->isFailed)
      return ncclRemoteError;
    Collective *node = logCall(comm, given);
    if (node && group.depth > 0)
      group.collectives[{comm->shared->job, comm->jobRank}].push_back(node);
    else if (node)
      noteOrder(comm->shared->job, comm->jobRank, {node});
  }
  bool isMessage = given.kind == Kind::Send || given.kind == Kind::Recv;
  if (given.count == 0 && !isMessage)
    return ncclSuccess;
  if (group.depth > 0) {
    group.calls.push_back({comm, {given, stream}});
    return ncclSuccess;
  }
  return issueOrDefer(comm, {{given, stream}});
}

/// The operation behind NCCL's number, or one of the user.
static bool readReduction(ncclComm *comm, ncclRedOp_t op, ncclDataType_t type, Reduction &reduction) {
  reduction.op = op;
  if (int(op) >= 0 && op < ncclNumOps)
    return true;
  auto found = comm->reductions.find(int(op));
  if (found == comm->reductions.end() || found->second.type != type)
    return false;
  reduction = found->second;
  return true;
}

static ncclResult_t reduceCall(Kind kind, const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               int root, ncclComm_t comm, cudaStream_t stream) {
  Reduction reduction;
  if (!comm || !readReduction(comm, op, type, reduction))
    return ncclInvalidArgument;
  return call(comm, {kind, in, out, count, type, reduction, root}, stream);
}
} // namespace emulator

using namespace emulator;

extern "C" {
ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  InFunction function("ncclGroupEnd");
  if (group.depth == 0)
    report("there is no ncclGroupStart");
  if (--group.depth > 0)
    return ncclSuccess;
  auto calls = std::move(group.calls);
  auto joining = std::move(group.joining);
  auto collectives = std::move(group.collectives);
  group = {};
  {
    Held held;
    for (const auto &[who, nodes] : collectives)
      noteOrder(who.first, who.second, nodes);
  }
  for (ncclComm *comm : joining)
    if (ncclResult_t result = waitUntilJoined(comm))
      return result;
  std::vector<ncclComm *> comms;
  for (const auto &entry : calls)
    if (std::find(comms.begin(), comms.end(), entry.first) == comms.end())
      comms.push_back(entry.first);
  ncclResult_t result = ncclSuccess;
  for (ncclComm *comm : comms) {
    Using use("ncclGroupEnd", comm);
    std::vector<std::pair<Call, cudaStream_t>> own;
    for (const auto &entry : calls)
      if (entry.first == comm)
        own.push_back(entry.second);
    if (issueOrDefer(comm, std::move(own)) == ncclInProgress)
      result = ncclInProgress;
  }
  return result;
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm, {Kind::AllGather, in, out, count, type, {}, 0}, stream);
}
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return reduceCall(Kind::ReduceScatter, in, out, count, type, op, 0, comm, stream);
}
ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return reduceCall(Kind::AllReduce, in, out, count, type, op, 0, comm, stream);
}
ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm, {Kind::Broadcast, in, out, count, type, {}, root}, stream);
}
ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return reduceCall(Kind::Reduce, in, out, count, type, op, root, comm, stream);
}
ncclResult_t ncclAlltoAll(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  needsVersion(22800, "ncclAlltoAll");
  return call(comm, {Kind::AllToAll, in, out, count, type, {}, 0}, stream);
}
ncclResult_t ncclGather(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  needsVersion(22800, "ncclGather");
  return call(comm, {Kind::Gather, in, out, count, type, {}, root}, stream);
}
ncclResult_t ncclScatter(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) {
  needsVersion(22800, "ncclScatter");
  return call(comm, {Kind::Scatter, in, out, count, type, {}, root}, stream);
}
ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, {Kind::Send, in, nullptr, count, type, {}, peer}, stream);
}
ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {Kind::Recv, nullptr, out, count, type, {}, peer}, stream);
}
}
