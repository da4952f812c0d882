//===- Buffers.cpp - Buffers that outlive the collectives that use them -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A buffer counts who needs it: its owner, and each collective in flight that reads or writes it. It is freed when the
// count reaches zero, on whichever thread that happens. Symmetric buffers differ in where their memory comes from.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

using namespace commsched::runtime;

static constexpr int64_t alignment = 64;

Buffer *commsched::runtime::findBuffer(commrt_context *context, const void *pointer) {
  auto *address = static_cast<char *>(const_cast<void *>(pointer));
  auto next = context->buffers.upper_bound(address);
  if (!pointer || next == context->buffers.begin())
    return nullptr;
  Buffer *buffer = std::prev(next)->second.get();
  return address < buffer->data + std::max<int64_t>(buffer->bytes, 1) ? buffer : nullptr;
}

void commsched::runtime::holdBuffer(commrt_context *context, Work &work, const void *pointer) {
  Lock lock(context->mutex);
  if (Buffer *buffer = findBuffer(context, pointer)) {
    ++buffer->holds;
    work.buffers.push_back(buffer);
  }
}

//===- Storage -------------------------------------------------------------------------------===//
//
// The system takes pages back with a large buffer and hands out zeroed ones with the next, which costs as much as
// filling it. So large buffers are kept for the next one of their size, as long as all together stay below the rank's
// peak.

/// From here on buffers are kept.
static constexpr int64_t leastSpareBytes = 64 << 10;

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COMMRT_KEEPS_NO_BUFFERS 1
#endif
#endif

static bool keepsBuffers(const commrt_context *context) {
#if defined(COMMRT_KEEPS_NO_BUFFERS) || defined(__SANITIZE_ADDRESS__)
  return false; // so that a use after the release is found
#else
  return !context->job->poison;
#endif
}

/// Bytes of storage, a multiple of the alignment and at least that; negative if that overflows.
static int64_t storageBytes(int64_t bytes) {
  return bytes > INT64_MAX - alignment ? -1 : std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void commsched::runtime::trimSpare(commrt_context *context, int64_t bytes) {
  while (!context->spare.empty() && context->allocated + context->spareBytes + bytes > context->peak) {
    auto largest = std::prev(context->spare.end());
    context->spareBytes -= largest->first;
    std::free(largest->second);
    context->spare.erase(largest);
  }
}

static char *allocatePlain(commrt_context *context, int64_t bytes) {
  int64_t storage = storageBytes(bytes);
  if (storage < 0)
    return nullptr;
  if (storage >= leastSpareBytes) {
    Lock lock(context->mutex);
    if (auto found = context->spare.find(storage); found != context->spare.end()) {
      char *data = found->second;
      context->spareBytes -= storage;
      context->spare.erase(found);
      return data;
    }
    trimSpare(context, storage);
  }
  return static_cast<char *>(std::aligned_alloc(alignment, storage));
}

/// The context's mutex is held, and the buffer is no longer counted as allocated.
static void freePlain(commrt_context *context, char *data, int64_t bytes) COMMRT_REQUIRES(context->mutex) {
  int64_t storage = storageBytes(bytes);
  if (!keepsBuffers(context) || storage < leastSpareBytes ||
      context->allocated + context->spareBytes + storage > context->peak) {
    std::free(data);
    return;
  }
  context->spare.emplace(storage, data);
  context->spareBytes += storage;
}

//===- Holds ---------------------------------------------------------------------------------===//

void commsched::runtime::dropHold(Buffer *buffer) {
  if (--buffer->holds > 0)
    return;
  commrt_context *context = buffer->context;
  context->mutex.isHeld();
  context->allocated -= buffer->bytes;
  if (context->job->device) {
    if (buffer->symmetricOffset < 0)
      context->returned.push_back({buffer->data, buffer->bytes});
  } else {
    if (context->job->poison)
      std::memset(buffer->data, poisonByte, buffer->bytes);
    if (buffer->symmetricOffset < 0)
      freePlain(context, buffer->data, buffer->bytes);
  }
  context->buffers.erase(buffer->data);
  context->changed.notify_all();
}

void commsched::runtime::releaseBuffer(Buffer *buffer) {
  buffer->released = true;
  // In program order, not when the last collective lets go: so all ranks agree on what is free.
  if (buffer->symmetricOffset >= 0)
    buffer->context->symmetric.release(buffer->symmetricOffset);
  dropHold(buffer);
}

/// Valid on every compute stream.
static char *allocateOnDevice(commrt_context *context, int64_t bytes) {
  int64_t storage = storageBytes(bytes);
  void *data = nullptr;
  reclaimCompleted(context);
  commrt_stream *stream = context->streams[{COMMRT_STREAM_COMPUTE, 0}].get();
  if (storage < 0 || context->job->device->alloc(context->peer, storage, stream->handle, &data) != COMMRT_OK)
    return nullptr;
  joinComputeStreams(context);
  return static_cast<char *>(data);
}

static int32_t allocate(commrt_context *context, int32_t kind, int64_t bytes, int64_t alignment, void **pointer) {
  *pointer = nullptr;
  if (bytes < 0 || (kind != COMMRT_BUFFER_PLAIN && kind != COMMRT_BUFFER_SYMMETRIC))
    return fail(context, COMMRT_ERR_INVALID,
                "commrt_alloc: a negative size, more bytes than 64 bits count, or an unknown kind");
  char *data = nullptr;
  int64_t offset = -1;
  int32_t status = COMMRT_OK;
  // After an error ranks no longer agree on anything; code on its way out gets plain memory.
  if (kind == COMMRT_BUFFER_SYMMETRIC && context->isCapturing)
    refuseInCapture(context, "a new symmetric buffer of " + std::to_string(bytes) + " bytes");
  if (kind == COMMRT_BUFFER_SYMMETRIC && context->status == COMMRT_OK)
    status = allocateSymmetric(context, bytes, alignment, &data, &offset);
  if (!data || status != COMMRT_OK) {
    offset = -1;
    data = context->job->device ? allocateOnDevice(context, bytes) : allocatePlain(context, bytes);
    if (!data)
      return fail(context, COMMRT_ERR_MEMORY, "no memory for a buffer of " + std::to_string(bytes) + " bytes");
  }
  auto buffer = std::make_unique<Buffer>();
  buffer->context = context;
  buffer->data = data;
  buffer->symmetricOffset = offset;
  buffer->bytes = bytes;
  Lock lock(context->mutex);
  context->allocated += bytes;
  context->peak = std::max(context->peak, context->allocated);
  buffer->number = registerObject(context, Owned::Kind::buffer, buffer.get());
  context->buffers.emplace(buffer->data, std::move(buffer));
  *pointer = data;
  return status;
}

int32_t commrt_alloc(commrt_context *context, int32_t kind, int64_t bytes, void **pointer) {
  if (!context || !pointer)
    return COMMRT_ERR_INVALID;
  return allocate(context, kind, bytes, SymmetricHeap::alignment, pointer);
}

//===- Arenas --------------------------------------------------------------------------------===//

static Buffer *findArena(commrt_context *context, const char *name) {
  for (auto &[known, buffer] : context->arenas)
    if (known == name)
      return buffer;
  auto constant = context->constants.find(name);
  return constant == context->constants.end() ? nullptr : constant->second;
}

int32_t commrt_constant_create(commrt_context *context, const char *name, const void *data, int64_t bytes) {
  if (!context || !name || (!data && bytes > 0))
    return COMMRT_ERR_INVALID;
  if (findArena(context, name))
    return fail(context, COMMRT_ERR_INVALID, std::string("commrt_constant_create: the program has a buffer ") + name);
  void *pointer = nullptr;
  if (int32_t status = allocate(context, COMMRT_BUFFER_PLAIN, bytes, alignment, &pointer))
    return status;
  {
    Lock lock(context->mutex);
    Buffer *buffer = findBuffer(context, pointer);
    // Not what an iteration or a call leaves behind.
    unregisterObject(context, buffer->number);
    buffer->isConstant = true;
    context->constants.emplace(name, buffer);
  }
  if (int32_t status = commrt_copy(context, pointer, data, bytes, COMMRT_COPY_TO_DEVICE, nullptr))
    return status;
  // Every stream may read it.
  return context->job->device ? waitStreams(context) : COMMRT_OK;
}

int32_t commrt_arena_create(commrt_group *group, const char *name, int64_t bytes) {
  if (!group || !name)
    return COMMRT_ERR_INVALID;
  commrt_context *context = group->context;
  if (findArena(context, name))
    return fail(context, COMMRT_ERR_INVALID, std::string("commrt_arena_create: the program has an arena ") + name);
  const commrt_device_ops *device = context->job->device;
  // Libraries register whole pages.
  constexpr int64_t page = SymmetricHeap::pageBytes;
  int64_t whole = device && bytes >= 0 && bytes <= INT64_MAX - page ? (bytes + page - 1) / page * page : bytes;
  void *pointer = nullptr, *window = nullptr;
  if (int32_t status =
          allocate(context, COMMRT_BUFFER_SYMMETRIC, whole, device ? page : SymmetricHeap::alignment, &pointer))
    return status;
  if (device && group->state && whole > 0 && COMMRT_REACHES(device, commrt_device_ops, window_destroy) &&
      device->window_create) {
    char text[512] = "";
    if (int32_t status = device->window_create(group->state, pointer, whole, &window, text, sizeof(text)))
      return fail(context, status, std::string("arena ") + name + ": " + text);
  }
  Lock lock(context->mutex);
  Buffer *buffer = findBuffer(context, pointer);
  // Not what an iteration or a call leaves behind.
  unregisterObject(context, buffer->number);
  buffer->group = group;
  buffer->window = window;
  context->arenas.emplace_back(name, buffer);
  return COMMRT_OK;
}

int32_t commrt_arena_find(commrt_context *context, const char *name, void **pointer) {
  if (!context || !name || !pointer)
    return COMMRT_ERR_INVALID;
  Buffer *buffer = findArena(context, name);
  *pointer = buffer ? buffer->data : nullptr;
  return buffer ? COMMRT_OK
                : fail(context, COMMRT_ERR_INVALID, std::string("commrt_arena_find: the program has no arena ") + name);
}

commrt_group *commrt_arena_group(commrt_context *context, const void *pointer) {
  if (!context)
    return nullptr;
  Lock lock(context->mutex);
  Buffer *buffer = findBuffer(context, pointer);
  return buffer ? buffer->group : nullptr;
}

void commsched::runtime::releaseArenas(commrt_context *context) {
  for (auto &[name, buffer] : context->arenas)
    if (void *window = std::exchange(buffer->window, nullptr))
      context->job->device->window_destroy(buffer->group->state, window);
  Lock lock(context->mutex);
  for (auto &[name, buffer] : context->arenas) {
    buffer->context->mutex.isHeld();
    releaseBuffer(buffer);
  }
  for (auto &[name, buffer] : context->constants) {
    buffer->context->mutex.isHeld();
    releaseBuffer(buffer);
  }
  context->arenas.clear();
  context->constants.clear();
}

int32_t commrt_free(commrt_context *context, void *pointer) { return commrt_free_after(context, pointer, nullptr, 0); }

int32_t commrt_free_after(commrt_context *context, void *pointer, commrt_token *const *tokens, int64_t numTokens) {
  if (!context || numTokens < 0 || (numTokens > 0 && !tokens))
    return COMMRT_ERR_INVALID;
  if (!pointer)
    return COMMRT_OK;
  bool known;
  {
    Lock lock(context->mutex);
    auto found = context->buffers.find(static_cast<char *>(pointer));
    known = found != context->buffers.end() && !found->second->released && !found->second->group &&
            !found->second->isConstant;
    if (known) {
      Buffer *buffer = found->second.get();
      unregisterObject(context, buffer->number);
      for (int64_t i = 0; i < numTokens; ++i)
        if (tokens[i] && tokens[i]->context == context && tokens[i]->pending > 0) {
          ++buffer->holds;
          tokens[i]->holds.push_back(buffer);
        }
      buffer->context->mutex.isHeld();
      releaseBuffer(buffer);
    }
  }
  if (!known)
    return fail(context, COMMRT_ERR_INVALID, "commrt_free: not a buffer of this context, or released before");
  return COMMRT_OK;
}

int64_t commrt_allocated_bytes(const commrt_context *context) {
  if (!context)
    return -1;
  Lock lock(context->mutex);
  return context->allocated;
}

int64_t commrt_peak_bytes(const commrt_context *context) {
  if (!context)
    return -1;
  Lock lock(context->mutex);
  return context->peak;
}
