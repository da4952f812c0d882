//===- Scope.cpp - Release of the objects that a piece of a program made ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Compiled code cannot always tell where the last use of a buffer, a token or an event is: it may leave a loop as the
// value of the next iteration, or a function as a result. It does know, at the end of each, what is still needed. So
// everything gets a number when it is made, and what was made since a moment can be given back but for a few.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"

using namespace commsched::runtime;

int64_t commsched::runtime::registerObject(commrt_context *context, Owned::Kind kind, void *object) {
  context->owned.emplace_hint(context->owned.end(), context->numbers, Owned{kind, object});
  return context->numbers++;
}

void commsched::runtime::unregisterObject(commrt_context *context, int64_t number) { context->owned.erase(number); }

int64_t commrt_mark(const commrt_context *context) {
  if (!context)
    return -1;
  Lock lock(context->mutex);
  return context->numbers;
}

/// Takes what was made since `mark` and is not kept out of the context's list. The context's mutex is held.
static std::vector<Owned> takeSince(commrt_context *context, int64_t mark, const void *const *kept, int64_t numKept)
    COMMRT_REQUIRES(context->mutex) {
  std::unordered_set<const void *> keptObjects(kept, kept + numKept);
  auto keepBuffer = [&](const void *address) {
    context->mutex.isHeld();
    if (Buffer *buffer = findBuffer(context, address))
      keptObjects.insert(buffer);
  };
  auto begin = context->owned.lower_bound(mark);
  for (int64_t i = 0; i < numKept; ++i)
    keepBuffer(kept[i]);
  for (auto it = begin; it != context->owned.end(); ++it)
    if (it->second.kind == Owned::Kind::token && keptObjects.count(it->second.object))
      for (void *output : static_cast<commrt_token *>(it->second.object)->outputs)
        keepBuffer(output);
  std::vector<Owned> taken;
  for (auto it = begin; it != context->owned.end();) {
    if (keptObjects.count(it->second.object)) {
      ++it;
      continue;
    }
    taken.push_back(it->second);
    it = context->owned.erase(it);
  }
  return taken;
}

int32_t commrt_release_since(commrt_context *context, int64_t mark, const void *const *kept, int64_t numKept) {
  if (!context || numKept < 0 || (numKept > 0 && !kept))
    return COMMRT_ERR_INVALID;
  std::vector<Owned> taken;
  {
    Lock lock(context->mutex);
    taken = takeSince(context, mark, kept, numKept);
    for (Owned &owned : taken)
      if (owned.kind == Owned::Kind::buffer) {
        auto *buffer = static_cast<Buffer *>(owned.object);
        buffer->context->mutex.isHeld();
        releaseBuffer(buffer);
      }
  }
  for (Owned &owned : taken)
    if (owned.kind == Owned::Kind::token)
      releaseToken(static_cast<commrt_token *>(owned.object));
    else if (owned.kind == Owned::Kind::event)
      commrt_event_release(static_cast<commrt_event *>(owned.object));
  return latched(context);
}
