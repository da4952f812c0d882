//===- Collectives.cpp - Starts ---------------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Checks the arguments of a start, resolves `outer` by staging, applies injected faults, and hands a dense work to the
// backend.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include "Core/Support/Reduce.h"
#include "Core/Trace/Ranges.h"
#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <thread>
#include <utility>

using namespace commsched::runtime;

namespace {
/// One start on its way: arguments first, then the checks, then the backend.
struct Start {
  commrt_group *group;
  commrt_context *context;
  std::unique_ptr<Work> work = std::make_unique<Work>();
  std::string error;
  /// The caller's buffers where they hold one block per member: [outer][members][count / outer].
  int64_t inOuter = 1, outOuter = 1;
  /// Uneven: elements of a row that go to, and come from, each member; there are `inOuter` rows.
  std::vector<int64_t> sendRow, recvRow;

  Start(commrt_group *group, int32_t kind, const void *in, void *out, int64_t count, int32_t dtype, int64_t site)
      : group(group), context(group->context) {
    commrt_work &base = work->base;
    base.struct_size = sizeof(commrt_work);
    base.kind = kind;
    base.dtype = dtype;
    base.in = in;
    base.out = out;
    base.count = count;
    base.root = base.peer = base.send_to = base.recv_from = -1;
    base.in_outer = base.out_outer = 1;
    base.stream = context->stream->handle;
    base.scale = 1.0;
    base.site = site;
    base.group = group->name.c_str();
    base.owner = work.get();
  }

  int32_t members() const { return static_cast<int32_t>(group->members.size()); }
  void require(bool condition, const char *text) {
    if (!condition && error.empty())
      error = text;
  }
  void setReduction(int32_t reduction, double scale) {
    work->base.reduction = reduction;
    work->base.scale = reduction == COMMRT_SCALED_SUM ? scale : 1.0;
    require(isReducible(work->base.dtype, reduction), "the reduction is not defined for the element type");
  }
  void setRoot(int32_t root) {
    work->base.root = root;
    require(group->index < 0 || (root >= 0 && root < members()), "the root is not a member");
  }
  void setPeer(int32_t peer, int64_t tag) {
    work->base.peer = peer;
    work->base.tag = tag;
    require(group->index < 0 || (peer >= 0 && peer < members()), "the peer is not a member");
    require(tag >= 0, "the tag is negative");
  }
  void setSplits(const int64_t *sendCounts, const int64_t *recvCounts, int64_t outer, int64_t inner);

  void checkSizes();
  void checkApart();
  void setSite();
  void setFingerprint();
  bool stage();
  bool stageUneven();
  FaultKind faultOfThisStart();
  void alterSize();
  int32_t injectFault(FaultKind fault);
  int32_t submit(Work *raw);
  int32_t submitHeldBack();
  int32_t run(commrt_token **token);
};
} // namespace

void Start::checkSizes() {
  commrt_work &base = work->base;
  int64_t size = commrt_dtype_size(base.dtype);
  require(size > 0, "unknown element type");
  require(base.count >= 0 && inOuter >= 0 && outOuter >= 0, "negative size");
  if (!error.empty() || base.count == 0)
    return;
  require(inOuter > 0 && base.count % inOuter == 0 && outOuter > 0 && base.count % outOuter == 0,
          "the block does not divide into its rows");
  require(base.count <= INT64_MAX / size / std::max<int64_t>(1, members()), "the size overflows");
}

/// What others read must not be written meanwhile.
void Start::checkApart() {
  commrt_work &base = work->base;
  checkSizes();
  if (!error.empty() || group->index < 0)
    return;
  auto in = reinterpret_cast<uintptr_t>(base.in), out = reinterpret_cast<uintptr_t>(base.out);
  uintptr_t bytes = static_cast<uintptr_t>(base.count * commrt_dtype_size(base.dtype));
  require(in + bytes <= out || out + bytes <= in, "the output overlaps the input, which the other members read");
}

void Start::setSite() {
  commrt_work &base = work->base;
  if (base.site < 0 || base.site >= context->numSites)
    return;
  base.location = context->sites[base.site].location;
  base.cost_ns = context->sites[base.site].cost_ns;
  require(context->sites[base.site].kind == base.kind, "the program's site is of another kind");
}

void Start::setFingerprint() {
  commrt_work &base = work->base;
  bool pointToPoint = base.kind == COMMRT_SEND || base.kind == COMMRT_RECV;
  uint64_t scale;
  std::memcpy(&scale, &base.scale, sizeof(scale));
  uint64_t hash = mix(0, pointToPoint ? COMMRT_SEND : base.kind);
  hash = mix(hash, base.dtype);
  hash = mix(hash, base.count);
  hash = mix(mix(hash, base.reduction), scale);
  hash = mix(hash, base.root);
  // Two equal collectives in another order are another schedule. The sides of a message have sites of their own.
  hash = mix(mix(hash, pointToPoint ? -1 : base.site), base.send_counts != nullptr);
  hash = base.one_shot ? mix(hash, base.one_shot) : hash;
  // The pairs of a permute; uneven splits differ by rank, and the backend checks them pairwise.
  if (base.kind == COMMRT_PERMUTE)
    for (int64_t value : work->counts)
      hash = mix(hash, value);
  base.fingerprint = hash ^ static_cast<uint64_t>(base.injected);
}

/// Copies [outer][blocks][inner] to [blocks][outer][inner].
static void pack(const char *from, char *to, int64_t outer, int64_t blocks, int64_t inner) {
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t row = 0; row < outer; ++row, to += inner)
      std::memcpy(to, from + (row * blocks + block) * inner, inner);
}

/// The counts as elements of the dense form, where each member's rows are one block.
void Start::setSplits(const int64_t *sendCounts, const int64_t *recvCounts, int64_t outer, int64_t inner) {
  constexpr int64_t mostElements = INT64_MAX / 16;
  int64_t n = members(), room = mostElements, rowRoom = mostElements, row = 0;
  if (n > 0 && (!sendCounts || !recvCounts))
    return require(false, "the counts are NULL");
  require(outer >= 0 && inner >= 0 && !__builtin_mul_overflow(outer, inner, &row), "negative size");
  if (!error.empty())
    return;
  inOuter = outer;
  auto add = [&](const int64_t *counts, std::vector<int64_t> &rows) {
    for (int64_t i = 0; i < n && error.empty(); ++i) {
      // The row by itself as well: there may be no rows.
      int64_t elements = 0, inRow = 0;
      require(counts[i] >= 0 && !__builtin_mul_overflow(counts[i], row, &elements) && elements < room &&
                  !__builtin_mul_overflow(counts[i], inner, &inRow) && inRow < rowRoom,
              "a count is negative or too large");
      room -= elements;
      rowRoom -= inRow;
      work->counts.push_back(elements);
      rows.push_back(inRow);
    }
  };
  add(sendCounts, sendRow);
  add(recvCounts, recvRow);
  if (!error.empty())
    return;
  work->base.send_counts = work->counts.data();
  work->base.recv_counts = work->counts.data() + n;
}

/// Brings the rows of each member together; also where the input is overwritten. False without memory.
bool Start::stageUneven() {
  commrt_work &base = work->base;
  int64_t n = members(), size = commrt_dtype_size(base.dtype);
  int64_t sendRowBytes = std::accumulate(sendRow.begin(), sendRow.end(), int64_t(0)) * size;
  int64_t recvRowBytes = std::accumulate(recvRow.begin(), recvRow.end(), int64_t(0)) * size;
  bool isInPlace = base.in == base.out;
  if ((inOuter > 1 || isInPlace) && sendRowBytes > 0) {
    work->stagedIn.reset(new (std::nothrow) char[inOuter * sendRowBytes]);
    if (!work->stagedIn)
      return false;
    char *to = work->stagedIn.get();
    const char *from = static_cast<const char *>(base.in);
    for (int64_t member = 0; member < n; from += sendRow[member++] * size)
      for (int64_t row = 0; row < inOuter; ++row, to += sendRow[member] * size)
        std::memcpy(to, from + row * sendRowBytes, sendRow[member] * size);
    base.in = work->stagedIn.get();
  }
  if (inOuter <= 1 || recvRowBytes == 0)
    return true;
  work->stagedOut.reset(new (std::nothrow) char[inOuter * recvRowBytes]);
  if (!work->stagedOut)
    return false;
  work->userOut = static_cast<char *>(base.out);
  work->outOuter = inOuter;
  for (int64_t elements : recvRow)
    work->rowBytes.push_back(elements * size);
  holdBuffer(context, *work, work->userOut);
  base.out = work->stagedOut.get();
  return true;
}

/// Makes the work dense and free of overlaps that backends need not handle. False without memory.
bool Start::stage() {
  commrt_work &base = work->base;
  if (context->job->device) {
    // The host cannot touch the buffers.
    base.in_outer = std::max<int64_t>(1, inOuter);
    base.out_outer = std::max<int64_t>(1, base.send_counts ? inOuter : outOuter);
    return true;
  }
  if (base.send_counts)
    return stageUneven();
  int64_t block = base.count * commrt_dtype_size(base.dtype), n = members();
  if (block == 0 || n == 0)
    return true;
  bool hasIn = base.kind != COMMRT_SCATTER || base.root == group->index;
  bool hasOut = base.kind != COMMRT_GATHER || base.root == group->index;
  bool isAllToAll = base.kind == COMMRT_ALL_TO_ALL;
  bool overlaps = (isAllToAll || base.kind == COMMRT_PERMUTE) && base.in == base.out;
  if (hasIn && (inOuter > 1 || overlaps)) {
    int64_t blocks = inOuter > 1 || isAllToAll ? n : 1;
    work->stagedIn.reset(new (std::nothrow) char[blocks * block]);
    if (!work->stagedIn)
      return false;
    pack(static_cast<const char *>(base.in), work->stagedIn.get(), inOuter, blocks, block / inOuter);
    base.in = work->stagedIn.get();
  }
  if (hasOut && outOuter > 1) {
    work->stagedOut.reset(new (std::nothrow) char[n * block]);
    if (!work->stagedOut)
      return false;
    work->userOut = static_cast<char *>(base.out);
    work->outOuter = outOuter;
    work->rowBytes.assign(n, block / outOuter);
    holdBuffer(context, *work, work->userOut);
    base.out = work->stagedOut.get();
  }
  return true;
}

/// The fault that hits this start, if any.
FaultKind Start::faultOfThisStart() {
  if (context->isAligning)
    return FaultKind::none;
  int64_t index = context->started++;
  const Fault &fault = context->job->fault;
  bool hits = fault.hits(context->rank, context->job->ranks) && fault.start == index;
  return hits && fault.kind != FaultKind::signature ? fault.kind : FaultKind::none;
}

/// One element less, where the data is dense; otherwise only the fingerprint differs.
void Start::alterSize() {
  commrt_work &base = work->base;
  base.injected = 1;
  if (base.count > 0 && inOuter == 1 && outOuter == 1 && !base.send_counts)
    --base.count;
}

/// Carries out the faults that change the start or end it.
int32_t Start::injectFault(FaultKind fault) {
  if (fault == FaultKind::none) {
    setFingerprint();
    return COMMRT_OK;
  }
  std::string what = "at start " + std::to_string(context->started - 1) + ", " + describeWork(work->base);
  int64_t timeoutNs = context->job->timeoutNs;
  switch (fault) {
  case FaultKind::error:
    return fail(context, COMMRT_ERR_INJECTED, "injected error " + what);
  case FaultKind::die:
    return injectExit(context, "injected death " + what);
  case FaultKind::hang: {
    // It only notices that the others have given up, or its own deadline.
    Clock::time_point deadline = Clock::now() + 2 * std::chrono::nanoseconds(timeoutNs);
    while (context->status == COMMRT_OK && Clock::now() < deadline) {
      commrt_progress(context);
      std::unique_lock<std::mutex> lock(context->mutex);
      context->changed.wait_for(lock, std::chrono::milliseconds(5), [&] { return context->status != COMMRT_OK; });
    }
    return fail(context, COMMRT_ERR_INJECTED, "injected hang " + what);
  }
  case FaultKind::stall:
    std::this_thread::sleep_for(2 * std::chrono::nanoseconds(timeoutNs));
    return fail(context, COMMRT_ERR_INJECTED, "injected stall " + what);
  case FaultKind::mismatch:
    work->base.injected = 1;
    break;
  case FaultKind::size:
    alterSize();
    break;
  case FaultKind::delay:
    work->base.delay_ns = context->job->fault.ms * 1'000'000;
    break;
  default:
    break;
  }
  setFingerprint();
  return COMMRT_OK;
}

/// Hands the work over. It is owned by the backend, or has been finished, afterwards.
int32_t Start::submit(Work *raw) {
  if (!group->state) {
    int32_t status = context->job->device ? notePassed(context, *raw) : COMMRT_OK;
    finishWork(raw, status);
    return status;
  }
  if (int32_t status = context->job->backend->submit(group->state, &raw->base)) {
    std::string text = describeWork(raw->base);
    finishWork(raw, status);
    return fail(context, status, "cannot start " + text);
  }
  return COMMRT_OK;
}

/// The start that a fault put after this one.
int32_t Start::submitHeldBack() {
  Work *raw;
  {
    Lock lock(context->mutex);
    raw = std::exchange(context->heldBack, nullptr); // null also when another rank's failure has finished it
    group = context->heldBackGroup;
    auto &dropped = context->dropped;
    dropped.erase(std::remove(dropped.begin(), dropped.end(), raw), dropped.end());
  }
  return raw ? submit(raw) : latched(context);
}

int32_t Start::run(commrt_token **tokenOut) {
  if (tokenOut)
    *tokenOut = nullptr;
  if (int32_t status = latched(context))
    return status;
  require(tokenOut || context->coalescing, "the token is NULL");
  checkSizes();
  setSite();
  if (!error.empty())
    return fail(context, COMMRT_ERR_INVALID, error + ": " + describeWork(work->base));
  Range range([&] { return describeWork(work->base); });
  void *output = work->base.out;
  FaultKind fault = faultOfThisStart();
  if (int32_t status = injectFault(fault))
    return status;
  bool isHeldBack = fault == FaultKind::drop || fault == FaultKind::order;
  if (!stage())
    return fail(context, COMMRT_ERR_MEMORY, "no memory for staging: " + describeWork(work->base));

  commrt_work &base = work->base;
  holdBuffer(context, *work, base.in);
  holdBuffer(context, *work, base.out);
  commrt_token *token = context->coalescing;
  if (!token && tokenOut) {
    token = makeToken(context);
    *tokenOut = token;
  }
  work->token = token;
  if (context->job->trace)
    work->beginNs = contextNs(context);
  base.issue_ns = context->virtualNs;
  if (tracesDevice(context))
    traceStart(context, *work);
  Work *raw = work.release();
  bool isLost = false;
  {
    Lock lock(context->mutex);
    ++token->pending;
    token->bytes += base.count * commrt_dtype_size(base.dtype) * members();
    ++context->inFlight;
    token->outputs.push_back(output);
    if (context->job->device)
      token->works.push_back(raw);
    if (token->site < 0) {
      token->site = base.site;
      token->group = base.group;
    }
    // After an error nobody would finish it.
    isLost = isHeldBack && context->status != COMMRT_OK;
    if (isHeldBack && !isLost)
      context->dropped.push_back(raw);
    if (fault == FaultKind::order && !isLost) {
      context->heldBack = raw;
      context->heldBackGroup = group;
    }
  }
  if (!context->coalescing)
    noteIssued(context->stream, token);
  if (isLost)
    finishWork(raw, context->status);
  if (isHeldBack)
    return COMMRT_OK;
  int32_t status = submit(raw);
  return status == COMMRT_OK && context->job->fault.kind == FaultKind::order ? submitHeldBack() : status;
}

//===- The C functions -----------------------------------------------------------------------===//

/// Without a group there is no context that could keep the error.
static int32_t refuseNull(commrt_token **token) {
  if (token)
    *token = nullptr;
  return COMMRT_ERR_INVALID;
}

/// outer * count, or a negative number that the checks refuse.
static int64_t blockOf(int64_t outer, int64_t count) {
  int64_t block;
  if (outer < 0 || count < 0 || __builtin_mul_overflow(outer, count, &block))
    return -1;
  return block;
}

int32_t commrt_all_gather_start(commrt_group *group, const void *in, void *out, int64_t outer, int64_t count,
                                int32_t dtype, int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_ALL_GATHER, in, out, blockOf(outer, count), dtype, site);
  start.outOuter = outer == 0 ? 1 : outer;
  return start.run(token);
}

int32_t commrt_reduce_scatter_start(commrt_group *group, const void *in, void *out, int64_t outer, int64_t count,
                                    int32_t dtype, int32_t reduction, double scale, int64_t site,
                                    commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_REDUCE_SCATTER, in, out, blockOf(outer, count), dtype, site);
  start.inOuter = outer == 0 ? 1 : outer;
  start.setReduction(reduction, scale);
  return start.run(token);
}

int32_t commrt_all_reduce_start(commrt_group *group, const void *in, void *out, int64_t count, int32_t dtype,
                                int32_t reduction, double scale, int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_ALL_REDUCE, in, out, count, dtype, site);
  start.setReduction(reduction, scale);
  return start.run(token);
}

int32_t commrt_all_reduce_one_shot_start(commrt_group *group, const void *in, void *out, int64_t count, int32_t dtype,
                                         int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_ALL_REDUCE, in, out, count, dtype, site);
  start.setReduction(COMMRT_SUM, 1.0);
  start.work->base.one_shot = 1;
  start.checkApart();
  return start.run(token);
}

int32_t commrt_all_to_all_start(commrt_group *group, const void *in, void *out, int64_t splitOuter, int64_t concatOuter,
                                int64_t count, int32_t dtype, int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_ALL_TO_ALL, in, out, count, dtype, site);
  start.inOuter = splitOuter;
  start.outOuter = concatOuter;
  return start.run(token);
}

int32_t commrt_all_to_all_v_start(commrt_group *group, const void *in, const int64_t *sendCounts, void *out,
                                  const int64_t *recvCounts, int64_t outer, int64_t inner, int32_t dtype, int64_t site,
                                  commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_ALL_TO_ALL, in, out, 0, dtype, site);
  start.setSplits(sendCounts, recvCounts, outer, inner);
  return start.run(token);
}

int32_t commrt_check_rows(commrt_group *group, const int64_t *counts, int64_t rows, int64_t site) {
  if (!group)
    return COMMRT_ERR_INVALID;
  if (int32_t status = latched(group->context))
    return status;
  commrt_context *context = group->context;
  int64_t sum = 0, members = static_cast<int64_t>(group->members.size());
  bool valid = counts || members == 0;
  for (int64_t i = 0; valid && i < members; ++i)
    valid = counts[i] >= 0 && !__builtin_add_overflow(sum, counts[i], &sum);
  if (valid && sum == rows)
    return COMMRT_OK;
  std::string text = "expected splits that add up to " + std::to_string(rows) + " rows, got [";
  for (int64_t i = 0; counts && i < members; ++i)
    text += (i ? ", " : "") + std::to_string(counts[i]);
  text += "]";
  if (site >= 0 && site < context->numSites)
    text += ": " + describeSite(context->sites[site]);
  return fail(context, COMMRT_ERR_INVALID, text);
}

int32_t commrt_broadcast_start(commrt_group *group, const void *in, void *out, int64_t count, int32_t dtype,
                               int32_t root, int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_BROADCAST, in, out, count, dtype, site);
  start.setRoot(root);
  return start.run(token);
}

int32_t commrt_reduce_start(commrt_group *group, const void *in, void *out, int64_t count, int32_t dtype,
                            int32_t reduction, double scale, int32_t root, int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_REDUCE, in, out, count, dtype, site);
  start.setReduction(reduction, scale);
  start.setRoot(root);
  return start.run(token);
}

int32_t commrt_gather_start(commrt_group *group, const void *in, void *out, int64_t outer, int64_t count, int32_t dtype,
                            int32_t root, int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_GATHER, in, out, blockOf(outer, count), dtype, site);
  start.outOuter = outer == 0 ? 1 : outer;
  start.setRoot(root);
  return start.run(token);
}

int32_t commrt_scatter_start(commrt_group *group, const void *in, void *out, int64_t outer, int64_t count,
                             int32_t dtype, int32_t root, int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_SCATTER, in, out, blockOf(outer, count), dtype, site);
  start.inOuter = outer == 0 ? 1 : outer;
  start.setRoot(root);
  return start.run(token);
}

int32_t commrt_permute_start(commrt_group *group, const void *in, void *out, int64_t count, int32_t dtype,
                             const int64_t *pairs, int64_t numPairs, int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_PERMUTE, in, out, count, dtype, site);
  start.require(numPairs >= 0 && (numPairs == 0 || pairs), "the pairs are NULL");
  if (start.error.empty() && group->index >= 0) {
    int64_t n = start.members();
    std::vector<bool> sends(n), receives(n);
    start.work->counts.assign(pairs, pairs + 2 * numPairs);
    for (int64_t i = 0; i < numPairs && start.error.empty(); ++i) {
      int64_t source = pairs[2 * i], target = pairs[2 * i + 1];
      start.require(source >= 0 && source < n && target >= 0 && target < n, "a pair names no member");
      if (!start.error.empty())
        break;
      start.require(!sends[source] && !receives[target], "a member is twice a source or a target");
      sends[source] = receives[target] = true;
      if (source == group->index)
        start.work->base.send_to = static_cast<int32_t>(target);
      if (target == group->index)
        start.work->base.recv_from = static_cast<int32_t>(source);
    }
  }
  return start.run(token);
}

int32_t commrt_send_start(commrt_group *group, const void *in, int64_t count, int32_t dtype, int32_t peer, int64_t tag,
                          int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_SEND, in, nullptr, count, dtype, site);
  start.setPeer(peer, tag);
  return start.run(token);
}

int32_t commrt_recv_start(commrt_group *group, void *out, int64_t count, int32_t dtype, int32_t peer, int64_t tag,
                          int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_RECV, nullptr, out, count, dtype, site);
  start.setPeer(peer, tag);
  return start.run(token);
}

int32_t commrt_barrier_start(commrt_group *group, int64_t site, commrt_token **token) {
  if (!group)
    return refuseNull(token);
  Start start(group, COMMRT_BARRIER, nullptr, nullptr, 0, COMMRT_I8, site);
  return start.run(token);
}

int32_t commrt_coalesce_begin(commrt_context *context) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (int32_t status = latched(context))
    return status;
  if (context->coalescing)
    return fail(context, COMMRT_ERR_INVALID, "commrt_coalesce_begin is not nested");
  if (const commrt_device_ops *device = context->job->device)
    if (int32_t status = device->group_begin(context->peer))
      return fail(context, status, "cannot begin a coalesced start");
  context->coalescing = makeToken(context);
  return COMMRT_OK;
}

int32_t commrt_coalesce_end(commrt_context *context, commrt_token **token) {
  if (!context || !token)
    return COMMRT_ERR_INVALID;
  *token = context->coalescing;
  context->coalescing = nullptr;
  if (!*token) {
    int32_t status = latched(context);
    return status ? status : fail(context, COMMRT_ERR_INVALID, "commrt_coalesce_end without a begin");
  }
  noteIssued(context->stream, *token);
  Range range([] { return std::string("coalesced starts"); });
  // Also after an error: it ends what coalesce_begin began.
  if (const commrt_device_ops *device = context->job->device)
    if (int32_t status = device->group_end(context->peer))
      return fail(context, status, "cannot start a coalesced list");
  return latched(context);
}
