//===- ThreadsExecute.cpp - Carries out one matched collective in memory ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every rank's buffers are in this process, so a collective is copies and reductions between them.
//
//===------------------------------------------------------------------------------------------===//

#include "ThreadsExecute.h"
#include "Core/Support/Reduce.h"
#include <cstring>

using namespace commsched::runtime;

namespace {
struct Executor {
  const std::vector<commrt_work *> &works;
  const commrt_work &first = *works[0];
  int64_t n = static_cast<int64_t>(works.size());
  int64_t block = first.count * commrt_dtype_size(first.dtype);

  const char *in(int64_t member) const { return static_cast<const char *>(works[member]->in); }
  char *out(int64_t member) const { return static_cast<char *>(works[member]->out); }
  static void copy(char *to, const char *from, int64_t bytes) {
    if (bytes > 0 && to != from)
      std::memmove(to, from, bytes);
  }

  /// Reduces the blocks at `offset` of all inputs and writes the result to `outs`.
  int32_t reduce(int64_t offset, const std::vector<void *> &outs) const {
    std::vector<const void *> ins(n);
    for (int64_t member = 0; member < n; ++member)
      ins[member] = block ? in(member) + offset : nullptr;
    return reduceInto({first.dtype, first.reduction, first.scale}, ins.data(), n, outs.data(),
                      static_cast<int64_t>(outs.size()), first.count);
  }

  int32_t allReduce() const {
    std::vector<void *> outs(n);
    for (int64_t member = 0; member < n; ++member)
      outs[member] = out(member);
    return reduce(0, outs);
  }

  /// Every member reads all inputs and writes its own output.
  int32_t allReduceInOneShot() const {
    for (int64_t member = 0; member < n; ++member)
      if (int32_t status = reduce(0, {out(member)}))
        return status;
    return COMMRT_OK;
  }

  int32_t reduceScatter() const {
    for (int64_t member = 0; member < n; ++member)
      if (int32_t status = reduce(member * block, {out(member)}))
        return status;
    return COMMRT_OK;
  }

  void allGather() const {
    for (int64_t to = 0; to < n; ++to)
      for (int64_t from = 0; from < n; ++from)
        copy(out(to) + from * block, in(from), block);
  }

  void allToAll() const {
    for (int64_t from = 0; from < n; ++from)
      for (int64_t to = 0; to < n; ++to)
        copy(out(to) + from * block, in(from) + to * block, block);
  }

  void allToAllUneven() const {
    int64_t size = commrt_dtype_size(first.dtype);
    std::vector<int64_t> received(n, 0);
    for (int64_t from = 0; from < n; ++from) {
      int64_t sent = 0;
      for (int64_t to = 0; to < n; ++to) {
        int64_t bytes = works[from]->send_counts[to] * size;
        if (bytes > 0)
          copy(out(to) + received[to], in(from) + sent, bytes);
        sent += bytes;
        received[to] += bytes;
      }
    }
  }

  void permute() const {
    for (int64_t member = 0; member < n; ++member)
      if (int32_t from = works[member]->recv_from; from >= 0)
        copy(out(member), in(from), block);
      else if (block > 0)
        std::memset(out(member), 0, block);
  }
};
} // namespace

int32_t commsched::runtime::executeCollective(const std::vector<commrt_work *> &works) {
  Executor run{works};
  int64_t root = run.first.root;
  switch (run.first.kind) {
  case COMMRT_ALL_GATHER:
    run.allGather();
    return COMMRT_OK;
  case COMMRT_REDUCE_SCATTER:
    return run.reduceScatter();
  case COMMRT_ALL_REDUCE:
    return run.first.one_shot ? run.allReduceInOneShot() : run.allReduce();
  case COMMRT_ALL_TO_ALL:
    if (run.first.send_counts)
      run.allToAllUneven();
    else
      run.allToAll();
    return COMMRT_OK;
  case COMMRT_BROADCAST:
    for (int64_t member = 0; member < run.n; ++member)
      Executor::copy(run.out(member), run.in(root), run.block);
    return COMMRT_OK;
  case COMMRT_REDUCE:
    return run.reduce(0, {run.out(root)});
  case COMMRT_GATHER:
    for (int64_t member = 0; member < run.n; ++member)
      Executor::copy(run.out(root) + member * run.block, run.in(member), run.block);
    return COMMRT_OK;
  case COMMRT_SCATTER:
    for (int64_t member = 0; member < run.n; ++member)
      Executor::copy(run.out(member), run.in(root) + member * run.block, run.block);
    return COMMRT_OK;
  case COMMRT_PERMUTE:
    run.permute();
    return COMMRT_OK;
  case COMMRT_SEND:
  case COMMRT_RECV:
    Executor::copy(run.out(1), run.in(0), run.block);
    return COMMRT_OK;
  case COMMRT_BARRIER:
    return COMMRT_OK;
  default:
    return COMMRT_ERR_UNSUPPORTED;
  }
}

int64_t commsched::runtime::bytesMoved(const std::vector<commrt_work *> &works) {
  const commrt_work &first = *works[0];
  int64_t n = static_cast<int64_t>(works.size()), size = commrt_dtype_size(first.dtype);
  int64_t block = first.count * size;
  if (first.send_counts) {
    int64_t sum = 0;
    for (const commrt_work *work : works)
      for (int64_t to = 0; to < n; ++to)
        sum += work->send_counts[to] * size;
    return sum;
  }
  bool isSquare =
      first.kind == COMMRT_ALL_GATHER || first.kind == COMMRT_REDUCE_SCATTER || first.kind == COMMRT_ALL_TO_ALL;
  return isSquare ? block * n * n : block * n;
}
