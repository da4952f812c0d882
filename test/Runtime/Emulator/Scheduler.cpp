//===- Scheduler.cpp - Runs operations, on threads or in a random legal order -----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Both schedulers run the operation at the head of a stream's queue once all that it waits for is done. The first has
// one thread per stream. The second has none: a host thread that enqueues, waits or asks runs some operations itself,
// of any stream, in an order that a seed decides.
//
//===------------------------------------------------------------------------------------------===//

#include "Memory.h"
#include "SharedFile.h"
#include <algorithm>
#include <csignal>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace emulator {
static thread_local Op *running = nullptr;
static thread_local Waiter hostWaiter;
/// Virtual time up to which this host thread has waited.
static thread_local int64_t hostNs = 0;

/// The period after which words are read again that the host or another process may have written, in milliseconds.
static int wordPollMs() { return isShared() ? 1 : 20; }

Op *runningOp() { return running; }

static uint32_t load(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/// True for what only passes on an order: a record or a wait. Nobody can tell when it ran, but who asks for it.
static bool isSilent(const Work &work) {
  return !work.body && work.waits.empty() && work.writes.empty() && !work.allocates && !work.frees;
}

/// Somebody asks for the operation: its worker, which silent operations have not woken, carries it out.
static void askFor(const Op &op) {
  if (machine().schedule != Schedule::Threads || op.isDone || op.stream->isAsked)
    return;
  op.stream->isAsked = true;
  op.stream->waiter.wake();
}

/// True if the operation may run. Otherwise registers the waiter, if there is one, where it will be woken.
static bool isReady(const Op &op, Waiter *waiter) {
  for (const OpRef &before : op.after)
    if (!before->isDone) {
      if (waiter) {
        before->waiters.push_back(waiter);
        askFor(*before);
      }
      return false;
    }
  for (const Word &wait : op.work.waits)
    if (load(wait.word) != wait.value) {
      if (waiter)
        machine().wordWaiters.emplace(wait.word, waiter);
      return false;
    }
  return true;
}

static void forgetWordWaits(const Op &op, const Waiter *waiter) {
  for (const Word &wait : op.work.waits) {
    auto [i, end] = machine().wordWaiters.equal_range(wait.word);
    while (i != end)
      i = i->second == waiter ? machine().wordWaiters.erase(i) : std::next(i);
  }
}

static void wakeIdle() {
  for (Waiter *waiter : machine().idle)
    waiter->wake();
}

/// Fixes what has happened before the operation, and when it begins on the virtual clock.
static void begin(Op &op) {
  Machine &m = machine();
  Stream &stream = *op.stream;
  Clock clock = join(stream.clock, op.issued);
  op.beginNs = std::max(op.readyNs, stream.lastEndNs);
  Tsan::acquire(&op);
  for (const OpRef &before : op.after) {
    clock = join(clock, before->clock);
    op.beginNs = std::max(op.beginNs, before->endNs);
    Tsan::acquire(before.get());
  }
  for (const Word &wait : op.work.waits) {
    clock = join(clock, m.wordClocks[wait.word]);
    op.beginNs = std::max(op.beginNs, m.wordNs[wait.word]);
    Tsan::acquire(wait.word);
  }
  op.clock = stream.clock = join(clock, std::make_shared<ClockEntries>(ClockEntries{{stream.id, op.number}}));
  checkUses(op);
}

static void end(const OpRef &op) {
  Machine &m = machine();
  Stream &stream = *op->stream;
  int64_t durationNs = withNoise(op->work.durationNs, *op);
  op->endNs = op->beginNs + durationNs;
  if (hasContention()) {
    std::vector<OpRef> after = op->after;
    if (stream.lastDone)
      after.push_back(stream.lastDone);
    for (const Word &wait : op->work.waits)
      if (auto writer = m.wordWriters.find(wait.word); writer != m.wordWriters.end())
        after.push_back(writer->second);
    noteTimes(op, std::move(after), durationNs);
    stream.lastDone = op;
    for (const Word &write : op->work.writes)
      m.wordWriters[write.word] = op;
  }
  stream.lastEndNs = op->endNs;
  for (const Word &write : op->work.writes) {
    m.wordClocks[write.word] = join(m.wordClocks[write.word], op->clock);
    m.wordNs[write.word] = std::max(m.wordNs[write.word], op->endNs);
    Tsan::release(write.word);
    __atomic_store_n(write.word, write.value, __ATOMIC_RELEASE);
    auto [i, last] = m.wordWaiters.equal_range(write.word);
    for (; i != last; ++i)
      i->second->wake();
  }
  if (op->work.frees)
    releaseStorage(*op->work.frees);
  Tsan::release(op.get());
  op->isDone = true;
  op->stream = nullptr;
  op->after.clear();
  op->work = {};
  for (Waiter *waiter : op->waiters)
    waiter->wake();
  op->waiters.clear();
  wakeIdle();
}

/// The stack of a fiber, in bytes: kernels keep their data elsewhere.
constexpr size_t fiberStackBytes = size_t(256) << 10;
static thread_local const std::function<void()> *fiberBody = nullptr;

/// The sanitizer would see accesses of one stack by several of its threads, so that each fiber has its own stack.
static void runOnStack(void *stack, const std::function<void()> &body) {
  if (!stack) {
    body();
    return;
  }
  ucontext_t here, there;
  getcontext(&there);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = fiberStackBytes;
  there.uc_link = &here;
  fiberBody = &body;
  makecontext(&there, [] { (*fiberBody)(); }, 0);
  swapcontext(&here, &there);
}

/// Runs the head of the stream's queue, which is ready.
static void runHead(Stream &stream) {
  OpRef op = stream.queue.front();
  stream.isBusy = true;
  void *host = Tsan::enter(stream.fiber);
  begin(*op);
  if (op->work.body) {
    stateLock().unlock();
    running = op.get();
    {
      InFunction name(op->work.name);
      runOnStack(stream.stack, op->work.body);
    }
    running = nullptr;
    stateLock().lock();
  }
  stream.queue.pop_front();
  stream.isBusy = false;
  end(op);
  Tsan::enter(host);
}

static void destroy(Stream *stream) {
  machine().allStreams.erase(stream);
  Tsan::destroyFiber(stream->fiber);
  if (stream->stack)
    munmap(stream->stack, fiberStackBytes);
  delete stream;
}

static void *worker(void *argument) {
  Stream &stream = *static_cast<Stream *>(argument);
  pthread_setname_np(pthread_self(), "emulated stream"); // for debuggers and profiles
  stateLock().lock();
  while (true) {
    if (stream.queue.empty()) {
      if (stream.isClosing)
        break;
      stream.isAsked = false;
      stream.waiter.sleep(-1);
      continue;
    }
    OpRef op = stream.queue.front();
    if (isReady(*op, &stream.waiter)) {
      runHead(stream);
      continue;
    }
    stream.waiter.sleep(op->work.waits.empty() ? -1 : wordPollMs());
    forgetWordWaits(*op, &stream.waiter);
  }
  destroy(&stream);
  stateLock().unlock();
  return nullptr;
}

static void startWorker(Stream *stream) {
  // Signals of the program go to its own threads.
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    sigdelset(&blocked, signal);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  int status = pthread_create(&thread, &attributes, worker, stream);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (status != 0)
    report("cannot start a thread for a stream: error " + std::to_string(status));
}

Stream *makeStream(int device, unsigned flags, int priority, bool isInternal) {
  Machine &m = machine();
  auto *stream = new Stream;
  stream->id = m.nextStream++;
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  stream->isInternal = isInternal;
  stream->rank = m.random();
  m.allStreams.insert(stream);
  if (!isInternal)
    m.streams.insert(stream);
  if (m.schedule == Schedule::Threads) {
    startWorker(stream);
    return stream;
  }
  stream->fiber = Tsan::makeFiber();
  if (stream->fiber)
    stream->stack = mmap(nullptr, fiberStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return stream;
}

void closeStream(Stream *stream) {
  machine().streams.erase(stream);
  stream->isClosing = true;
  if (machine().schedule == Schedule::Threads)
    stream->waiter.wake();
  else if (stream->queue.empty())
    destroy(stream);
}

//===- The random schedule ---------------------------------------------------------------------===//

/// The policies of the random schedule; the seed picks one.
enum Policy : int { kAnyTime, kByPriority, kLate };

static bool canRun(const Stream &stream) {
  return !stream.isBusy && !stream.queue.empty() && isReady(*stream.queue.front(), nullptr);
}

/// The streams whose head must run, and can, before the operation can be done.
static void needed(const Op &op, std::set<Stream *> &seen, std::vector<Stream *> &result) {
  if (op.isDone || !seen.insert(op.stream).second)
    return;
  if (canRun(*op.stream))
    result.push_back(op.stream);
  else if (!op.stream->queue.empty())
    for (const OpRef &before : op.stream->queue.front()->after)
      needed(*before, seen, result);
}

/// Runs one operation, one that `target` needs if the policy is the late one; false if none can run.
static bool step(const Op *target) {
  Machine &m = machine();
  std::vector<Stream *> choice;
  std::set<Stream *> seen;
  if (m.policy == kLate && target)
    needed(*target, seen, choice);
  if (choice.empty())
    for (Stream *stream : m.allStreams)
      if (canRun(*stream))
        choice.push_back(stream);
  if (choice.empty())
    return false;
  // Sets of pointers have another order in every run; numbers of streams do not.
  std::sort(choice.begin(), choice.end(), [](Stream *a, Stream *b) { return a->id < b->id; });
  Stream *chosen = choice[m.random() % choice.size()];
  if (m.policy == kByPriority) {
    chosen = *std::max_element(choice.begin(), choice.end(), [](Stream *a, Stream *b) { return a->rank < b->rank; });
    if (m.random() % 16 == 0)
      chosen->rank = m.random();
  }
  runHead(*chosen);
  if (chosen->isClosing && chosen->queue.empty() && !chosen->isBusy)
    destroy(chosen);
  return true;
}

/// A host call is an occasion for other operations to run.
static void mayStep() {
  Machine &m = machine();
  if (m.schedule == Schedule::Random && m.policy != kLate)
    while (m.random() % 2 == 0 && step(nullptr)) {
    }
}

//===- Issuing and waiting ---------------------------------------------------------------------===//

namespace {
/// Memory of operations that are gone is used for the next ones: one thread makes them and another one ends them, which
/// general allocators are slow at. With the lock. Not under the sanitizer, to which a new address is a new operation.
template <typename T> struct Pool {
  using value_type = T;
  static constexpr size_t most = 4096;
  /// Never destroyed: the streams' threads outlive the statics.
  static std::vector<void *> &spare() {
    static auto *list = new std::vector<void *>;
    return *list;
  }

  Pool() = default;
  template <typename U> Pool(const Pool<U> &) {}
  T *allocate(size_t count) {
    if (count > 1 || spare().empty())
      return std::allocator<T>().allocate(count);
    void *memory = spare().back();
    spare().pop_back();
    return static_cast<T *>(memory);
  }
  void deallocate(T *memory, size_t count) {
    if (count > 1 || spare().size() >= most || Tsan::isThere())
      std::allocator<T>().deallocate(memory, count);
    else
      spare().push_back(memory);
  }
  template <typename U> bool operator==(const Pool<U> &) const { return true; }
};
} // namespace

OpRef enqueue(Stream *stream, Work work, std::vector<OpRef> after) {
  Machine &m = machine();
  OpRef op = std::allocate_shared<Op>(Pool<Op>());
  op->work = std::move(work);
  op->stream = stream;
  op->streamId = stream->id;
  op->number = ++stream->issued;
  op->issued = m.hostClock;
  op->readyNs = hostNs;
  // The legacy default stream waits for all blocking streams of its device, and they for it.
  if (stream->isDefault) {
    for (Stream *other : m.allStreams)
      if (other != stream && other->device == stream->device && !(other->flags & cudaStreamNonBlocking) && other->last)
        after.push_back(other->last);
  } else if (!(stream->flags & cudaStreamNonBlocking)) {
    if (Stream *standard = m.devices[stream->device].defaultStream; standard && standard->last)
      after.push_back(standard->last);
  }
  // Those that are done already must still be told to the sanitizer.
  after.erase(std::remove(after.begin(), after.end(), nullptr), after.end());
  op->after = std::move(after);
  noteUses(*op);
  Tsan::release(op.get());
  stream->last = op;
  stream->queue.push_back(op);
  if (!isSilent(op->work))
    askFor(*op);
  wakeIdle();
  mayStep();
  return op;
}

/// The host has seen that the operation is done.
static void learn(const Op &op) {
  Machine &m = machine();
  if (!isIn(m.hostClock, op.streamId, op.number))
    m.hostClock = join(m.hostClock, op.clock);
  Tsan::acquire(&op);
}

void waitFor(const OpRef &op) {
  if (!op)
    return;
  Machine &m = machine();
  while (!op->isDone) {
    if (m.schedule == Schedule::Random && step(op.get()))
      continue;
    if (m.schedule == Schedule::Threads) {
      askFor(*op);
      op->waiters.push_back(&hostWaiter);
      hostWaiter.sleep(-1);
    } else {
      m.idle.insert(&hostWaiter);
      hostWaiter.sleep(wordPollMs());
      m.idle.erase(&hostWaiter);
    }
  }
  learn(*op);
  // A query that happens to find the operation done tells no time: how often one asks depends on the machine.
  hostNs = std::max(hostNs, op->endNs);
}

bool query(const OpRef &op) {
  if (!op)
    return true;
  Machine &m = machine();
  if (m.schedule == Schedule::Random && !op->isDone && m.random() % 2 == 0)
    step(op.get());
  askFor(*op);
  if (op->isDone)
    learn(*op);
  return op->isDone;
}
} // namespace emulator
