//===- RuntimeContention.cpp - Collectives beside computations, through the runtime -----------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// On devices the two sides are two streams. On CPU backends the computations run on a thread beside the collectives'
// one, in a context of its own: a context belongs to one thread.
//
//===------------------------------------------------------------------------------------------===//

#include "BenchHandles.h"
#include "CommSched/Calibration/RuntimeBench.h"
#include <atomic>
#include <thread>

using namespace commsched;

/// One in so many kernels runs before those that are timed.
static constexpr int64_t kLeadShare = 8;

/// A job of one rank on threads of this process, and a bench over it.
struct RuntimeBench::Side {
  ~Side() {
    bench.reset();
    commrt_context_destroy(context);
    commrt_job_destroy(job);
  }

  commrt_job *job = nullptr;
  commrt_context *context = nullptr;
  std::unique_ptr<RuntimeBench> bench;
};

void RuntimeBench::SideDeleter::operator()(Side *side) const { delete side; }

llvm::Error RuntimeBench::prepare(const ContentionProbe &wanted) {
  if (isDevice) {
    // Both are prepared: the collective has buffers of its own.
    if (llvm::Error error = prepare(wanted.kernel))
      return error;
    return prepareCollective(wanted.collective, wanted.ctas);
  }
  if (!side) {
    std::unique_ptr<Side, SideDeleter> made(new Side);
    commrt_options options;
    commrt_options_init(&options);
    options.ranks = 1;
    options.backend = "threads";
    char message[1024];
    if (commrt_job_create(&options, &made->job, message, sizeof(message)) != COMMRT_OK)
      return llvm::createStringError(message);
    if (commrt_context_create(made->job, 0, &made->context) != COMMRT_OK)
      return llvm::createStringError("cannot create a context for computations");
    made->bench = std::make_unique<RuntimeBench>(made->context);
    side = std::move(made);
  }
  if (llvm::Error error = side->bench->prepare(wanted.kernel))
    return error;
  return prepare(wanted.collective);
}

llvm::Expected<BesideTime> RuntimeBench::runBeside(const ContentionPlan &plan) {
  if (llvm::Error error = meet())
    return std::move(error);
  return isDevice ? runBesideOnDevice(plan) : runBesideOnHost(plan);
}

/// The thread has begun when the first of its kernels has, and the collectives begin then.
llvm::Expected<BesideTime> RuntimeBench::runBesideOnHost(const ContentionPlan &plan) {
  std::atomic<bool> hasBegun{plan.kernels == 0};
  int32_t status = COMMRT_OK;
  Ns kernelsBegin = 0, kernelsEnd = 0;
  auto work = [&] {
    kernelsBegin = now();
    hasBegun = true;
    for (int64_t i = 0; i < plan.kernels && status == COMMRT_OK; ++i)
      status = side->bench->compute(i);
    kernelsEnd = now();
  };
  std::thread thread;
  if (plan.kernels > 0)
    thread = std::thread(work);
  while (!hasBegun)
    std::this_thread::yield();
  Ns begin = now();
  bool isMember = commrt_group_rank(collective.group) >= 0;
  llvm::Expected<ProbeTime> time = plan.collectives > 0 && isMember ? runOnHost(plan.collectives) : ProbeTime();
  Ns end = now();
  if (thread.joinable())
    thread.join();
  if (!time)
    return time.takeError();
  if (status != COMMRT_OK)
    return side->bench->lastError();
  if (!isMember)
    return BesideTime();
  if (plan.timesKernels)
    return BesideTime{(kernelsEnd - kernelsBegin) / std::max<int64_t>(1, plan.kernels), end - kernelsEnd};
  return BesideTime{(end - begin) / std::max<int64_t>(1, plan.collectives), kernelsEnd - end};
}

/// Both streams go on behind one gate. Kernels are issued first: issuing one makes progress, and the host would see how
/// far the collectives are. If kernels are timed, a few run before, so that collectives have begun when the timing
/// does. Times are read when all ranks are done, as a collective is as slow as its slowest member.
llvm::Expected<BesideTime> RuntimeBench::runBesideOnDevice(const ContentionPlan &plan) {
  bool isMember = commrt_group_rank(collective.group) >= 0;
  BenchHandles all(6, plan.collectives + 1);
  commrt_stream *lane = nullptr;
  if (isMember && commrt_group_stream(collective.group, 0, &lane) != COMMRT_OK)
    return lastError();
  commrt_token *&gateToken = all.tokens.back();
  if (isMember) {
    if (llvm::Error error = startGate(&gateToken))
      return std::move(error);
    if (commrt_wait(gateToken, lane) != COMMRT_OK || commrt_wait(gateToken, nullptr) != COMMRT_OK)
      return lastError();
  }
  auto record = [&](size_t index, commrt_stream *stream) {
    return commrt_event_record_timed(context, stream, &all.events[index]) == COMMRT_OK;
  };
  bool areBoth = plan.kernels > 0 && plan.collectives > 0;
  int64_t lead = plan.timesKernels && areBoth ? std::max<int64_t>(1, plan.kernels / kLeadShare) : 0;
  auto issueKernels = [&]() {
    bool good = true;
    for (int64_t i = 0; i < lead && good; ++i)
      good = compute(i) == COMMRT_OK;
    good = good && record(0, nullptr) && record(1, nullptr);
    for (int64_t i = 0; i < plan.kernels && good; ++i)
      good = compute(i) == COMMRT_OK;
    return good && record(2, nullptr);
  };
  auto issueCollectives = [&]() {
    if (!isMember)
      return true;
    bool good = record(3, lane) && record(4, lane);
    for (int64_t i = 0; i < plan.collectives && good; ++i)
      good = start(collective, i, &all.tokens[i]) == COMMRT_OK;
    return good && record(5, lane);
  };
  // A start waits for what was put on the stream of computations before it. Collectives start on a stream of their own,
  // so that they run beside the kernels.
  commrt_stream *starter = nullptr;
  if (commrt_stream_get(context, COMMRT_STREAM_COMPUTE, 1, &starter) != COMMRT_OK)
    return lastError();
  auto collectives = [&]() {
    bool good = commrt_set_stream(context, starter) == COMMRT_OK && issueCollectives();
    return commrt_set_stream(context, nullptr) == COMMRT_OK && good;
  };
  if (!issueKernels() || !collectives())
    return lastError();
  for (size_t index : {2, 5})
    if (all.events[index])
      if (llvm::Error error = await(all.events[index]))
        return std::move(error);
  if (llvm::Error error = meet())
    return std::move(error);
  if (!isMember)
    return BesideTime();
  size_t timed = plan.timesKernels ? 0 : 3, other = plan.timesKernels ? 5 : 2;
  llvm::Expected<Ns> total = elapsedBetween(all.events[timed], all.events[timed + 1], all.events[timed + 2]);
  if (!total)
    return total.takeError();
  Ns after = 0, before = 0;
  if (commrt_event_elapsed(all.events[timed + 2], all.events[other], &after) != COMMRT_OK ||
      commrt_event_elapsed(all.events[plan.timesKernels ? 4 : 1], all.events[timed + 1], &before) != COMMRT_OK)
    return lastError();
  return BesideTime{*total / (plan.timesKernels ? plan.kernels : plan.collectives), std::min(before, after)};
}

llvm::Error RuntimeBench::preparePair(const CollectiveProbe &first, Bytes second, PairSides sides) {
  RankGroups members = groupsOfShape(first.shape, ranks(), ranksPerNode), across = groupsAcross(members);
  std::string name = groupName(first.shape.ranks, first.shape.nodes, /*ctas=*/0);
  // Both groups are made in any case, so that all ranks make them in the same order.
  llvm::Expected<commrt_group *> own = groupNamed(name, members);
  if (!own)
    return own.takeError();
  llvm::Expected<commrt_group *> other =
      across.empty() ? groupNamed(name + "_again", members) : groupNamed(name + "_across", across);
  if (!other)
    return other.takeError();
  isComputation = false;
  isPair = sides == PairSides::Both;
  CollectiveProbe wanted = first;
  if (!across.empty())
    wanted.shape = shapeOfRanks(across.front(), ranksPerNode);
  wanted.bytes = second;
  if (sides != PairSides::First)
    if (llvm::Error error = prepareOn(*other, wanted, isPair ? beside : collective))
      return error;
  return sides == PairSides::Second ? llvm::Error::success() : prepareOn(*own, first, collective);
}

llvm::Expected<ProbeTime> RuntimeBench::runPairOnHost(int64_t operations) {
  ProbeTime time;
  for (int64_t i = 0; i < operations; ++i, ++turn) {
    BenchHandles all(0, 2);
    Ns begin = now();
    if (start(collective, turn, &all.tokens[0]) != COMMRT_OK || start(beside, turn, &all.tokens[1]) != COMMRT_OK)
      return lastError();
    Ns issued = now();
    for (commrt_token *token : all.tokens)
      if (commrt_wait_host(token, -1) != COMMRT_OK)
        return lastError();
    time.total += now() - begin;
    time.issue += (issued - begin) / 2;
  }
  return ProbeTime{time.total / operations, time.issue / operations};
}

/// Both streams go on behind one gate. The time is that until the last collective of both has ended, and it is read
/// when all members are done.
llvm::Expected<ProbeTime> RuntimeBench::runPairOnDevice(int64_t operations) {
  commrt_stream *lanes[2] = {};
  BenchHandles all(4, 2 * operations + 1);
  commrt_token *&gateToken = all.tokens.back();
  if (llvm::Error error = startGate(&gateToken))
    return std::move(error);
  const Prepared *both[] = {&collective, &beside};
  for (int which : {0, 1})
    if (commrt_group_stream(both[which]->group, 0, &lanes[which]) != COMMRT_OK ||
        commrt_wait(gateToken, lanes[which]) != COMMRT_OK)
      return lastError();
  for (size_t index : {0, 1})
    if (commrt_event_record_timed(context, lanes[0], &all.events[index]) != COMMRT_OK)
      return lastError();
  Ns issued = now();
  for (int64_t i = 0; i < operations; ++i)
    for (int which : {0, 1})
      if (start(*both[which], i, &all.tokens[2 * i + which]) != COMMRT_OK)
        return lastError();
  issued = now() - issued;
  for (int which : {0, 1})
    if (commrt_event_record_timed(context, lanes[which], &all.events[2 + which]) != COMMRT_OK)
      return lastError();
  for (size_t index : {2, 3})
    if (llvm::Error error = await(all.events[index]))
      return std::move(error);
  llvm::Expected<commrt_group *> takers = groupOfTakers();
  if (!takers)
    return takers.takeError();
  if (llvm::Error error = meet(*takers))
    return std::move(error);
  Ns last = 0;
  for (size_t index : {2, 3}) {
    llvm::Expected<Ns> total = elapsedBetween(all.events[0], all.events[1], all.events[index]);
    if (!total)
      return total.takeError();
    last = std::max(last, *total);
  }
  return ProbeTime{last / operations, issued / (2 * operations)};
}
