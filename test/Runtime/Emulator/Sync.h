//===- Sync.h - Locks that the thread sanitizer does not see ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The emulator keeps its own state under one lock. If ThreadSanitizer saw that lock, every operation would be ordered
// with every other, and no missing wait would ever be reported. So the lock and the sleeping are made of futexes in
// code that is not instrumented, and each order that CUDA promises is told to the sanitizer by one call (Tsan below). A
// program that is built without the sanitizer pays for none of it.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_SYNC_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_SYNC_H

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace emulator {

/// A mutex over one futex word, invisible to the sanitizer.
class Lock {
public:
  void lock();
  void unlock();

private:
  std::atomic<uint32_t> word{0}; // 0: free, 1: held, 2: held and waited for
  bool tryLock();
};

/// The emulator's only lock, for all of its state.
extern Lock &stateLock();

/// Holds the lock for a block.
class Held {
public:
  Held() { stateLock().lock(); }
  ~Held() { stateLock().unlock(); }
  Held(const Held &) = delete;
  Held &operator=(const Held &) = delete;
};

/// One sleeping thread. wake() may come before sleep(), which then returns at once; sleep() may also return without it.
class Waiter {
public:
  /// Called with the state's lock held. The sleeper goes on when the lock is given up, for it would wait for it.
  void wake();
  /// Called with the state's lock held, which it gives up while it sleeps. At most `milliseconds`; -1: no limit.
  void sleep(int milliseconds);

private:
  std::atomic<uint32_t> word{0}; // 0: awake, 1: woken, 2: asleep
};

/// What the sanitizer is told. The functions do nothing where it is absent.
struct Tsan {
  static bool isThere();
  static void release(const void *tag);
  static void acquire(const void *tag);
  static void read(const void *address, size_t bytes);
  static void write(void *address, size_t bytes);
  /// Between these two this thread's accesses are the emulator's own: library functions such as memmove and free are
  /// seen by the sanitizer even if their caller is not. They nest; a lock is held between them.
  static void ignore();
  static void heed();
  /// A thread of the sanitizer's for a stream that has none of its own; null where the sanitizer is absent.
  static void *makeFiber();
  static void destroyFiber(void *fiber);
  /// What this thread does from now on, the sanitizer takes for the fiber's; returns what it was before.
  static void *enter(void *fiber);
};

} // namespace emulator

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_SYNC_H
