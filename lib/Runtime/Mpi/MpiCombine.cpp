//===- MpiCombine.cpp - One value of all ranks over MPI ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Rank 0 gathers the values, combines them in rank order and sends the result to everyone. This takes two messages per
// rank and memory for one value per rank. Rank 0 knows which ranks are missing, and tells the others before they give
// up.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Support/Text.h"
#include "MpiJob.h"

using namespace commsched::runtime;
using Clock = MpiJob::Clock;

namespace {
/// The state of one combination. MPI keeps it as a whole if the combination ends before its messages do.
struct Combination {
  MpiJob &job;
  int64_t bytes;
  int tag = static_cast<int>(job.combinations % mpiCombineTags); ///< offset that is added to the control tags
  std::vector<char> values; ///< on rank 0 the values of all ranks; elsewhere this rank's value, then the result
  std::vector<MPI_Request> valueRequests, resultRequests; ///< on rank 0, indexed by rank
  std::string late;
  std::vector<MPI_Request> lateRequests;
  int32_t status = COMMRT_OK;
  std::string text;

  Combination(MpiJob &job, int64_t bytes) : job(job), bytes(bytes) {}
  bool isRoot() const { return job.rank == 0; }
  void post();
  void check(int code, const char *what);
  void checkSize(const MPI_Status &received);
  bool isGathered();
  bool isDone(commrt_combine_fn combine);
  std::string missing();
  void tellWhoIsLate();
  std::string whoIsLate();
};
} // namespace

void Combination::check(int code, const char *what) {
  if (code == MPI_SUCCESS || status != COMMRT_OK)
    return;
  int kind = MPI_SUCCESS;
  MPI_Error_class(code, &kind);
  status = kind == MPI_ERR_TRUNCATE ? COMMRT_ERR_MISMATCH : COMMRT_ERR_BACKEND;
  text = kind == MPI_ERR_TRUNCATE ? "some ranks compare schedules while others end the program"
                                  : std::string(what) + ": " + mpiErrorText(code);
}

void Combination::checkSize(const MPI_Status &received) {
  int count = 0;
  MPI_Get_count(&received, MPI_BYTE, &count);
  if (count != bytes)
    check(MPI_ERR_TRUNCATE, "");
}

void Combination::post() {
  int size = static_cast<int>(bytes);
  if (!isRoot()) {
    valueRequests.resize(1, MPI_REQUEST_NULL);
    resultRequests.resize(1, MPI_REQUEST_NULL);
    check(MPI_Irecv(values.data() + bytes, size, MPI_BYTE, 0, mpiResultTag + tag, job.control, &resultRequests[0]),
          "MPI_Irecv");
    check(MPI_Isend(values.data(), size, MPI_BYTE, 0, mpiValueTag + tag, job.control, &valueRequests[0]), "MPI_Isend");
    return;
  }
  valueRequests.resize(job.ranks, MPI_REQUEST_NULL);
  for (int other = 1; other < job.ranks; ++other)
    check(MPI_Irecv(values.data() + other * bytes, size, MPI_BYTE, other, mpiValueTag + tag, job.control,
                    &valueRequests[other]),
          "MPI_Irecv");
}

/// On rank 0: whether all values have arrived.
bool Combination::isGathered() {
  bool isOpen = false;
  for (MPI_Request &request : valueRequests) {
    if (request == MPI_REQUEST_NULL)
      continue;
    int flag = 0;
    MPI_Status received;
    if (int code = MPI_Test(&request, &flag, &received)) {
      request = MPI_REQUEST_NULL;
      check(code, "MPI_Test");
    } else if (flag) {
      checkSize(received);
    }
    isOpen |= !flag;
  }
  return !isOpen;
}

bool Combination::isDone(commrt_combine_fn combine) {
  int flag = 0;
  if (status != COMMRT_OK)
    return true;
  if (!isRoot()) {
    MPI_Status received;
    int sent = 0;
    check(MPI_Test(&valueRequests[0], &sent, MPI_STATUS_IGNORE), "MPI_Test");
    if (resultRequests[0] != MPI_REQUEST_NULL) {
      check(MPI_Test(&resultRequests[0], &flag, &received), "MPI_Test");
      if (flag && status == COMMRT_OK)
        checkSize(received);
    }
    return status != COMMRT_OK || (resultRequests[0] == MPI_REQUEST_NULL && sent);
  }
  if (resultRequests.empty()) {
    if (!isGathered())
      return status != COMMRT_OK;
    if (status != COMMRT_OK)
      return true;
    for (int other = 1; other < job.ranks; ++other)
      combine(values.data(), values.data() + other * bytes, bytes);
    resultRequests.resize(job.ranks, MPI_REQUEST_NULL);
    for (int other = 1; other < job.ranks; ++other)
      check(MPI_Isend(values.data(), static_cast<int>(bytes), MPI_BYTE, other, mpiResultTag + tag, job.control,
                      &resultRequests[other]),
            "MPI_Isend");
  }
  check(MPI_Testall(static_cast<int>(resultRequests.size()), resultRequests.data(), &flag, MPI_STATUSES_IGNORE),
        "MPI_Testall");
  return status != COMMRT_OK || flag;
}

/// On rank 0: "no word from rank 3 rank 5".
std::string Combination::missing() {
  constexpr int shown = 8;
  std::string list = "no word from";
  int count = 0;
  for (int other = 1; other < job.ranks; ++other)
    if (valueRequests[other] != MPI_REQUEST_NULL && ++count <= shown)
      list += " rank " + std::to_string(other);
  return count > shown ? list + " and " + std::to_string(count - shown) + " more" : list;
}

/// On rank 0: tells the waiting ranks which ranks are missing.
void Combination::tellWhoIsLate() {
  if (!late.empty() || !resultRequests.empty())
    return;
  late = missing();
  for (int other = 1; other < job.ranks; ++other)
    if (valueRequests[other] == MPI_REQUEST_NULL) {
      lateRequests.push_back(MPI_REQUEST_NULL);
      MPI_Isend(late.data(), static_cast<int>(late.size()), MPI_CHAR, other, mpiLateTag + tag, job.control,
                &lateRequests.back());
    }
}

/// Describes what is known at the deadline.
std::string Combination::whoIsLate() {
  if (isRoot())
    return missing();
  int found = 0, count = 0;
  MPI_Status probed;
  if (MPI_Iprobe(0, mpiLateTag + tag, job.control, &found, &probed) == MPI_SUCCESS && found) {
    MPI_Get_count(&probed, MPI_CHAR, &count);
    std::string list(count, ' ');
    if (MPI_Recv(list.data(), count, MPI_CHAR, 0, mpiLateTag + tag, job.control, MPI_STATUS_IGNORE) == MPI_SUCCESS)
      return list;
  }
  return "no word from rank 0, or from a rank that it waits for";
}

int32_t commsched::runtime::combineMpi(void *opaque, void *value, int64_t bytes, commrt_combine_fn combine,
                                       int64_t timeoutNs, char *message, size_t size) {
  auto *job = static_cast<MpiJob *>(opaque);
  auto combination = std::make_unique<Combination>(*job, bytes);
  combination->values.resize(bytes * (job->rank == 0 ? job->ranks : 2));
  std::memcpy(combination->values.data(), value, bytes);
  Clock::time_point begin = Clock::now(), deadline = begin + std::chrono::nanoseconds(timeoutNs);
  {
    std::lock_guard<std::recursive_mutex> lock(job->mutex);
    if (job->status != COMMRT_OK)
      return job->status;
    job->isCombining = true;
    combination->post();
  }
  bool isDone = false;
  job->pollUntil(deadline, [&] {
    isDone = combination->isDone(combine);
    if (!isDone && combination->isRoot() && Clock::now() - begin > std::chrono::nanoseconds(timeoutNs) / 2)
      combination->tellWhoIsLate();
    return isDone || job->status != COMMRT_OK;
  });
  std::lock_guard<std::recursive_mutex> lock(job->mutex);
  job->isCombining = false;
  if (isDone && combination->status == COMMRT_OK) {
    ++job->combinations;
    std::memcpy(value, combination->values.data() + (job->rank == 0 ? 0 : bytes), bytes);
    if (!combination->lateRequests.empty())
      leakObject(combination);
    return COMMRT_OK;
  }
  int32_t status = isDone ? combination->status : job->status != COMMRT_OK ? job->status.load() : COMMRT_ERR_TIMEOUT;
  copyText(isDone ? combination->text : combination->whoIsLate(), message, size);
  leakObject(combination);
  return status;
}
