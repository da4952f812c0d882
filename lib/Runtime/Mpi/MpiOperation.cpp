//===- MpiOperation.cpp - One collective in flight over MPI -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The messages of every kind of collective.
//
//===------------------------------------------------------------------------------------------===//

#include "MpiOperation.h"
#include "Core/Support/Text.h"
#include "MpiJob.h"
#include <algorithm>
#include <cstddef>
#include <cstring>

using namespace commsched::runtime;

/// The largest single message, bytes. Larger data is sent in several messages, since MPI's counts are ints.
static constexpr int64_t chunkBytes = int64_t(1) << 30;
/// The largest all_reduce, bytes, in which every member sends its input to every other member.
static constexpr int64_t aloneBytes = 16 << 10;
/// Number of collectives of a group after which tags repeat. Each collective has four tags, below the limit of every
/// MPI; sends and receives have two MPI tags per tag, above them.
static constexpr int64_t tagNumbers = 4096;
/// Largest number of collectives of a group that have messages in flight; later ones wait for the oldest. This cannot
/// deadlock, since all ranks start the collectives of a group in the same order. Open MPI retries every message that
/// found no room in each call: 10,000 small all_reduces took 17 s on 4 ranks without a limit, 1.7 s with 1,024 and 0.4
/// s with 128 (2 cores beside other work).
static constexpr int64_t mostPosted = 128;
static_assert(mostPosted < tagNumbers, "collectives in flight must have different tags");
/// With a progress thread, a collective is posted beside older ones of its group only if all together are at most this
/// large. MPI shares the bandwidth among all that is posted, so that large ones would all end when the last one does,
/// and the first wait would take as long as all of them. Small ones hide each other's latency. Without a thread, nobody
/// would post the next one while the program computes.
static constexpr int64_t mostPostedBytes = 1 << 20;
static constexpr int pointToPointTag = 4 * tagNumbers;

MpiOperation::MpiOperation(MpiGroup &group, commrt_work *work, const std::string &text)
    : work(work), text(text), group(group), number(0) {
  if (work->delay_ns > 0)
    due = std::chrono::steady_clock::now() + std::chrono::nanoseconds(work->delay_ns);
}

MpiOperation::~MpiOperation() {
  if (scratch.data)
    group.job->scratch.giveBack(std::move(scratch));
}

void MpiOperation::takeScratch(int64_t bytes) {
  if (bytes == 0)
    return;
  scratch = group.job->scratch.take(bytes);
  if (!scratch.data)
    status = COMMRT_ERR_MEMORY;
}

void MpiOperation::enlist() {
  if (isPointToPoint())
    return;
  number = group.started++;
  group.finished.push_back(false);
}

bool MpiOperation::reducesAlone() const { return work->one_shot || blockBytes() * size() <= aloneBytes; }

void MpiOperation::post(const void *data, int64_t bytes, const Transfer &transfer, Round which) {
  int tag = isPointToPoint() ? pointToPointTag + static_cast<int>(work->tag) * 2 + which
                             : static_cast<int>(number % tagNumbers) * 4 + which;
  auto *at = static_cast<char *>(const_cast<void *>(data));
  do {
    int64_t now = std::min(bytes, chunkBytes);
    MPI_Request request;
    int code = transfer.isReceive
                   ? MPI_Irecv(at, static_cast<int>(now), MPI_BYTE, transfer.peer, tag, group.comm, &request)
                   : MPI_Isend(at, static_cast<int>(now), MPI_BYTE, transfer.peer, tag, group.comm, &request);
    if (code != MPI_SUCCESS) {
      status = COMMRT_ERR_BACKEND;
      return;
    }
    group.job->requests.add(request, this, transfers.size());
    transfers.push_back(transfer);
    transfers.back().bytes = now;
    transfers.back().isOpen = true;
    ++pending;
    at += now;
    bytes -= now;
  } while (bytes > 0);
}

void MpiOperation::send(int32_t member, const void *data, int64_t bytes, Round which) {
  post(data, bytes, {group.members[member], bytes, false, false, true}, which);
}

void MpiOperation::receive(int32_t member, void *data, int64_t bytes, Round which) {
  post(data, bytes, {group.members[member], bytes, true, false, true}, which);
}

void MpiOperation::postHeader() {
  sentHeader.fingerprint = work->fingerprint;
  size_t length = copyText(text, sentHeader.text, sizeof(sentHeader.text));
  auto sentBytes = static_cast<int64_t>(offsetof(MpiHeader, text) + length + 1);
  int32_t next = (group.index + 1) % size(), previous = (group.index + size() - 1) % size();
  bool sends = true, receives = true;
  if (isPointToPoint()) {
    next = previous = work->peer;
    sends = work->kind == COMMRT_SEND;
    receives = !sends;
  } else if (size() == 1) {
    return;
  }
  if (receives)
    post(&gotHeader, sizeof(gotHeader), {group.members[previous], 0, true, true, true}, headerRound);
  if (sends)
    post(&sentHeader, sentBytes, {group.members[next], 0, false, true, true}, headerRound);
}

/// Block p of `from` goes to member p, whose block arrives at `to` + p * toStep.
void MpiOperation::exchangeBlocks(const char *from, char *to, int64_t fromStep, int64_t toStep, int64_t bytes) {
  for (int32_t member = 0; member < size(); ++member)
    if (member != group.index) {
      receive(member, to + member * toStep, bytes, firstRound);
      send(member, from + member * fromStep, bytes, firstRound);
    }
}

static void copy(char *to, const char *from, int64_t bytes) {
  if (bytes > 0 && to != from)
    std::memmove(to, from, bytes);
}

void MpiOperation::postUneven() {
  int64_t element = commrt_dtype_size(work->dtype), sent = 0, received = 0;
  for (int32_t member = 0; member < size(); ++member) {
    int64_t sendBytes = work->send_counts[member] * element, receiveBytes = work->recv_counts[member] * element;
    if (member != group.index) {
      receive(member, out() + received, receiveBytes, firstRound);
      send(member, in() + sent, sendBytes, firstRound);
    } else {
      copy(out() + received, in() + sent, std::min(sendBytes, receiveBytes));
    }
    sent += sendBytes;
    received += receiveBytes;
  }
}

void MpiOperation::postFirstRound() {
  int64_t block = blockBytes();
  int32_t n = size(), me = group.index, root = work->root;
  switch (work->kind) {
  case COMMRT_ALL_GATHER:
    exchangeBlocks(in(), out(), 0, block, block);
    return copy(out() + me * block, in(), block);
  case COMMRT_REDUCE_SCATTER:
    takeScratch(n * block);
    if (status == COMMRT_OK)
      exchangeBlocks(in(), scratch.data.get(), block, block, block);
    return;
  case COMMRT_ALL_REDUCE:
    if (reducesAlone()) {
      takeScratch(n * block);
      if (status == COMMRT_OK)
        exchangeBlocks(in(), scratch.data.get(), 0, block, block);
      return;
    } else {
      int64_t element = commrt_dtype_size(work->dtype), own = (share(me + 1) - share(me)) * element;
      takeScratch(n * own);
      for (int32_t member = 0; member < n && status == COMMRT_OK; ++member)
        if (member != me) {
          receive(member, scratch.data.get() + member * own, own, firstRound);
          send(member, in() + share(member) * element, (share(member + 1) - share(member)) * element, firstRound);
        }
      return;
    }
  case COMMRT_ALL_TO_ALL:
    if (work->send_counts)
      return postUneven();
    exchangeBlocks(in(), out(), block, block, block);
    return copy(out() + me * block, in() + me * block, block);
  case COMMRT_BROADCAST:
    if (me != root)
      return receive(root, out(), block, firstRound);
    for (int32_t member = 0; member < n; ++member)
      if (member != me)
        send(member, in(), block, firstRound);
    return copy(out(), in(), block);
  case COMMRT_REDUCE:
  case COMMRT_GATHER: {
    if (me != root)
      return send(root, in(), block, firstRound);
    bool gathers = work->kind == COMMRT_GATHER;
    if (!gathers)
      takeScratch(n * block);
    for (int32_t member = 0; member < n && status == COMMRT_OK; ++member)
      if (member != me)
        receive(member, (gathers ? out() : scratch.data.get()) + member * block, block, firstRound);
    if (gathers)
      copy(out() + me * block, in(), block);
    return;
  }
  case COMMRT_SCATTER:
    if (me != root)
      return receive(root, out(), block, firstRound);
    for (int32_t member = 0; member < n; ++member)
      if (member != me)
        send(member, in() + member * block, block, firstRound);
    return copy(out(), in() + me * block, block);
  case COMMRT_PERMUTE:
    if (work->recv_from == me)
      copy(out(), in(), block);
    else if (work->recv_from >= 0)
      receive(work->recv_from, out(), block, firstRound);
    else if (block > 0)
      std::memset(out(), 0, block);
    if (work->send_to >= 0 && work->send_to != me)
      send(work->send_to, in(), block, firstRound);
    return;
  case COMMRT_SEND:
    return send(work->peer, in(), block, firstRound);
  case COMMRT_RECV:
    return receive(work->peer, out(), block, firstRound);
  case COMMRT_BARRIER:
    return exchangeBlocks(nullptr, nullptr, 0, 0, 0);
  default:
    status = COMMRT_ERR_UNSUPPORTED;
  }
}

/// Reduces, in member order, what arrived in scratch and this member's own input.
void MpiOperation::reduceInputs(int64_t ownOffset, int64_t step, int64_t count, void *result) {
  std::vector<const void *> ins(size());
  for (int32_t member = 0; member < size(); ++member)
    ins[member] = member == group.index ? in() + ownOffset : scratch.data.get() + member * step;
  if (count > 0)
    status = commrt_reduce_local(work->dtype, work->reduction, work->scale, size(), ins.data(), result, count);
}

bool MpiOperation::finishFirstRound() {
  int64_t block = blockBytes(), element = commrt_dtype_size(work->dtype);
  int32_t me = group.index;
  if (work->kind == COMMRT_REDUCE_SCATTER)
    reduceInputs(me * block, block, work->count, out());
  if (work->kind == COMMRT_REDUCE && me == work->root)
    reduceInputs(0, block, work->count, out());
  if (work->kind != COMMRT_ALL_REDUCE)
    return false;
  if (reducesAlone()) {
    reduceInputs(0, block, work->count, out());
    return false;
  }
  int64_t mine = share(me + 1) - share(me);
  // If input and output are one buffer, its other shares have been sent: the first round is over.
  char *reduced = out() + share(me) * element;
  reduceInputs(share(me) * element, mine * element, mine, reduced);
  for (int32_t member = 0; member < size(); ++member)
    if (member != me) {
      receive(member, out() + share(member) * element, (share(member + 1) - share(member)) * element, secondRound);
      send(member, reduced, mine * element, secondRound);
    }
  return true;
}

int64_t commsched::runtime::largestMpiTag(MPI_Comm comm) {
  int flag = 0;
  int *value = nullptr;
  constexpr int64_t guaranteed = 32767;
  if (MPI_Comm_get_attr(comm, MPI_TAG_UB, static_cast<void *>(&value), &flag) != MPI_SUCCESS || !flag || !value)
    return guaranteed;
  return *value;
}

bool MpiOperation::hasValidTag() const {
  return !isPointToPoint() || work->tag <= (group.largestTag - pointToPointTag - 1) / 2;
}

bool MpiOperation::mayStart() const {
  bool isDue = work->delay_ns <= 0 || std::chrono::steady_clock::now() >= due;
  if (!isDue || isPointToPoint() || number == group.firstOpen)
    return isDue;
  return number < group.firstOpen + mostPosted &&
         (!group.job->wantsThread || group.postedBytes + bytes() <= mostPostedBytes);
}

int32_t MpiOperation::start() {
  round = 1;
  if (!isPointToPoint())
    group.postedBytes += bytes();
  postHeader();
  postFirstRound();
  return status;
}

int32_t MpiOperation::endTransfer(size_t index, const MPI_Status &result, std::string &error) {
  Transfer &transfer = transfers[index];
  transfer.isOpen = false;
  --pending;
  std::string peer = "rank " + std::to_string(transfer.peer);
  int kind = MPI_SUCCESS;
  if (result.MPI_ERROR != MPI_SUCCESS)
    MPI_Error_class(result.MPI_ERROR, &kind);
  if (kind != MPI_SUCCESS && kind != MPI_ERR_TRUNCATE) {
    error = mpiErrorText(result.MPI_ERROR) + ", " + (transfer.isReceive ? "receiving from " : "sending to ") + peer +
            " in " + text;
    return COMMRT_ERR_BACKEND;
  }
  if (!transfer.isReceive)
    return COMMRT_OK;
  if (transfer.isHeader) {
    if (gotHeader.fingerprint == work->fingerprint)
      return COMMRT_OK;
    gotHeader.text[sizeof(gotHeader.text) - 1] = 0;
    error = peer + " is in " + gotHeader.text + ", but rank " + std::to_string(group.members[group.index]) + " is in " +
            text;
    return COMMRT_ERR_MISMATCH;
  }
  int count = 0;
  MPI_Get_count(&result, MPI_BYTE, &count);
  if (kind == MPI_SUCCESS && count == transfer.bytes)
    return COMMRT_OK;
  error = peer + " sent another size than the " + std::to_string(transfer.bytes) + " bytes that rank " +
          std::to_string(group.members[group.index]) + " expects in " + text;
  return COMMRT_ERR_MISMATCH;
}

int32_t MpiOperation::advance(bool &done) {
  transfers.clear();
  done = round == 2 || !finishFirstRound();
  round = 2;
  return status;
}

void MpiOperation::retire() {
  if (isPointToPoint()) {
    ++(work->kind == COMMRT_SEND ? group.sent : group.received)[work->peer];
    return;
  }
  group.postedBytes -= bytes();
  group.finished[number - group.firstOpen] = true;
  while (!group.finished.empty() && group.finished.front()) {
    group.finished.pop_front();
    ++group.firstOpen;
  }
}

std::string MpiOperation::missing() const {
  if (round == 0)
    return "older collectives of its group";
  std::vector<int32_t> peers;
  for (const Transfer &transfer : transfers)
    if (transfer.isOpen && transfer.isReceive)
      peers.push_back(transfer.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  std::string list;
  for (int32_t peer : peers)
    list += (list.empty() ? "rank " : ", rank ") + std::to_string(peer);
  return list.empty() ? "its messages to leave" : list;
}
