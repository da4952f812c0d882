//===- MpiRequests.cpp - The requests of all operations in flight -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One array of requests, which is tested window by window.
//
//===------------------------------------------------------------------------------------------===//

#include "MpiRequests.h"
#include "MpiOperation.h"
#include <algorithm>

using namespace commsched::runtime;

/// Number of the oldest requests, which every call tests because they complete first.
static constexpr size_t oldest = 512;
/// Number of the other requests that one call tests.
static constexpr size_t piece = 1024;

std::string commsched::runtime::mpiErrorText(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
    return "MPI error " + std::to_string(code);
  return std::string(text, length);
}

void MpiRequests::add(MPI_Request request, MpiOperation *operation, size_t transfer) {
  requests.push_back(request);
  owners.push_back({operation, transfer});
}

int MpiRequests::testRange(size_t begin, size_t count, std::vector<Done> &done) {
  if (count == 0)
    return MPI_SUCCESS;
  indices.resize(std::max(indices.size(), count));
  statuses.resize(std::max(statuses.size(), count));
  int completed = 0;
  int code =
      MPI_Testsome(static_cast<int>(count), requests.data() + begin, &completed, indices.data(), statuses.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
    return code;
  if (completed == MPI_UNDEFINED) // no request is active
    return MPI_SUCCESS;
  for (int i = 0; i < completed; ++i) {
    Owner &owner = owners[begin + indices[i]];
    if (code == MPI_SUCCESS)
      statuses[i].MPI_ERROR = MPI_SUCCESS;
    requests[begin + indices[i]] = MPI_REQUEST_NULL;
    done.push_back({owner.operation, owner.transfer, statuses[i]});
  }
  numNull += completed;
  return MPI_SUCCESS;
}

void MpiRequests::compact() {
  size_t kept = 0;
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i] != MPI_REQUEST_NULL) {
      requests[kept] = requests[i];
      owners[kept++] = owners[i];
    }
  requests.resize(kept);
  owners.resize(kept);
  numNull = 0;
  cursor = 0;
}

int MpiRequests::test(std::vector<Done> &done) {
  done.clear();
  // The cost of a compaction is proportional to the number of requests that it removes.
  if (numNull > requests.size() / 2)
    compact();
  size_t front = std::min(oldest, requests.size());
  if (int code = testRange(0, front, done))
    return code;
  if (cursor < front || cursor >= requests.size())
    cursor = front;
  size_t count = std::min(piece, requests.size() - cursor);
  int code = testRange(cursor, count, done);
  cursor += count;
  return code;
}

std::vector<MpiOperation *> MpiRequests::abandon() {
  std::vector<MpiOperation *> inUse;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == MPI_REQUEST_NULL)
      continue;
    auto [operation, transfer] = owners[i];
    int flag = 0;
    if (!operation || operation->isReceive(transfer))
      MPI_Cancel(&requests[i]);
    if (MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag)
      continue;
    inUse.push_back(operation);
    if (requests[i] != MPI_REQUEST_NULL)
      MPI_Request_free(&requests[i]);
  }
  requests.clear();
  owners.clear();
  numNull = cursor = 0;
  return inUse;
}
