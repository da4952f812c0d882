//===- RankThreads.cpp - One thread per rank --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A gate that opens when all threads stand before it.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/RankThreads.h"
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <vector>

using namespace llvm;
using namespace commsched;

namespace {
/// What a thread of runOnThreads waits for.
struct Gate {
  enum State { closed, open, cancelled };
  std::mutex mutex;
  std::condition_variable changed;
  State state = closed;
  function_ref<void(size_t)> body;
};

struct Ticket {
  Gate *gate;
  size_t index;
};
} // namespace

static void *passGate(void *argument) {
  auto *ticket = static_cast<Ticket *>(argument);
  Gate &gate = *ticket->gate;
  {
    std::unique_lock<std::mutex> lock(gate.mutex);
    gate.changed.wait(lock, [&] { return gate.state != Gate::closed; });
    if (gate.state == Gate::cancelled)
      return nullptr;
  }
  gate.body(ticket->index);
  return nullptr;
}

Error commsched::runOnThreads(size_t count, function_ref<void(size_t)> body) {
  Gate gate;
  gate.body = body;
  std::vector<Ticket> tickets(count);
  std::vector<pthread_t> threads(count);
  size_t started = 0;
  int code = 0;
  for (; started < count && code == 0; started += code == 0) {
    tickets[started] = {&gate, started};
    code = pthread_create(&threads[started], nullptr, passGate, &tickets[started]);
  }
  {
    std::lock_guard<std::mutex> lock(gate.mutex);
    gate.state = code == 0 ? Gate::open : Gate::cancelled;
  }
  gate.changed.notify_all();
  for (size_t i = 0; i < started; ++i)
    pthread_join(threads[i], nullptr);
  if (code != 0)
    return createStringError("no thread for rank " + Twine(started) + " of " + Twine(count) + ": " +
                             std::strerror(code));
  return Error::success();
}
