//===- NcclPlan.cpp - Stream operations of one work ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The kinds of collectives as copies and calls of NCCL. Rows of other dimensions than the first are brought together by
// strided copies before and after, and what a member gives to itself is a copy.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclPlan.h"
#include "Kernels/Device/Arguments.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

using namespace commsched::runtime;

/// cudaMemcpy2DAsync takes distances up to this many bytes.
static constexpr int64_t mostPitch = INT32_MAX;
static constexpr int64_t blockThreads = 256;
/// Of a kernel beside which computations go on.
static constexpr int64_t mostBlocks = 64;
/// Copies of rows that take no longer than to launch a kernel for all of them.
static constexpr int64_t mostRowCopies = 2;

//===- Pieces --------------------------------------------------------------------------------===//

Phase &Plan::phase(size_t index) {
  if (phases.size() <= index)
    phases.resize(index + 1);
  return phases[index];
}

void Plan::fail(int32_t with, const std::string &text) {
  if (status != COMMRT_OK)
    return;
  status = with;
  error = text;
}

void Plan::failCuda(const char *what, int result) {
  constexpr int cudaErrorMemoryAllocation = 2;
  fail(result == cudaErrorMemoryAllocation ? COMMRT_ERR_MEMORY : COMMRT_ERR_BACKEND, peer.cudaError(what, result));
}

char *Plan::scratch(int64_t bytes) {
  void *data = nullptr;
  if (bytes == 0 || status != COMMRT_OK)
    return nullptr;
  if (int result = takeScratch(peer, lane.stream, bytes, &data)) {
    failCuda("cudaMallocAsync", result);
    return nullptr;
  }
  scratches.emplace_back(data, bytes);
  return static_cast<char *>(data);
}

PinnedBlock Plan::pinned(int64_t bytes) {
  std::string text;
  PinnedBlock block = takePinned(peer, bytes, text);
  if (!block.data)
    fail(COMMRT_ERR_MEMORY, text);
  flight.pinned.push_back(block);
  return block;
}

void Plan::copy(Phase &in, void *to, const void *from, int64_t bytes, int kind) {
  if (bytes > 0 && to != from)
    in.pieces.emplace_back([=] { return cuda().memcpyAsync(to, from, bytes, kind, lane.stream); });
}

void Plan::zero(Phase &in, void *to, int64_t bytes) {
  if (bytes > 0)
    in.pieces.emplace_back([=] { return cuda().memsetAsync(to, 0, bytes, lane.stream); });
}

void Plan::copyRows(Phase &in, char *to, int64_t toPitch, const char *from, int64_t fromPitch, int64_t width,
                    int64_t rows) {
  if (width == 0 || rows == 0)
    return;
  if (toPitch <= mostPitch && fromPitch <= mostPitch) {
    in.pieces.emplace_back(
        [=] { return cuda().memcpy2DAsync(to, toPitch, from, fromPitch, width, rows, onDevice, lane.stream); });
    return;
  }
  for (int64_t row = 0; row < rows; ++row)
    copy(in, to + row * toPitch, from + row * fromPitch, width);
}

bool Plan::addKernel(Phase &in, const char *name, const void *arguments, size_t bytes, int64_t elements) {
  NcclImage *image = nullptr;
  std::string reason;
  if (findKernels(peer, &image, reason)) {
    const char *mode = std::getenv("COMMRT_DEVICE_KERNELS");
    if (mode && std::strcmp(mode, "require") == 0)
      fail(COMMRT_ERR_UNSUPPORTED, "no kernels for the device: " + reason);
    return false;
  }
  LoadedKernel *kernel = nullptr;
  if (int32_t result = prepareKernel(peer, *image, name, 0, &kernel, reason)) {
    fail(result, reason);
    return true;
  }
  std::vector<uint64_t> values((bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  std::memcpy(values.data(), arguments, bytes);
  in.pieces.emplace_back([this, kernel, elements, values = std::move(values)]() mutable {
    void *pointers[] = {values.data()};
    commrt_kernel_call call = {};
    call.struct_size = sizeof(call);
    call.grid[0] = static_cast<uint32_t>(std::min(mostBlocks, (elements + blockThreads - 1) / blockThreads));
    call.block[0] = static_cast<uint32_t>(blockThreads);
    call.grid[1] = call.grid[2] = call.block[1] = call.block[2] = 1;
    call.arguments = pointers;
    return launchPrepared(peer, *kernel, call, lane.stream);
  });
  return true;
}

void Plan::copyBlocks(Phase &in, char *to, const char *from, int64_t outer, int64_t outerPitch, int64_t blocks,
                      int64_t blockPitch, int64_t inner) {
  auto bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | static_cast<uintptr_t>(inner);
  int64_t width = bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 0; // both distances are multiples of `inner`
  int64_t fewer = std::min(outer, blocks);
  // A copy of rows for each index of the shorter dimension, or one kernel for all.
  if (width > 0 && fewer > mostRowCopies && inner > 0) {
    device::Strided a = {from, to, outer * blocks * (inner / width), {}, {}, static_cast<int32_t>(width), 3};
    const int64_t sizes[] = {outer, blocks, inner / width}, strides[] = {outerPitch / width, blockPitch / width, 1};
    std::copy(std::begin(sizes), std::end(sizes), a.sizes);
    std::copy(std::begin(strides), std::end(strides), a.strides);
    if (addKernel(in, "copyStrided", &a, sizeof(a), a.elements))
      return;
  }
  if (blocks <= outer)
    for (int64_t block = 0; block < blocks; ++block)
      copyRows(in, to + block * inner, blocks * inner, from + block * blockPitch, outerPitch, inner, outer);
  else
    for (int64_t row = 0; row < outer; ++row)
      copyRows(in, to + row * blocks * inner, inner, from + row * outerPitch, blockPitch, inner, blocks);
}

void Plan::send(Phase &in, const char *from, int64_t elements, int64_t member) {
  if (elements > 0)
    in.calls.emplace_back([=] {
      return nccl().send(from, units(elements), type.number, static_cast<int>(member), lane.comm, lane.stream);
    });
}

void Plan::receive(Phase &in, char *to, int64_t elements, int64_t member) {
  if (elements > 0)
    in.calls.emplace_back([=] {
      return nccl().recv(to, units(elements), type.number, static_cast<int>(member), lane.comm, lane.stream);
    });
}

/// The input with each member's rows together. `always`: in memory of its own in any case.
const char *Plan::packed(int64_t outer, int64_t blocks, int64_t blockBytes, bool always) {
  if (outer <= 1 && !always)
    return in();
  char *to = scratch(blocks * blockBytes);
  if (!to)
    return nullptr;
  if (outer <= 1) {
    copy(phase(0), to, in(), blocks * blockBytes);
    return to;
  }
  int64_t inner = blockBytes / outer;
  copyBlocks(phase(0), to, in(), blocks, inner, outer, blocks * inner, inner);
  return to;
}

void Plan::unpack(Phase &in, const char *from, int64_t outer, int64_t blocks, int64_t blockBytes) {
  int64_t inner = blockBytes / outer;
  copyBlocks(in, out(), from, outer, inner, blocks, blockBytes, inner);
}

//===- Kinds ---------------------------------------------------------------------------------===//

void Plan::make() {
  if (type.number < 0)
    return fail(COMMRT_ERR_UNSUPPORTED, "NCCL does not move this element type");
  if (n == 1)
    makeAlone();
  else if (work.kind == COMMRT_ALL_GATHER)
    makeAllGather();
  else if (work.kind == COMMRT_REDUCE_SCATTER || work.kind == COMMRT_ALL_REDUCE || work.kind == COMMRT_REDUCE)
    makeReduction();
  else if (work.kind == COMMRT_ALL_TO_ALL && work.send_counts)
    makeUneven();
  else if (work.kind == COMMRT_ALL_TO_ALL)
    makeAllToAll();
  else if (work.kind == COMMRT_BROADCAST || work.kind == COMMRT_GATHER || work.kind == COMMRT_SCATTER)
    makeRooted();
  else if (work.kind == COMMRT_PERMUTE)
    makePermute();
  else if (work.kind == COMMRT_BARRIER)
    makeBarrier();
  else
    fail(COMMRT_ERR_UNSUPPORTED, "an unknown kind of collective");
  if (scratches.empty() || status != COMMRT_OK)
    return;
  Phase &last = phase(phases.back().calls.empty() ? phases.size() - 1 : phases.size());
  for (auto [data, bytes] : scratches)
    last.pieces.emplace_back(
        [this, pointer = data, size = bytes] { return releaseScratch(peer, lane.stream, size, pointer); });
}

void Plan::drop() {
  for (auto [data, bytes] : scratches)
    releaseScratch(peer, lane.stream, bytes, data);
  scratches.clear();
}

void Plan::moveScratchesToFlight() {
  flight.scratches.insert(flight.scratches.end(), scratches.begin(), scratches.end());
  scratches.clear();
}

void Plan::makeAlone() {
  bool isReduction = work.kind == COMMRT_REDUCE_SCATTER || work.kind == COMMRT_ALL_REDUCE || work.kind == COMMRT_REDUCE;
  if (isReduction && work.reduction == COMMRT_SCALED_SUM)
    return reduceInOrder(in());
  if (work.kind == COMMRT_PERMUTE && work.recv_from < 0)
    return zero(phase(0), work.out, work.count * size);
  if (work.kind != COMMRT_BARRIER)
    copy(phase(0), work.out, work.in, (work.send_counts ? work.send_counts[0] : work.count) * size);
}

void Plan::makeAllGather() {
  int64_t block = work.count * size;
  bool isStaged = work.out_outer > 1;
  char *to = isStaged ? scratch(n * block) : out();
  phase(0).calls.emplace_back(
      [=] { return nccl().allGather(work.in, to, units(work.count), type.number, lane.comm, lane.stream); });
  if (isStaged && to)
    unpack(phase(1), to, work.out_outer, n, block);
}

void Plan::makeReduction() {
  bool isScatter = work.kind == COMMRT_REDUCE_SCATTER;
  const char *from = isScatter ? packed(work.in_outer, n, work.count * size, false) : in();
  int how = operation();
  if (status != COMMRT_OK)
    return;
  if (how < 0)
    return reduceInOrder(from);
  phase(0).calls.emplace_back([=] {
    size_t count = units(work.count);
    if (isScatter)
      return nccl().reduceScatter(from, work.out, count, type.number, how, lane.comm, lane.stream);
    if (work.kind == COMMRT_ALL_REDUCE)
      return nccl().allReduce(from, work.out, count, type.number, how, lane.comm, lane.stream);
    // Only the root writes.
    void *to = work.root == me ? work.out : const_cast<char *>(from);
    return nccl().reduce(from, to, count, type.number, how, work.root, lane.comm, lane.stream);
  });
}

void Plan::makeAllToAll() {
  int64_t block = work.count * size;
  const char *from = packed(work.in_outer, n, block, work.in == work.out);
  bool isStaged = work.out_outer > 1;
  char *to = isStaged ? scratch(n * block) : out();
  if (status != COMMRT_OK)
    return;
  if (nccl().alltoAll) {
    phase(0).calls.emplace_back(
        [=] { return nccl().alltoAll(from, to, units(work.count), type.number, lane.comm, lane.stream); });
  } else {
    for (int64_t member = 0; member < n; ++member) {
      if (member == me) {
        copy(phase(0), to + member * block, from + member * block, block);
        continue;
      }
      send(phase(0), from + member * block, work.count, member);
      receive(phase(0), to + member * block, work.count, member);
    }
  }
  if (isStaged)
    unpack(phase(1), to, work.out_outer, n, block);
}

/// Elements for each member, all rows together; rows of `elements[m] / outer` each.
void Plan::makeUneven() {
  int64_t outer = work.in_outer;
  int64_t sent = std::accumulate(work.send_counts, work.send_counts + n, int64_t(0)) * size;
  int64_t received = std::accumulate(work.recv_counts, work.recv_counts + n, int64_t(0)) * size;
  const char *from = in();
  if ((outer > 1 || work.in == work.out) && sent > 0) {
    char *staged = scratch(sent);
    if (!staged)
      return;
    int64_t at = 0;
    for (int64_t member = 0; member < n; ++member) {
      int64_t bytes = work.send_counts[member] * size, width = bytes / outer;
      copyRows(phase(0), staged + at, width, in() + at / outer, sent / outer, width, outer);
      at += bytes;
    }
    from = staged;
  }
  bool isStaged = outer > 1 && received > 0;
  char *to = isStaged ? scratch(received) : out();
  if (status != COMMRT_OK)
    return;
  int64_t sendAt = 0, receiveAt = 0, ownAt = 0;
  for (int64_t member = 0; member < me; ++member)
    ownAt += work.recv_counts[member] * size;
  for (int64_t member = 0; member < n; ++member) {
    if (member == me) {
      copy(phase(0), to + ownAt, from + sendAt, work.send_counts[me] * size);
    } else {
      send(phase(0), from + sendAt, work.send_counts[member], member);
      receive(phase(0), to + receiveAt, work.recv_counts[member], member);
    }
    sendAt += work.send_counts[member] * size;
    receiveAt += work.recv_counts[member] * size;
  }
  int64_t at = 0;
  for (int64_t member = 0; isStaged && member < n; ++member) {
    int64_t bytes = work.recv_counts[member] * size, width = bytes / outer;
    copyRows(phase(1), out() + at / outer, received / outer, to + at, width, width, outer);
    at += bytes;
  }
}

void Plan::makeRooted() {
  int64_t block = work.count * size, root = work.root;
  bool isRoot = root == me;
  if (work.kind == COMMRT_BROADCAST) {
    phase(0).calls.emplace_back([=] {
      return nccl().broadcast(isRoot ? work.in : work.out, work.out, units(work.count), type.number, work.root,
                              lane.comm, lane.stream);
    });
    return;
  }
  bool isGather = work.kind == COMMRT_GATHER;
  bool isStaged = isGather && isRoot && work.out_outer > 1;
  const char *from = isGather ? in() : isRoot ? packed(work.in_outer, n, block, false) : nullptr;
  char *to = isStaged ? scratch(n * block) : out();
  if (status != COMMRT_OK)
    return;
  for (int64_t member = 0; isRoot && member < n; ++member) {
    char *target = isGather ? to + member * block : to;
    const char *source = isGather ? from : from + member * block;
    if (member == me)
      copy(phase(0), target, source, block);
    else if (isGather)
      receive(phase(0), target, work.count, member);
    else
      send(phase(0), source, work.count, member);
  }
  if (!isRoot && isGather)
    send(phase(0), from, work.count, root);
  else if (!isRoot)
    receive(phase(0), to, work.count, root);
  if (isStaged)
    unpack(phase(1), to, work.out_outer, n, block);
}

void Plan::makePermute() {
  int64_t bytes = work.count * size;
  const char *from = in();
  if (work.in == work.out && work.send_to >= 0)
    from = packed(1, 1, bytes, true);
  if (status != COMMRT_OK)
    return;
  if (work.recv_from < 0)
    zero(phase(0), work.out, bytes);
  if (work.recv_from == me) {
    copy(phase(0), work.out, from, bytes);
    return;
  }
  if (work.send_to >= 0)
    send(phase(0), from, work.count, work.send_to);
  if (work.recv_from >= 0)
    receive(phase(0), out(), work.count, work.recv_from);
}

void Plan::makeBarrier() {
  if (!lane.barrier) {
    RelaxedCapture relaxed(peer);
    if (int result = cuda().malloc(&lane.barrier, size))
      return failCuda("cudaMalloc", result);
    zero(phase(0), lane.barrier, size);
  }
  constexpr int ncclSum = 0;
  phase(0).calls.emplace_back(
      [this] { return nccl().allReduce(lane.barrier, lane.barrier, 1, type.number, ncclSum, lane.comm, lane.stream); });
}

void Plan::makeMessage() {
  if (type.number < 0)
    return fail(COMMRT_ERR_UNSUPPORTED, "NCCL does not move this element type");
  if (work.kind == COMMRT_SEND)
    send(phase(0), in(), work.count, work.peer);
  else
    receive(phase(0), out(), work.count, work.peer);
}

void Plan::makeSelfMessage(const commrt_work &receive) {
  if (receive.count != work.count || receive.dtype != work.dtype)
    return fail(COMMRT_ERR_MISMATCH, "the rank expects another message from itself");
  copy(phase(0), receive.out, work.in, work.count * size);
}
