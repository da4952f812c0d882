//===- Core.h - Contexts, tokens and buffers behind the C ABI ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The objects that the opaque handles of Runtime.h point to. Locks: a backend may call Host functions while it holds
// its own locks, so a context's mutex is innermost and no backend function is called under it.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_CORE_H
#define COMMSCHED_LIB_RUNTIME_CORE_CORE_H

#include "CommSched/Runtime/Backend.h"
#include "Fault.h"
#include "Guarded.h"
#include "SymmetricHeap.h"
#include "Text.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace commsched::runtime {
using Clock = std::chrono::steady_clock;

/// Timeouts and delays are cut to this, a year: later moments than the clock can tell would be earlier ones.
constexpr int64_t longestNs = int64_t(365) * 24 * 3600 * 1'000'000'000;

/// A buffer of commrt_alloc. Freed when `holds` (its owner and each token that uses it) reaches zero.
struct Buffer {
  commrt_context *context;
  char *data;
  int64_t bytes;
  int64_t holds = 1;
  bool released = false;         ///< by its owner
  bool abandoned = false;        ///< something outside may still use it: never freed
  void *window = nullptr;        ///< of an arena on a device: the backend's
  int64_t number = 0;            ///< in commrt_context::owned
  int64_t symmetricOffset = -1;  ///< in the symmetric heap; -1: plain
  commrt_group *group = nullptr; ///< of an arena: whose collectives it is for
};

/// Something of a context that its user has not given back yet. `object` is a Buffer, a token or an event.
struct Owned {
  enum class Kind { buffer, token, event } kind;
  void *object;
};

/// One collective with what the core adds: copies of the count arrays, staging for `outer`, its token.
struct Work {
  commrt_work base = {};
  commrt_token *token = nullptr;
  std::vector<int64_t> counts;
  std::unique_ptr<char[]> stagedIn, stagedOut;
  /// Unpack stagedOut, by member [outOuter][rowBytes[member]], into userOut [outOuter][all rows].
  char *userOut = nullptr;
  int64_t outOuter = 1;
  std::vector<int64_t> rowBytes;
  std::vector<Buffer *> buffers;
  int64_t beginNs = 0;
};

/// Device memory that nothing uses any more but what was put on streams before.
struct ReturnedMemory {
  char *data;
  int64_t bytes;
};
} // namespace commsched::runtime

struct commrt_job {
  const commrt_backend *backend = nullptr;
  const commrt_device_ops *device = nullptr; ///< null: buffers are host memory
  void *library = nullptr;                   ///< dlopen handle
  void *state = nullptr;                     ///< the backend's
  int32_t ranks = 1, localRank = -1;
  int64_t timeoutNs = 0;
  bool trace = false, poison = false;
  commsched::runtime::Fault fault;
  commsched::runtime::Clock::time_point began;
  commsched::runtime::Mutex mutex;
  std::vector<bool> attached COMMRT_GUARDED_BY(mutex); ///< by rank
  /// Symmetric buffers that some ranks have made and others not yet.
  struct Symmetric {
    int64_t bytes, offset;
    int32_t made;
  };
  std::deque<Symmetric> symmetric COMMRT_GUARDED_BY(mutex);
  int64_t firstSymmetric COMMRT_GUARDED_BY(mutex) = 0; ///< number of the first of them
  int32_t contexts COMMRT_GUARDED_BY(mutex) = 0;       ///< alive
};

struct commrt_token {
  commrt_context *context;
  int64_t references = 1; ///< the user's; under the context's mutex
  int64_t number = 0;     ///< in commrt_context::owned
  int64_t pending = 0;    ///< works in flight; under the context's mutex
  int32_t status = COMMRT_OK;
  int64_t virtualEndNs = 0;
  std::vector<void *> outputs; ///< of its starts, in order
  /// On devices, until the token goes: what a stream waits for. Own thread.
  std::vector<commsched::runtime::Work *> works;
  int64_t site = -1; ///< of its first work, for the trace
  const char *group = "";
  std::vector<commsched::runtime::Buffer *> holds; ///< of commrt_free_after
  commrt_token *next = nullptr, *previous = nullptr;
};

struct commrt_stream {
  commrt_context *context;
  int32_t kind, lane;
  void *handle = nullptr;            ///< the device backend's
  std::deque<commrt_token *> tokens; ///< issued here, completed ones at the front dropped; one reference each
  int64_t dropped = 0;               ///< how many were
};

struct commrt_event {
  commrt_context *context;
  commrt_stream *stream;
  int64_t end;            ///< complete when the stream dropped this many tokens
  void *handle = nullptr; ///< the device backend's: and when this is done, too
  int64_t number = 0;     ///< in commrt_context::owned
};

struct commrt_group {
  commrt_context *context;
  std::string name;
  std::vector<int32_t> members;
  int32_t index = -1;
  void *state = nullptr; ///< the backend's; null where index is -1
};

struct commrt_context {
  commrt_job *job;
  int32_t rank;
  void *peer = nullptr; ///< the backend's

  mutable commsched::runtime::Mutex mutex;
  std::condition_variable changed;

  // Read by any thread at any time; set once, under the mutex.
  std::atomic<int32_t> status{COMMRT_OK};
  std::atomic<int64_t> started{0}; ///< starts so far, for fault injection

  // Shared with the backend's threads and with callers of functions for any thread.
  std::string message COMMRT_GUARDED_BY(mutex);
  int32_t errorRank COMMRT_GUARDED_BY(mutex) = -1;
  commrt_error_handler handler COMMRT_GUARDED_BY(mutex) = nullptr;
  void *handlerUser COMMRT_GUARDED_BY(mutex) = nullptr;
  bool handled COMMRT_GUARDED_BY(mutex) = false;
  commrt_token tokens COMMRT_GUARDED_BY(mutex); ///< head of the ring of live tokens
  int64_t inFlight COMMRT_GUARDED_BY(mutex) = 0;
  std::map<char *, std::unique_ptr<commsched::runtime::Buffer>> buffers COMMRT_GUARDED_BY(mutex);
  int64_t allocated COMMRT_GUARDED_BY(mutex) = 0;
  int64_t peak COMMRT_GUARDED_BY(mutex) = 0;
  /// Released plain buffers, by their bytes of storage, to be used again.
  std::multimap<int64_t, char *> spare COMMRT_GUARDED_BY(mutex);
  /// On devices: what the own thread gives back to the backend when it comes by.
  std::vector<commsched::runtime::ReturnedMemory> returned COMMRT_GUARDED_BY(mutex);
  std::vector<commsched::runtime::Work *> retired COMMRT_GUARDED_BY(mutex);
  int64_t spareBytes COMMRT_GUARDED_BY(mutex) = 0;
  /// By a number that only grows.
  std::map<int64_t, commsched::runtime::Owned> owned COMMRT_GUARDED_BY(mutex);
  int64_t numbers COMMRT_GUARDED_BY(mutex) = 0;
  bool abandonedSymmetric COMMRT_GUARDED_BY(mutex) = false; ///< the own segments are never unmapped
  /// Injected faults: started, not handed to the backend; and the one of them that follows the next start.
  std::vector<commsched::runtime::Work *> dropped COMMRT_GUARDED_BY(mutex);
  commsched::runtime::Work *heldBack COMMRT_GUARDED_BY(mutex) = nullptr;
  commrt_group *heldBackGroup COMMRT_GUARDED_BY(mutex) = nullptr;
  std::vector<commrt_trace_record> trace COMMRT_GUARDED_BY(mutex);
  std::unordered_set<std::string> names COMMRT_GUARDED_BY(mutex); ///< of the trace's computations

  /// Held by who describes `peer` while another thread may detach it. No other mutex of the core is taken under it.
  commsched::runtime::Mutex peerMutex;
  bool detached COMMRT_GUARDED_BY(peerMutex) = false; ///< from the backend, before the context ends

  // The context's own thread only.
  std::unordered_set<commrt_event *> events;
  std::map<std::pair<int32_t, int32_t>, std::unique_ptr<commrt_stream>> streams;
  std::unordered_map<std::string, std::unique_ptr<commrt_group>> groups;
  int64_t symmetricCount = 0;
  std::vector<std::pair<std::string, commsched::runtime::Buffer *>> arenas; ///< in the order of their making
  commsched::runtime::SymmetricHeap symmetric;
  std::vector<std::pair<void *, int64_t>> ownSegments; ///< of mmap, where the backend gives none
  const commrt_site *sites = nullptr;
  int64_t numSites = 0;
  std::vector<commrt_site> packedSites; ///< of commrt_program_begin_packed
  commrt_stream *stream = nullptr;      ///< where starts go
  commrt_token *coalescing = nullptr;
  int64_t virtualNs = 0;
  commsched::runtime::Clock::time_point crowdedUntil; ///< others wanted the core: waits sleep
  bool emulatesCosts = false;
};

namespace commsched::runtime {
/// Nanoseconds since the job began.
int64_t elapsedNs(const commrt_job *job);
/// The time of the context: virtual in sim.
int64_t contextNs(const commrt_context *context);

/// Latches the error, unless there is one already, and tells the other ranks. Returns the latched status.
int32_t fail(commrt_context *context, int32_t status, const std::string &message);
/// The latched status; delivers it to the error handler the first time.
int32_t latched(commrt_context *context);

/// The backend's upcalls.
extern const commrt_host hostTable;

/// A new token in the context's ring with one reference of the user's.
commrt_token *makeToken(commrt_context *context);
void retainToken(commrt_token *token);
/// Drops a reference; deletes the token when nothing is in flight.
void releaseToken(commrt_token *token);
bool isComplete(commrt_token *token);
/// Blocks until the token is complete, the deadline (reported as an error) or an error.
int32_t waitToken(commrt_token *token, int64_t timeoutNs);
/// The same for all that this rank has in flight.
int32_t waitAll(commrt_context *context);
/// The same until done(), which is called under the context's mutex.
int32_t waitFor(commrt_context *context, const std::function<bool()> &done);
/// A token was started on the stream. Constant time on average.
void noteIssued(commrt_stream *stream, commrt_token *token);
/// Drops the completed tokens at the front of the stream's list.
void trim(commrt_stream *stream);

/// The token and status of a work that ends without the backend (refused, dropped, rank in no subset).
void finishWork(Work *work, int32_t status);
/// Injected fault: the rank is gone for the others, who are not told why.
int32_t vanish(commrt_context *context, const std::string &message);
/// What ranks learn when they compare a value of each: that of the lowest rank and of the first one that has another.
template <typename T> struct Compared {
  T first = {}, other = {};
  int32_t firstRank = -1, otherRank = -1; ///< otherRank -1: all are alike
  Compared() = default;
  Compared(const T &value, int32_t rank) : first(value), firstRank(rank) {}
  /// Adds the ranks of `higher` after the own ones.
  template <typename Same> void add(const Compared &higher, Same same) {
    if (otherRank >= 0)
      return;
    bool isAlike = same(first, higher.first);
    other = isAlike ? higher.other : higher.first;
    otherRank = isAlike ? higher.otherRank : higher.firstRank;
  }
};
/// Combines `value` with those of all ranks, in the order of ranks. Collective over the job. On an error, which
/// latches, the message begins with `what`.
int32_t combineRanks(commrt_context *context, const char *what, void *value, int64_t bytes, commrt_combine_fn combine);
/// Whether ranks are processes of their own.
bool isPerProcess(const commrt_job *job);

// Device.cpp, for backends over devices. Own thread.

/// What is put on the stream later waits for the token's works. Returns at once.
void waitOnStream(commrt_token *token, commrt_stream *stream);
/// Each compute stream waits for what is on the others now. Returns at once.
void joinComputeStreams(commrt_context *context);
/// Blocks until everything on the compute streams is done, the deadline (reported as an error) or an error.
int32_t waitStreams(commrt_context *context);
/// Gives works and memory back that completions left behind.
void settle(commrt_context *context);
/// The backend's stream; null where there is none.
void *streamHandle(const commrt_context *context, const commrt_stream *stream);

/// Finishes the works that an injected fault dropped.
void finishDropped(commrt_context *context, int32_t status);

/// The object belongs to the context's user from now on, under the number that is returned, or no longer. The context's
/// mutex is held.
int64_t own(commrt_context *context, Owned::Kind kind, void *object) COMMRT_REQUIRES(context->mutex);
void disown(commrt_context *context, int64_t number) COMMRT_REQUIRES(context->mutex);

/// The buffer that `pointer` points into, or null. The context's mutex is held.
Buffer *findBuffer(commrt_context *context, const void *pointer) COMMRT_REQUIRES(context->mutex);
/// The buffer that holds `pointer` gets one more hold, which the work keeps until it completes.
void holdBuffer(commrt_context *context, Work &work, const void *pointer);
/// A symmetric buffer, checked against the other ranks', when nothing in flight uses its memory any more. `alignment`
/// is a power of two.
int32_t allocateSymmetric(commrt_context *context, int64_t bytes, int64_t alignment, char **data, int64_t *offset);
/// Frees spare buffers until `bytes` more stay below the peak. The context's mutex is held.
void trimSpare(commrt_context *context, int64_t bytes) COMMRT_REQUIRES(context->mutex);
/// The owner's hold goes. Own thread, the context's mutex is held.
void releaseBuffer(Buffer *buffer) COMMRT_REQUIRES(buffer->context->mutex);
/// Releases the arenas, in the order of their making. Own thread.
void releaseArenas(commrt_context *context);
/// One hold less; frees at zero. The context's mutex is held.
void dropHold(Buffer *buffer) COMMRT_REQUIRES(buffer->context->mutex);

/// "all_gather of 64 x f32 on @dp (site 3, step.mlir:4:7)".
std::string describeWork(const commrt_work &work);
/// "all_gather of 64 x f32 on @dp (step.mlir:4:7)".
std::string describeSite(const commrt_site &site);

/// 64-bit mixing for fingerprints and signatures (the finaliser of splitmix64).
inline uint64_t mix(uint64_t hash, uint64_t value) {
  uint64_t x = hash * 0x9e3779b97f4a7c15ull + value + 0x632be59bd9b4e019ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_CORE_H
