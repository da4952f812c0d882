//===- Sync.cpp - Locks that the thread sanitizer does not see --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Futexes by system call, and weak references to the sanitizer's interface.
//
//===------------------------------------------------------------------------------------------===//

#include "Sync.h"
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the sanitizer's names.
extern "C" {
__attribute__((weak)) void __tsan_acquire(void *tag);
__attribute__((weak)) void __tsan_release(void *tag);
__attribute__((weak)) void __tsan_read_range(void *address, unsigned long bytes);
__attribute__((weak)) void __tsan_write_range(void *address, unsigned long bytes);
__attribute__((weak)) void *__tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void *fiber);
__attribute__((weak)) void *__tsan_get_current_fiber();
__attribute__((weak)) void __tsan_switch_to_fiber(void *fiber, unsigned flags);
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char *file, int line);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace emulator {
static void futexWait(std::atomic<uint32_t> &word, uint32_t expected, int milliseconds) {
  timespec limit{milliseconds / 1000, (milliseconds % 1000) * 1000000L};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, milliseconds < 0 ? nullptr : &limit, nullptr, 0);
}

static void futexWake(std::atomic<uint32_t> &word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

namespace {
/// Sleepers that this thread wakes when it gives the lock up. Their waiters may be gone by then; a wake that reaches
/// somebody else is one too many, which every sleeper expects.
struct Sleepers {
  static constexpr int most = 16;
  std::atomic<uint32_t> *words[most];
  int count = 0;

  void add(std::atomic<uint32_t> &word) {
    if (count == most)
      wake();
    words[count++] = &word;
  }
  void wake() {
    for (; count > 0; --count)
      futexWake(*words[count - 1], 1);
  }
};
} // namespace
static thread_local Sleepers sleepers;

/// Who holds the lock lets go of it soon, unless it lost its processor: a system call on each side costs more than this
/// many looks.
constexpr int mostLooks = 100;

bool Lock::tryLock() {
  uint32_t free = 0;
  return word.compare_exchange_strong(free, 1, std::memory_order_acquire);
}

void Lock::lock() {
  bool isHeld = tryLock();
  for (int look = 0; !isHeld && look < mostLooks; ++look) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    isHeld = word.load(std::memory_order_relaxed) == 0 && tryLock();
  }
  while (!isHeld && word.exchange(2, std::memory_order_acquire) != 0)
    futexWait(word, 2, -1);
  Tsan::ignore();
}

void Lock::unlock() {
  Tsan::heed();
  if (word.exchange(0, std::memory_order_release) == 2)
    futexWake(word, 1);
  if (sleepers.count > 0)
    sleepers.wake();
}

Lock &stateLock() {
  static Lock *lock = new Lock; // never destroyed: workers outlive the statics
  return *lock;
}

void Waiter::wake() {
  if (word.exchange(1, std::memory_order_relaxed) == 2)
    sleepers.add(word);
}

void Waiter::sleep(int milliseconds) {
  uint32_t awake = 0;
  if (word.compare_exchange_strong(awake, 2, std::memory_order_relaxed)) {
    stateLock().unlock();
    futexWait(word, 2, milliseconds);
    stateLock().lock();
  }
  word.store(0, std::memory_order_relaxed);
}

bool Tsan::isThere() { return __tsan_release != nullptr; }

void Tsan::release(const void *tag) {
  if (__tsan_release)
    __tsan_release(const_cast<void *>(tag));
}
void Tsan::acquire(const void *tag) {
  if (__tsan_acquire)
    __tsan_acquire(const_cast<void *>(tag));
}

static thread_local int ignored = 0;

void Tsan::ignore() {
  if (!AnnotateIgnoreReadsBegin)
    return;
  ++ignored;
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
void Tsan::heed() {
  if (!AnnotateIgnoreReadsBegin)
    return;
  --ignored;
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

/// Calls the sanitizer where it heeds what this thread does.
template <typename F> static void heeded(F call) {
  int depth = ignored;
  for (int i = 0; i < depth; ++i)
    Tsan::heed();
  call();
  for (int i = 0; i < depth; ++i)
    Tsan::ignore();
}

void Tsan::read(const void *address, size_t bytes) {
  if (__tsan_read_range && bytes > 0)
    heeded([&] { __tsan_read_range(const_cast<void *>(address), bytes); });
}
void Tsan::write(void *address, size_t bytes) {
  if (__tsan_write_range && bytes > 0)
    heeded([&] { __tsan_write_range(address, bytes); });
}

void *Tsan::makeFiber() { return __tsan_create_fiber ? __tsan_create_fiber(0) : nullptr; }
void Tsan::destroyFiber(void *fiber) {
  if (fiber)
    __tsan_destroy_fiber(fiber);
}

void *Tsan::enter(void *fiber) {
  if (!fiber)
    return nullptr;
  void *before = __tsan_get_current_fiber();
  constexpr unsigned noOrder = 1;
  int depth = ignored; // which the sanitizer counts for each fiber
  for (int i = 0; i < depth; ++i)
    heed();
  __tsan_switch_to_fiber(fiber, noOrder);
  for (int i = 0; i < depth; ++i)
    ignore();
  return before;
}
} // namespace emulator
