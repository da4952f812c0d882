//===- Guarded.h - Mutexes that the compiler checks -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Clang's thread safety analysis (-Wthread-safety) as a mutex, a lock and macros: a field says which mutex guards it, a
// function which one its caller holds. Other compilers see an ordinary mutex.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_GUARDED_H
#define COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_GUARDED_H

#include <mutex>

#ifdef __clang__
#define COMMRT_ANALYSIS(attribute) __attribute__((attribute))
#else
#define COMMRT_ANALYSIS(attribute)
#endif
/// On a field: it is read and written with the mutex held.
#define COMMRT_GUARDED_BY(mutex) COMMRT_ANALYSIS(guarded_by(mutex))
/// On a function: its caller holds the mutex.
#define COMMRT_REQUIRES(mutex) COMMRT_ANALYSIS(requires_capability(mutex))

namespace commsched::runtime {
/// A std::mutex, also for condition variables.
class COMMRT_ANALYSIS(capability("mutex")) Mutex : public std::mutex {
public:
  void lock() COMMRT_ANALYSIS(acquire_capability()) { std::mutex::lock(); }
  void unlock() COMMRT_ANALYSIS(release_capability()) { std::mutex::unlock(); }
  /// Tells the analysis what it cannot see: a caller holds the mutex under another name.
  void isHeld() const COMMRT_ANALYSIS(assert_capability(this)) {}
};

/// Holds a mutex until the end of the block.
class COMMRT_ANALYSIS(scoped_lockable) Lock {
public:
  explicit Lock(Mutex &mutex) COMMRT_ANALYSIS(acquire_capability(mutex)) : mutex(mutex) { mutex.lock(); }
  ~Lock() COMMRT_ANALYSIS(release_capability()) { mutex.unlock(); }
  Lock(const Lock &) = delete;
  Lock &operator=(const Lock &) = delete;

private:
  Mutex &mutex;
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_GUARDED_H
