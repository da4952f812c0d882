//===- MpiLeaving.cpp - Ranks that leave a job over MPI ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A rank that leaves tells every other rank how much it has done. It has nothing in flight at that time. An operation
// that needs more from it than that can never complete. If the job has failed, the rank where the error began has told
// all others. What ranks say when they leave may arrive before that, and nobody concludes anything from it.
//
//===------------------------------------------------------------------------------------------===//

#include "MpiJob.h"
#include <algorithm>

using namespace commsched::runtime;

/// How long to wait before a message to a rank that has left counts as lost: it may have arrived without MPI knowing
/// here.
static constexpr auto sendGrace = std::chrono::seconds(1);

void MpiJob::sayLeaving() {
  lastWords.resize(ranks);
  for (int other = 0; other < ranks; ++other) {
    if (other == rank || neighbours->isDead(other))
      continue;
    std::vector<int64_t> &words = lastWords[other];
    words.assign(2 + 3 * groupsMade, 0);
    words[0] = status == COMMRT_OK ? combinations : MpiLeaving::failed;
    words[1] = groupsMade;
    for (const MpiGroup *group : groups) {
      auto place = std::find(group->members.begin(), group->members.end(), other) - group->members.begin();
      int64_t *counts = &words[2 + 3 * group->ordinal];
      counts[0] = group->started;
      if (place < static_cast<int64_t>(group->members.size())) {
        counts[1] = group->sent[place];
        counts[2] = group->received[place];
      }
    }
    MPI_Request request;
    if (MPI_Isend(words.data(), static_cast<int>(words.size()), MPI_INT64_T, other, mpiLeavingTag, control, &request) ==
        MPI_SUCCESS)
      outgoingRequests.push_back(request);
  }
}

void MpiJob::takeLeaving() {
  int found = 0;
  MPI_Status probed;
  while (MPI_Iprobe(MPI_ANY_SOURCE, mpiLeavingTag, control, &found, &probed) == MPI_SUCCESS && found) {
    MpiLeaving &from = leaving[probed.MPI_SOURCE];
    int count = 0;
    MPI_Get_count(&probed, MPI_INT64_T, &count);
    from.words.assign(std::max(count, 2), 0);
    if (MPI_Irecv(from.words.data(), count, MPI_INT64_T, probed.MPI_SOURCE, mpiLeavingTag, control, &from.request) !=
        MPI_SUCCESS)
      return;
    from.state = MpiLeaving::arriving;
  }
  for (MpiLeaving &from : leaving) {
    int flag = 0;
    if (from.state != MpiLeaving::arriving || MPI_Test(&from.request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || !flag)
      continue;
    from.state = MpiLeaving::known;
    ++numLeft;
    lastLeft = Clock::now();
  }
}

bool MpiJob::isLast() const {
  for (int other = 0; other < ranks; ++other)
    if (other != rank && leaving[other].state != MpiLeaving::known && !neighbours->isDead(other))
      return false;
  return true;
}

/// Whether the operation needs more messages from the rank at `place` of its group, which has left, and so can never
/// complete.
static bool needs(const MpiOperation &operation, const MpiLeaving &left, int32_t place, bool isSettled) {
  const MpiGroup &group = operation.group;
  if (group.ordinal >= left.groupsMade())
    return true;
  if (!operation.isPointToPoint())
    return operation.getNumber() >= left.ofGroup(group.ordinal, 0);
  if (operation.work->peer != place)
    return false;
  if (operation.work->kind == COMMRT_RECV)
    return group.received[place] >= left.ofGroup(group.ordinal, 1);
  return isSettled;
}

void MpiJob::checkLeaving() {
  if (numLeft == 0 || status != COMMRT_OK)
    return;
  bool isSettled = Clock::now() - lastLeft > sendGrace;
  for (auto &operation : operations) {
    const std::vector<int32_t> &members = operation->group.members;
    for (size_t place = 0; place < members.size(); ++place)
      if (const MpiLeaving &left = leaving[members[place]];
          left.isOrderly() && needs(*operation, left, static_cast<int32_t>(place), isSettled))
        return raise(COMMRT_ERR_PEER, "left, but rank " + std::to_string(rank) + " is in " + operation->text,
                     members[place]);
  }
  for (int other = 0; other < ranks; ++other) {
    const MpiLeaving &left = leaving[other];
    if (!left.isOrderly())
      continue;
    if (isCombining && left.combinations() <= combinations)
      return raise(COMMRT_ERR_PEER, "left before all ranks had compared schedules or ended the program", other);
    if (isMakingGroup && left.groupsMade() <= groupsMade)
      return raise(COMMRT_ERR_PEER, "left before all ranks had made their groups", other);
  }
}

//===- The end of a job -------------------------------------------------------------------------===//

static std::unique_ptr<MpiJob> &retired() {
  static auto *job = new std::unique_ptr<MpiJob>(); // never destroyed: it is needed while static objects are
  return *job;
}

void commsched::runtime::retire(std::unique_ptr<MpiJob> job) {
  if (retired())
    leakObject(retired()); // the other ranks stay in it
  retired() = std::move(job);
}

void commsched::runtime::freeRetired(std::chrono::nanoseconds time) {
  std::unique_ptr<MpiJob> job = std::move(retired());
  if (!job)
    return;
  auto &said = job->outgoingRequests;
  bool isFree = job->pollUntil(MpiJob::Clock::now() + time, [&] {
    job->takeLeaving();
    int flag = 0;
    return job->isLast() && job->numLeft == job->ranks - 1 &&
           MPI_Testall(static_cast<int>(said.size()), said.data(), &flag, MPI_STATUSES_IGNORE) == MPI_SUCCESS && flag;
  });
  if (!isFree)
    return leakObject(job);
  job->requests.abandon();
  // Messages about ranks that were late, but arrived in time.
  int found = 0;
  MPI_Status probed;
  while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, job->control, &found, &probed) == MPI_SUCCESS && found) {
    int count = 0;
    MPI_Get_count(&probed, MPI_BYTE, &count);
    std::vector<char> unread(count);
    if (MPI_Recv(unread.data(), count, MPI_BYTE, probed.MPI_SOURCE, probed.MPI_TAG, job->control, MPI_STATUS_IGNORE))
      break;
  }
  MPI_Comm_free(&job->control);
}
