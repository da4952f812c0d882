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
#include "Core/Support/Compared.h"
#include "Core/Support/Guarded.h"
#include "Core/Support/Text.h"
#include "Fault.h"
#include "Kernels/Device/Functions.h"
#include "SymmetricHeap.h"
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

/// The longest timeout and delay, one year. Longer ones would overflow the clock.
constexpr int64_t longestNs = int64_t(365) * 24 * 3600 * 1'000'000'000;

/// What released memory is overwritten with on request, so that late readers show (commrt_options::poison).
constexpr int poisonByte = 0xdb;

/// A buffer of commrt_alloc. Freed when `holds` (its owner and each token that uses it) reaches zero.
struct Buffer {
  commrt_context *context;
  char *data;
  int64_t bytes;
  int64_t holds = 1;
  bool released = false;         ///< whether its owner has released it
  bool isConstant = false;       ///< whether it stays until the program's end, as an arena does
  bool abandoned = false;        ///< whether a library may still use it, so that it is never freed
  void *window = nullptr;        ///< the backend's window of an arena on a device
  int64_t number = 0;            ///< key in commrt_context::owned
  int64_t symmetricOffset = -1;  ///< offset in the symmetric heap; -1 for plain buffers
  commrt_group *group = nullptr; ///< the group whose collectives use an arena
};

/// An object that the user of a context has not released yet. `object` is a Buffer, a token or an event.
struct Owned {
  enum class Kind { buffer, token, event } kind;
  void *object;
};

/// One collective and what the core adds to it: copies of the count arrays, staging for `outer`, and its token.
struct Work {
  commrt_work base = {};
  commrt_token *token = nullptr;
  std::vector<int64_t> counts;
  std::unique_ptr<char[]> stagedIn, stagedOut;
  /// Layouts for unpacking: stagedOut is [outOuter][rowBytes[member]] for each member, userOut is [outOuter][all rows].
  char *userOut = nullptr;
  int64_t outOuter = 1;
  std::vector<int64_t> rowBytes;
  std::vector<Buffer *> buffers;
  int64_t beginNs = 0;
  /// On devices that are traced: its record, or -1; whether the trace will ask for its times, and whether it is only
  /// kept for that.
  int64_t record = -1;
  bool isTraced = false, isKept = false;
  bool isRetired = false; ///< on devices: its token is gone; guarded by the context's mutex
  /// On devices, of a rank in no subset: an event of the producer's stream, since a wait for the work still is an
  /// order, and the capture in which it was recorded.
  void *passed = nullptr;
  int64_t capture = 0;
};

/// A record of the trace whose times on the device are not known yet: those of a work, or of two timed events.
struct DeviceSpan {
  int64_t record; ///< index in the trace; of a graph: -1, as each launch adds `captured`
  Work *work = nullptr;
  void *begin = nullptr, *end = nullptr;
  size_t anchor = 0; ///< index of the anchor that the times are measured from
  commrt_trace_record captured = {};
};

/// A timed event of the default stream from which the times of later events are measured.
struct TimeAnchor {
  void *event;
  Clock::time_point made;
  int64_t ns; ///< on the device's clock, whose zero is the first anchor. -1: not known yet
};

/// Device memory that only work already on streams still uses.
struct ReturnedMemory {
  char *data;
  int64_t bytes;
};
} // namespace commsched::runtime

struct commrt_job {
  const commrt_backend *backend = nullptr;
  const commrt_device_ops *device = nullptr; ///< null if buffers are host memory
  void *library = nullptr;                   ///< the handle of dlopen
  void *state = nullptr;                     ///< the backend's
  int32_t ranks = 1, localRank = -1;
  int64_t timeoutNs = 0;
  bool trace = false, poison = false;
  bool hasOwnCores = false; ///< whether this machine has a core for each thread of its ranks, so that waits may spin
  commsched::runtime::Fault fault;
  commsched::runtime::Clock::time_point began;
  commsched::runtime::Mutex mutex;
  std::vector<bool> attached COMMRT_GUARDED_BY(mutex); ///< indexed by rank
  /// Symmetric buffers that some ranks have made and others have not made yet.
  struct Symmetric {
    int64_t bytes, offset;
    int32_t made;
  };
  std::deque<Symmetric> symmetric COMMRT_GUARDED_BY(mutex);
  int64_t firstSymmetric COMMRT_GUARDED_BY(mutex) = 0; ///< number of the first such buffer
  int32_t contexts COMMRT_GUARDED_BY(mutex) = 0;       ///< number of live contexts
};

struct commrt_token {
  commrt_context *context;
  int64_t references = 1; ///< number of user references; guarded by the context's mutex
  int64_t number = 0;     ///< key in commrt_context::owned
  int64_t pending = 0;    ///< number of works in flight; guarded by the context's mutex
  int64_t bytes = 0;      ///< of its works' blocks, on all members together
  int32_t status = COMMRT_OK;
  int64_t virtualEndNs = 0;
  std::vector<void *> outputs; ///< the outputs of its starts, in order
  /// On devices, the works that a stream waits for, until the token is destroyed. Used by the context's own thread.
  std::vector<commsched::runtime::Work *> works;
  int64_t site = -1; ///< the site of its first work, for the trace
  const char *group = "";
  std::vector<commsched::runtime::Buffer *> holds; ///< buffers that commrt_free_after keeps
  commrt_token *next = nullptr, *previous = nullptr;
};

struct commrt_stream {
  commrt_context *context;
  int32_t kind, lane;
  void *handle = nullptr;            ///< the device backend's
  std::deque<commrt_token *> tokens; ///< tokens issued here without the completed ones at the front; one reference each
  int64_t dropped = 0;               ///< number of tokens that were dropped from the front
};

struct commrt_event {
  commrt_context *context;
  commrt_stream *stream;
  int64_t end;            ///< the event is complete when the stream has dropped this many tokens
  void *handle = nullptr; ///< the device backend's event, which must be done as well
  int64_t number = 0;     ///< in commrt_context::owned
  int64_t capture = 0;    ///< number of the capture in which it was recorded; 0: in none
  bool isTimed = false;
  int64_t ns = 0; ///< of a timed event on a CPU backend: the context's clock
};

struct commrt_group {
  commrt_context *context;
  std::string name;
  int64_t number = 0;              ///< among the groups of the context, in the order in which all ranks make them
  int64_t subset = 0, subsets = 0; ///< which subset of the partition this is, and how many there are
  std::vector<int32_t> members;
  int32_t index = -1;
  void *state = nullptr; ///< the backend's state; null if index is -1
  /// On devices: where collectives and messages run. Null until somebody asks.
  std::unique_ptr<commrt_stream> streams[2];
};

struct commrt_image {
  commrt_context *context;
  std::string name;
  const void *code; ///< whose copy was loaded
  int64_t codeBytes;
  const commrt_image_kernel *kernels; ///< which were copied
  std::unordered_map<std::string, commrt_host_kernel> hostKernels;
  void *state = nullptr; ///< the device backend's
};

struct commrt_graph {
  commrt_context *context;
  void *state = nullptr;                             ///< the device backend's
  std::vector<commsched::runtime::DeviceSpan> spans; ///< of a traced job: what each launch adds to the trace
  bool hasTimes = false;                             ///< whether a launch has times that were not read
};

struct commrt_context {
  commrt_job *job;
  int32_t rank;
  void *peer = nullptr; ///< the backend's

  mutable commsched::runtime::Mutex mutex;
  std::condition_variable changed;

  // Any thread may read these at any time. They are set once, with the mutex locked.
  std::atomic<int32_t> status{COMMRT_OK};
  std::atomic<int64_t> started{0}; ///< number of starts so far, for fault injection
  std::atomic<int64_t> changes{0}; ///< number of ends of works and of errors, for waits that spin

  // Shared with the backend's threads and with callers of functions for any thread.
  std::string message COMMRT_GUARDED_BY(mutex);
  int32_t errorRank COMMRT_GUARDED_BY(mutex) = -1;
  commrt_error_handler handler COMMRT_GUARDED_BY(mutex) = nullptr;
  void *handlerUser COMMRT_GUARDED_BY(mutex) = nullptr;
  bool handled COMMRT_GUARDED_BY(mutex) = false;
  commrt_token tokens COMMRT_GUARDED_BY(mutex); ///< the head of the ring of live tokens
  int64_t inFlight COMMRT_GUARDED_BY(mutex) = 0;
  std::map<char *, std::unique_ptr<commsched::runtime::Buffer>> buffers COMMRT_GUARDED_BY(mutex);
  int64_t allocated COMMRT_GUARDED_BY(mutex) = 0;
  int64_t peak COMMRT_GUARDED_BY(mutex) = 0;
  /// Released plain buffers for reuse, by their bytes of storage.
  std::multimap<int64_t, char *> spare COMMRT_GUARDED_BY(mutex);
  /// On devices: objects that the context's own thread will return to the backend.
  std::vector<commsched::runtime::ReturnedMemory> returned COMMRT_GUARDED_BY(mutex);
  std::vector<commsched::runtime::Work *> retired COMMRT_GUARDED_BY(mutex);
  int64_t spareBytes COMMRT_GUARDED_BY(mutex) = 0;
  /// Objects by a number that only grows.
  std::map<int64_t, commsched::runtime::Owned> owned COMMRT_GUARDED_BY(mutex);
  int64_t numbers COMMRT_GUARDED_BY(mutex) = 0;
  bool abandonedSymmetric COMMRT_GUARDED_BY(mutex) = false; ///< whether the context's segments are never unmapped
  /// Injected faults: works that were started and not submitted to the backend, and the one that follows the next
  /// start.
  std::vector<commsched::runtime::Work *> dropped COMMRT_GUARDED_BY(mutex);
  commsched::runtime::Work *heldBack COMMRT_GUARDED_BY(mutex) = nullptr;
  commrt_group *heldBackGroup COMMRT_GUARDED_BY(mutex) = nullptr;
  std::vector<commrt_trace_record> trace COMMRT_GUARDED_BY(mutex);
  /// On devices that are traced, for each record: when the last member began the collective. INT64_MIN: not known.
  std::vector<int64_t> lastBegins COMMRT_GUARDED_BY(mutex);
  std::unordered_set<std::string> names COMMRT_GUARDED_BY(mutex); ///< names of the computations in the trace

  /// Locked while `peer` is described, since another thread may detach it. No other mutex of the core is locked under
  /// it.
  commsched::runtime::Mutex peerMutex;
  bool detached COMMRT_GUARDED_BY(peerMutex) =
      false; ///< whether `peer` is detached from the backend, which happens before the context ends

  // Only the context's own thread uses these.
  std::unordered_set<commrt_event *> events;
  std::map<std::pair<int32_t, int32_t>, std::unique_ptr<commrt_stream>> streams;
  std::unordered_map<std::string, std::unique_ptr<commrt_group>> groups;
  std::unordered_map<std::string, std::unique_ptr<commrt_image>> images;
  int64_t symmetricCount = 0;
  std::vector<std::pair<std::string, commsched::runtime::Buffer *>> arenas; ///< arenas in the order of their creation
  std::unordered_map<std::string, commsched::runtime::Buffer *> constants;
  commsched::runtime::SymmetricHeap symmetric;
  std::vector<std::pair<void *, int64_t>> ownSegments; ///< memory of mmap, if the backend provides no segments
  const commrt_site *sites = nullptr;
  int64_t numSites = 0;
  std::vector<commrt_site> packedSites; ///< of commrt_program_begin_packed
  std::vector<commrt_message> messages; ///< announced for the next commrt_program_begin
  bool announcesMessages = false;
  commrt_stream *stream = nullptr; ///< the stream of later starts
  commrt_token *coalescing = nullptr;
  int64_t virtualNs = 0;
  commsched::runtime::Clock::time_point crowdedUntil; ///< until then waits sleep, because other processes want the core
  int32_t failedSpins = 0, spinsToSkip = 0;           ///< of waits, by which they learn whether to spin
  bool emulatesCosts = false;
  std::unordered_set<commrt_graph *> graphs;
  bool isCapturing = false;
  int64_t captures = 0;    ///< number of captures that began
  size_t capturedFrom = 0; ///< number of `spans` when the capture began
  // On devices that are traced.
  std::vector<commsched::runtime::DeviceSpan> spans; ///< records without times
  std::vector<commsched::runtime::TimeAnchor> anchors;
  int64_t deviceZeroNs = 0; ///< the zero of the device's clock on that of the context
  int64_t clockShiftNs = 0; ///< what is added to the clock so that those of all ranks agree
  int64_t clockErrorNs = 0; ///< by how much it may differ from that of rank 0
  bool isAligning = false;  ///< whether starts are those that compare clocks
};

namespace commsched::runtime {
/// Nanoseconds since the job began.
int64_t elapsedNs(const commrt_job *job);
/// The time of the context: virtual in sim.
int64_t contextNs(const commrt_context *context);

/// Latches the error unless one is latched already, and tells the other ranks. Returns the latched status.
int32_t fail(commrt_context *context, int32_t status, const std::string &message);
/// Returns the latched status, and delivers it to the error handler the first time.
int32_t latched(commrt_context *context);

/// The backend's upcalls.
extern const commrt_host hostTable;

/// Makes a token in the context's ring with one user reference.
commrt_token *makeToken(commrt_context *context);
void retainToken(commrt_token *token);
/// Drops a reference; deletes the token when nothing is in flight.
void releaseToken(commrt_token *token);
bool isComplete(commrt_token *token);
/// Blocks until the token is complete, the deadline (reported as an error) or an error.
int32_t waitToken(commrt_token *token, int64_t timeoutNs);
/// The same for everything that this rank has in flight.
int32_t waitAll(commrt_context *context);
/// The same until `done` returns true. The context's mutex is locked while `done` is called.
int32_t waitFor(commrt_context *context, const std::function<bool()> &done);
/// Adds a started token to the stream. Amortised constant time.
void noteIssued(commrt_stream *stream, commrt_token *token);
/// Drops the completed tokens at the front of the stream's list.
void trim(commrt_stream *stream);

/// Ends a work without the backend (it was refused or dropped, or the rank is in no subset). Gives its token and
/// status.
void finishWork(Work *work, int32_t status);
/// Ends the rank as an injected fault, without telling the others why.
int32_t injectExit(commrt_context *context, const std::string &message);
/// Combines `value` with those of all ranks, in the order of ranks. Collective over the job. On an error, which
/// latches, the message begins with `what`.
int32_t combineRanks(commrt_context *context, const char *what, void *value, int64_t bytes, commrt_combine_fn combine);
/// What all ranks announce, before anything is gathered.
struct MessageExtent {
  int64_t most = 0;      ///< steps of a rank
  int64_t announces = 1; ///< 1: every rank announces its messages
};
/// Compares the announced messages of all ranks and forgets them. Collective over the job. MessageComparison.cpp.
int32_t compareMessages(commrt_context *context, const MessageExtent &extent);
/// Whether each rank is a process of its own.
bool isPerProcess(const commrt_job *job);

/// Forgets all images. Their kernels may still run. Images.cpp, own thread.
void dropImages(commrt_context *context);

// Device.cpp, for backends over devices. Own thread.

/// Notes where the producer's stream is at the start of a work that the backend does not get.
int32_t notePassed(commrt_context *context, Work &work);
/// Makes later work on the stream wait for the token's works. Returns at once.
void waitOnStream(commrt_token *token, commrt_stream *stream);
/// Makes each compute stream wait for the current work of the others. Returns at once.
void joinComputeStreams(commrt_context *context);
/// Blocks until everything on the compute streams is done, the deadline (reported as an error) or an error.
int32_t waitStreams(commrt_context *context);
/// Releases works and memory of completed tokens.
void reclaimCompleted(commrt_context *context);
/// The backend's stream, or null.
void *streamHandle(const commrt_context *context, const commrt_stream *stream);

// DeviceTrace.cpp: times on the device in place of those of the host. Own thread.

/// Whether times on the device are kept.
bool tracesDevice(const commrt_context *context);
/// Begins the clock of the device; its streams are idle.
void beginDeviceClock(commrt_context *context);
/// Brings the clocks of all ranks together. Collective over the job; blocks.
int32_t alignClocks(commrt_context *context);
/// Adds the record of a start.
void traceStart(commrt_context *context, Work &work);
/// A timed event on the stream (null: the default one); null if none is wanted or there is an error.
void *traceEvent(commrt_context *context, const commrt_stream *stream);
/// Adds a record from one of these events to another. `end` may be null: at one moment. Without both: now, on the host.
void traceEvents(commrt_context *context, int32_t kind, int64_t site, const char *name, void *begin, void *end);
/// Adds the record of a computation on the stream, from the event to now; not if `begin` is null.
void traceComputation(commrt_context *context, const char *name, void *begin, const commrt_stream *stream);
/// Fills in the times. All streams are idle.
void resolveTrace(commrt_context *context);
/// Tells all ranks when the last member of each group began each collective. Collective over the job.
int32_t exchangeBegins(commrt_context *context);
/// Forgets what has no times; the context ends.
void dropTrace(commrt_context *context);

/// Gives the events and the work of a span back.
void forgetSpan(commrt_context *context, const DeviceSpan &span);
/// Adds the records of the last launch, once it is done. Blocks.
int32_t readGraphTimes(commrt_graph &graph);
/// The next launch has times.
void beginGraphTimes(commrt_graph &graph);

/// Fails during a capture, with a message that ends with `what`; otherwise returns the latched status. Graphs.cpp.
int32_t refuseInCapture(commrt_context *context, const std::string &what);
/// Forgets a graph without waiting for its launches.
void dropGraph(commrt_graph *graph);

/// Finishes the works that an injected fault dropped.
void finishDropped(commrt_context *context, int32_t status);

/// Adds the object to those that the program has not released, and returns its number; or removes it.
int64_t registerObject(commrt_context *context, Owned::Kind kind, void *object) COMMRT_REQUIRES(context->mutex);
void unregisterObject(commrt_context *context, int64_t number) COMMRT_REQUIRES(context->mutex);

/// The buffer that `pointer` points into, or null. The context's mutex is locked.
Buffer *findBuffer(commrt_context *context, const void *pointer) COMMRT_REQUIRES(context->mutex);
/// Adds a hold to the buffer that contains `pointer`. The work keeps it until it completes.
void holdBuffer(commrt_context *context, Work &work, const void *pointer);
/// Makes a symmetric buffer, checked against those of the other ranks, once nothing in flight uses its memory.
/// `alignment` is a power of two.
int32_t allocateSymmetric(commrt_context *context, int64_t bytes, int64_t alignment, char **data, int64_t *offset);
/// Frees spare buffers until `bytes` more stay below the peak. The context's mutex is held.
void trimSpare(commrt_context *context, int64_t bytes) COMMRT_REQUIRES(context->mutex);
/// Removes the owner's hold. Called on the context's own thread with the context's mutex locked.
void releaseBuffer(Buffer *buffer) COMMRT_REQUIRES(buffer->context->mutex);
/// Releases the arenas in the order of their creation. Called on the context's own thread.
void releaseArenas(commrt_context *context);
/// Removes one hold, and frees the buffer if none is left. The context's mutex is locked.
void dropHold(Buffer *buffer) COMMRT_REQUIRES(buffer->context->mutex);

/// "all_gather of 64 x f32 on @dp (site 3, step.mlir:4:7)".
std::string describeWork(const commrt_work &work);
/// "all_gather of 64 x f32 on @dp (step.mlir:4:7)".
std::string describeSite(const commrt_site &site);

using device::mix;
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_CORE_H
