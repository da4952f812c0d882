//===- Symmetric.cpp - Buffers at the same offset on every rank -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each rank computes the offset by itself, shows it to the others before it uses it, and waits until no collective in
// flight uses what was there before.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include <algorithm>
#include <sys/mman.h>

using namespace commsched::runtime;

namespace {
/// What ranks compare when each makes a symmetric buffer.
struct Claim {
  int64_t number, bytes, offset;
};
} // namespace

static int32_t refuse(commrt_context *context, const Claim &mine, int64_t bytes, int64_t offset) {
  std::string what = "symmetric buffer " + std::to_string(mine.number);
  if (bytes != mine.bytes)
    return fail(context, COMMRT_ERR_MISMATCH,
                what + " has " + std::to_string(mine.bytes) + " bytes here and " + std::to_string(bytes) +
                    " on another rank");
  return fail(context, COMMRT_ERR_MISMATCH,
              what + " has offset " + std::to_string(mine.offset) + " here and " + std::to_string(offset) +
                  " on another rank: they released symmetric buffers in different orders");
}

static bool isSameClaim(const Claim &a, const Claim &b) { return a.bytes == b.bytes && a.offset == b.offset; }

static void combineClaims(void *lower, const void *higher, int64_t) {
  static_cast<Compared<Claim> *>(lower)->add(*static_cast<const Compared<Claim> *>(higher), isSameClaim);
}

/// Ranks that are processes meet.
static int32_t exchangeClaims(commrt_context *context, const Claim &mine) {
  Compared<Claim> all(mine, context->rank);
  std::string what = "making symmetric buffer " + std::to_string(mine.number);
  if (int32_t status = combineRanks(context, what.c_str(), &all, sizeof(all), combineClaims))
    return status;
  if (all.otherRank < 0)
    return COMMRT_OK;
  const Claim &theirs = isSameClaim(mine, all.first) ? all.other : all.first;
  return refuse(context, mine, theirs.bytes, theirs.offset);
}

/// Ranks of one process compare with the one that came first.
static int32_t compareClaims(commrt_context *context, const Claim &mine) {
  commrt_job *job = context->job;
  commrt_job::Symmetric first;
  {
    Lock lock(job->mutex);
    int64_t place = mine.number - job->firstSymmetric;
    if (place == static_cast<int64_t>(job->symmetric.size()))
      job->symmetric.push_back({mine.bytes, mine.offset, 0});
    ++job->symmetric[place].made;
    first = job->symmetric[place];
    while (!job->symmetric.empty() && job->symmetric.front().made == job->ranks) {
      job->symmetric.pop_front();
      ++job->firstSymmetric;
    }
  }
  if (first.bytes != mine.bytes || first.offset != mine.offset)
    return refuse(context, mine, first.bytes, first.offset);
  return COMMRT_OK;
}

/// Memory for the segment, of the backend or, where it has none, of this process. Pages come with their first use.
static int32_t provideSegment(commrt_context *context, SymmetricHeap::Segment &segment, int64_t index) {
  const commrt_backend *backend = context->job->backend;
  if (COMMRT_BACKEND_HAS(backend, segment_create)) {
    char text[512] = "";
    void *base = nullptr;
    if (int32_t status = backend->segment_create(context->peer, index, segment.bytes, &base, text, sizeof(text)))
      return fail(context, status, std::string("symmetric memory: ") + text);
    segment.base = static_cast<char *>(base);
    return COMMRT_OK;
  }
  if (context->job->device)
    return fail(context, COMMRT_ERR_UNSUPPORTED, "this backend has no symmetric memory");
  void *base = mmap(nullptr, segment.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return fail(context, COMMRT_ERR_MEMORY,
                "no memory for a symmetric segment of " + std::to_string(segment.bytes) + " bytes");
  segment.base = static_cast<char *>(base);
  context->ownSegments.push_back({base, segment.bytes});
  return COMMRT_OK;
}

int32_t commsched::runtime::allocateSymmetric(commrt_context *context, int64_t bytes, int64_t alignment, char **data,
                                              int64_t *offset) {
  *data = nullptr;
  *offset = context->symmetric.take(bytes, alignment);
  if (*offset < 0)
    return fail(context, COMMRT_ERR_MEMORY, "no memory for a buffer of " + std::to_string(bytes) + " bytes");
  Claim mine{context->symmetricCount++, bytes, *offset};
  if (int32_t status = isPerProcess(context->job) ? exchangeClaims(context, mine) : compareClaims(context, mine))
    return status;
  SymmetricHeap::Segment &segment = context->symmetric.segmentOf(*offset);
  if (!segment.base)
    if (int32_t status = provideSegment(context, segment, &segment - context->symmetric.getSegments().data()))
      return status;
  *data = context->symmetric.addressOf(*offset);
  char *begin = *data, *end = begin + std::max<int64_t>(bytes, 1);
  return waitFor(context, [=] {
    context->mutex.isHeld();
    auto next = context->buffers.lower_bound(end);
    if (next == context->buffers.begin())
      return true;
    Buffer *before = std::prev(next)->second.get();
    return before->data + std::max<int64_t>(before->bytes, 1) <= begin;
  });
}

int32_t commrt_symmetric_offset(commrt_context *context, const void *pointer, int64_t *offset) {
  if (!context || !offset)
    return COMMRT_ERR_INVALID;
  *offset = -1;
  {
    Lock lock(context->mutex);
    Buffer *buffer = findBuffer(context, pointer);
    if (buffer && buffer->symmetricOffset >= 0) {
      *offset = buffer->symmetricOffset + (static_cast<const char *>(pointer) - buffer->data);
      return COMMRT_OK;
    }
  }
  return fail(context, COMMRT_ERR_INVALID, "commrt_symmetric_offset: not in a symmetric buffer of this context");
}
