//===- NcclJob.h - Ranks, groups and works of the nccl backend --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A rank has one communicator and one stream per group for collectives, and one more of each for messages. A start puts
// work on a stream behind an event of the producer, and ends with an event that waits make their stream wait for.
//
// Locks, from the outer to the inner one: NcclPeer::issuing (who calls NCCL), NcclPeer::mutex (what is in flight), the
// core's. Nothing of the control plane is called under NcclPeer::mutex.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_NCCL_NCCLJOB_H
#define COMMSCHED_LIB_RUNTIME_NCCL_NCCLJOB_H

#include "CommSched/Runtime/Backend.h"
#include "Core/Support/Guarded.h"
#include "Nccl/Libraries/MatrixLibrary.h"
#include "Nccl/Libraries/NcclSymbols.h"
#include "NcclControl.h"
#include "NcclMatcher.h"
#include "NcclOptions.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace commsched::runtime {
struct NcclJob;
struct NcclPeer;
struct NcclGroup;
struct NcclLane;
struct Shadow;
struct NcclGraph;
struct NcclImage;
struct LoadedKernel;

/// Directions of copies, values of CUDA's cudaMemcpyKind.
inline constexpr int toDevice = 1, toHost = 2, onDevice = 3;

/// A part of pinned host memory.
struct PinnedBlock {
  char *data = nullptr;
  size_t bytes = 0;
};

/// What the host computes in the order of a stream: a reduction in the order of ranks, in pinned memory.
struct HostReduction {
  commrt_work how; ///< type, reduction, scale
  std::vector<const void *> ins;
  void *out;
  int64_t count;
};

/// An injected fault: how long a host function keeps the stream.
struct StreamDelay {
  NcclPeer *peer = nullptr;
  int64_t ns = 0;
};

/// One launch on a lane: one work, or those of a coalesced list that share a communicator. It ends with an event.
struct NcclFlight {
  NcclPeer *peer;
  NcclLane *lane = nullptr; ///< null for a work that moves nothing; `done` is on the producer's stream
  cudaEvent *begin = nullptr, *done = nullptr;
  std::chrono::steady_clock::time_point issued, begun;
  bool hasBegun = false;
  std::string what; ///< a launch of a graph, for messages; it has no works
  /// In a capture, of a traced job: the timed event of its end, and `begin` is that of its begin at each launch.
  cudaEvent *ended = nullptr;
  const NcclGraph *graph = nullptr; ///< what it is a part of
  /// A start of it failed while NCCL was in progress. Until the abort has returned NCCL may still put it on the stream,
  /// so `done` is recorded behind the abort, and scratch memory lives until then. Own thread.
  bool isUnsettled = false;
  std::vector<std::pair<void *, int64_t>> scratches; ///< with their bytes; of an unsettled flight
  /// Not yet completed. Under the peer's mutex.
  std::vector<commrt_work *> works;
  /// Works that the core has not given back, and the lane's queue. Under the peer's mutex.
  int32_t references = 1;
  /// Streams that wait for `done` already. Own thread.
  std::vector<void *> waited;
  StreamDelay delay;
  std::vector<PinnedBlock> pinned;
  std::vector<std::unique_ptr<HostReduction>> reductions;
};

/// One line of the flight record.
struct FlightEntry {
  WorkCopy work;
  int64_t number;
  std::chrono::steady_clock::time_point issued, begun, done;
  bool hasBegun, isDone;
};

/// The works of one communicator, in the order of its stream.
struct NcclLane {
  NcclGroup *group = nullptr;
  ncclComm *comm = nullptr; ///< null for one member
  cudaStream *stream = nullptr;
  void *barrier = nullptr;                        ///< device memory of a barrier's element
  std::map<std::pair<int, uint64_t>, int> scaled; ///< NCCL's operation by type and bits of the scale
  int64_t started = 0;
  std::deque<NcclFlight *> flights; ///< not done, oldest first. Under the peer's mutex
  std::deque<FlightEntry> record;   ///< the last ones. Under the peer's mutex
};

struct NcclGroup {
  NcclPeer *peer;
  std::string name;
  std::vector<int32_t> members; ///< ranks
  int32_t index;
  NcclLane collectives, messages;
  Meeting *meeting = nullptr; ///< null where ranks are processes
  void *shadows = nullptr;    ///< the control plane's group, if starts are compared there
  int64_t size() const { return static_cast<int64_t>(members.size()); }
};

/// What was captured, from the begin of its capture.
struct NcclGraph {
  void *exec = nullptr; ///< null until it is captured
  int64_t launches = 0;
  std::vector<NcclFlight *> flights; ///< one reference each
  std::vector<void *> memory;        ///< what the program allocated in the capture
  /// Memory that was given back, of the program and of works, by the stream of its last use and its bytes.
  std::multimap<std::pair<cudaStream *, int64_t>, void *> pool;
};

/// A work that was submitted and not yet put on its lane.
struct PendingWork {
  NcclGroup *group;
  commrt_work *work;
};

/// One rank.
struct NcclPeer {
  NcclPeer();
  ~NcclPeer();

  NcclJob *job;
  int32_t rank;
  int device;
  const commrt_host *host;
  void *context;
  Mutex hostMutex;                                       ///< held while the core is told of an error
  bool hasDetached COMMRT_GUARDED_BY(hostMutex) = false; ///< the core's context may be gone
  Mutex controlMutex;                                    ///< abort may come from any thread, and not after detach
  /// The control plane's peer; null once it is detached. The rank's own thread alone changes it, with the mutex held,
  /// and reads it without.
  void *control = nullptr;

  // Own thread.
  ncclComm *world = nullptr;
  std::vector<std::unique_ptr<NcclGroup>> groups;
  std::map<std::pair<int32_t, int32_t>, cudaStream *> streams;
  bool isGrouping = false;
  std::vector<PendingWork> grouped;  ///< between group_begin and group_end
  std::vector<PendingWork> messages; ///< sends and receives that wait for more of them
  std::vector<Shadow *> shadows;     ///< not yet presented
  NcclFlight *newest = nullptr;      ///< where only one group may be in flight: its last start
  std::vector<std::pair<ncclComm *, void *>> windows;
  std::vector<std::unique_ptr<NcclImage>> images; ///< loaded, or perhaps still running
  std::unique_ptr<MatrixLibrary> products;        ///< null until the first product
  NcclImage *kernels = nullptr;                   ///< the runtime's own
  std::string noKernels;                          ///< why there are none
  NcclGraph *capture = nullptr;                   ///< what is being captured
  std::vector<std::unique_ptr<NcclGraph>> graphs;
  std::map<void *, std::pair<NcclGraph *, int64_t>> graphMemory; ///< the graph and bytes of memory of live graphs
  cudaStream *graphStream = nullptr;                             ///< on which that memory is made
  NcclLane graphLane;                                            ///< the launches
  PinnedBlock bounce[2];
  cudaEvent *bounced[2] = {nullptr, nullptr};

  /// Held by the thread that calls functions of NCCL that start or end something.
  Mutex issuing;
  bool isAborted COMMRT_GUARDED_BY(issuing) = false; ///< the communicators are gone

  std::atomic<int32_t> failing{COMMRT_OK}; ///< the error that ends this rank's works
  std::atomic<int64_t> openShadows{0};     ///< presented, and not compared with all others

  Mutex mutex;
  std::condition_variable changed;
  std::vector<NcclLane *> lanes COMMRT_GUARDED_BY(mutex);
  std::vector<cudaEvent *> spareEvents COMMRT_GUARDED_BY(mutex), spareTimedEvents COMMRT_GUARDED_BY(mutex);
  std::vector<cudaEvent *> allEvents COMMRT_GUARDED_BY(mutex);
  std::set<cudaEvent *> timedEvents COMMRT_GUARDED_BY(mutex); ///< those of allEvents that keep their time
  std::vector<PinnedBlock> sparePinned COMMRT_GUARDED_BY(mutex), allPinned COMMRT_GUARDED_BY(mutex);
  std::chrono::steady_clock::time_point lastProgress COMMRT_GUARDED_BY(mutex) = std::chrono::steady_clock::now();
  enum class Abort { none, running, returned, lost };
  Abort abort COMMRT_GUARDED_BY(mutex) = Abort::none;
  std::chrono::steady_clock::time_point abortDeadline COMMRT_GUARDED_BY(mutex);
  bool isQuiet COMMRT_GUARDED_BY(mutex) = false; ///< after an abort: every work was completed or abandoned
  std::atomic<bool> isPast{false};               ///< after an abort: its streams are past their works
  std::atomic<bool> isDone{false};               ///< left; the watchdog has nothing to do with it any more

  /// "cudaMalloc failed: out of memory".
  std::string cudaError(const char *what, int result) const;
  std::string ncclError(const char *what, int result, ncclComm *comm) const;
  /// Makes the rank's device the one of the calling thread.
  void enter() const;
};

struct NcclJob : std::enable_shared_from_this<NcclJob> {
  NcclLibraries libraries;
  NcclControl control;
  int32_t ranks = 1, localRank = -1;
  int64_t timeoutNs = 0;
  bool exact = false;               ///< reductions run in rank order
  bool isTraced = false;            ///< the events of works keep their time
  bool blocking = false;            ///< communicators block: for comparison
  bool isSerial = false;            ///< NCCL cannot keep the launch order: one group in flight at a time
  NcclOptions options;              ///< of communicators; equal on all ranks
  std::string recordPath;           ///< of flight records; empty: none are written
  std::unique_ptr<Matcher> matcher; ///< where all ranks live in this process

  std::atomic<bool> hasFailed{false}; ///< an error is on its way to all ranks
  Mutex mutex;
  /// By rank; null: not here. They live until close.
  std::vector<std::unique_ptr<NcclPeer>> peers COMMRT_GUARDED_BY(mutex);
  /// Left, and the last rank here to leave finalizes their communicators.
  std::vector<NcclPeer *> ending COMMRT_GUARDED_BY(mutex);
  int32_t left COMMRT_GUARDED_BY(mutex) = 0; ///< ranks here that have left
  struct Segment {
    NcclPeer *peer;
    void *base;
    bool isNccl;
  };
  std::vector<Segment> segments COMMRT_GUARDED_BY(mutex);

  // The watchdog.
  Mutex watchMutex;
  std::condition_variable watchChanged;
  bool isStopping COMMRT_GUARDED_BY(watchMutex) = false, wasNotified COMMRT_GUARDED_BY(watchMutex) = false;
  std::thread watchdog;

  std::vector<NcclPeer *> attached();
  const NcclApi &nccl() const { return libraries.nccl; }
  const CudaApi &cuda() const { return libraries.cuda; }
};

//===- NcclErrors.cpp ------------------------------------------------------------------------===//

/// Tells the rank's core of an error, unless it has left. Any thread.
void tellCore(NcclPeer &peer, int32_t status, int32_t rank, const char *message);
/// Tells every rank of this process but `except` (may be null) of an error that began at `rank`, and ends all works.
void failHere(NcclJob &job, const NcclPeer *except, int32_t status, int32_t rank, const std::string &message);
/// Ends the job on all ranks; `origin` is where it was noticed, `rank` where it began.
void raiseError(NcclPeer &origin, int32_t status, int32_t rank, const std::string &message);
/// Tells the ranks of other processes.
void tellOthers(NcclPeer &origin, int32_t status, const std::string &message);
/// The rank's works end with the error, soon, by the watchdog. Any thread, any locks but the watchdog's.
void failPeer(NcclPeer &peer, int32_t status);

//===- NcclEvents.cpp ------------------------------------------------------------------------===//

/// An event of the pool; null with an error. Any thread. `isTimed`: one that keeps its time.
cudaEvent *takeEvent(NcclPeer &peer, std::string &error, bool isTimed = false);
void releaseEvent(NcclPeer &peer, cudaEvent *event);
/// The same with the peer's mutex held.
void releaseEventLocked(NcclPeer &peer, cudaEvent *event) COMMRT_REQUIRES(peer.mutex);
/// Records an event of the pool on the stream; null with an error.
cudaEvent *recordEvent(NcclPeer &peer, cudaStream *stream, std::string &error, bool isTimed = false);
/// What is put on the stream later waits for the event; an error text.
std::string awaitEvent(NcclPeer &peer, cudaStream *stream, cudaEvent *event);
/// 1: done, 0: not, -1: an error of the device, with its text.
int queryEvent(NcclPeer &peer, cudaEvent *event, std::string &error);
/// Pinned memory of at least `bytes`, of the pool. data is null with an error.
PinnedBlock takePinned(NcclPeer &peer, size_t bytes, std::string &error);
void releasePinnedLocked(NcclPeer &peer, const PinnedBlock &block) COMMRT_REQUIRES(peer.mutex);
/// The stream; the highest priority for communication.
cudaStream *makeStream(NcclPeer &peer, bool isUrgent, std::string &error);

//===- NcclComms.cpp -------------------------------------------------------------------------===//

/// Calls NCCL's functions for groups; the text is empty or an error.
int32_t createGroup(NcclPeer &peer, const char *name, const int32_t *members, int32_t size, int32_t index,
                    NcclGroup **group, std::string &error);
/// Waits until nothing of the communicator is in progress. A status with its text.
int32_t awaitComm(NcclPeer &peer, ncclComm *comm, std::string &error);
/// The same until a moment.
int32_t awaitComm(NcclPeer &peer, ncclComm *comm, std::chrono::steady_clock::time_point deadline, std::string &error);
/// Ends communicators on which nothing is in flight. False: they have to be aborted.
bool finalizeComms(NcclPeer &peer);
/// Ends communicators at once: revokes all of them, so that none waits for another one's operations, where NCCL can.
/// Holds `issuing`; may take for ever in NCCL.
void abortComms(NcclPeer &peer);

//===- NcclStart.cpp -------------------------------------------------------------------------===//

int32_t submitWork(NcclGroup &group, commrt_work *work);
/// Puts the messages that wait for more of them on their lanes.
void flushMessages(NcclPeer &peer);
/// Puts works on their lanes, those of one communicator as one launch. Takes their completion on.
/// Records `done` of unsettled flights. NCCL puts nothing on streams any more. Any thread that has entered the device.
void closeUnsettled(NcclPeer &peer);
void issueWorks(NcclPeer &peer, const std::vector<PendingWork> &works);
/// Between the two, submitted works are kept; the second puts them on their lanes.
int32_t beginGroup(NcclPeer &peer);
int32_t endGroup(NcclPeer &peer);
int32_t awaitWork(NcclPeer &peer, commrt_work *work, cudaStream *stream);
void releaseWork(commrt_work *work);
/// The launch that the work is part of; null if it is on no stream.
NcclFlight *flightOf(const commrt_work &work);

//===- NcclCheck.cpp -------------------------------------------------------------------------===//

/// The control plane's group for a group whose starts are compared there. The same call on all ranks.
int32_t createShadowGroup(NcclGroup &group, const int32_t *members, int32_t size, std::string &error);
/// After the control plane has let the rank go.
void destroyShadowGroups(NcclPeer &peer);
/// A start, in the order in which NCCL will see it. Own thread, as all but endShadow.
void noteStart(NcclGroup &group, const commrt_work &work);
/// Presents what was noted; never blocks.
void presentShadows(NcclPeer &peer);
/// The control plane has done with a shadow. Any thread.
void endShadow(commrt_work &work);
/// Presents what was noted and waits until it was compared, an error, or the timeout: a rank that left would be missed.
void finishShadows(NcclPeer &peer);

//===- NcclGraphs.cpp ------------------------------------------------------------------------===//

/// While it lives, the calling thread may call what a capture forbids: calls that have nothing to do with it.
class RelaxedCapture {
public:
  explicit RelaxedCapture(NcclPeer &peer);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture &) = delete;
  RelaxedCapture &operator=(const RelaxedCapture &) = delete;

private:
  NcclPeer &peer;
  int mode;
  void exchange();
};

int32_t beginCapture(NcclPeer &peer, std::string &error);
/// Brings a stream that was made during the capture into it.
std::string joinCapture(NcclPeer &peer, cudaStream *stream);
/// A stream waits for the captured flight: its works are complete.
void completeCaptured(NcclFlight &flight, int32_t status);
/// Ends the capture, if there is one, and completes its works.
int32_t endCapture(NcclPeer &peer, NcclGraph **result, std::string &error);
int32_t launchGraph(NcclPeer &peer, NcclGraph &graph, std::string &error);
/// After an error the graph stays until close.
void destroyGraph(NcclPeer &peer, NcclGraph *graph);
void freeGraph(NcclPeer &peer, NcclGraph &graph);
/// No graph is launched any more. NCCL ends a communicator only after the graphs with its calls: what runs still ends.
void endGraphs(NcclPeer &peer) COMMRT_REQUIRES(peer.issuing);
/// Memory of the program during a capture; 0 or CUDA's error.
int takeGraphMemory(NcclPeer &peer, int64_t bytes, cudaStream *stream, void **pointer);
/// Gives memory back that belongs to a graph; false if it does not.
bool releaseGraphMemory(NcclPeer &peer, void *pointer, cudaStream *stream);
/// Memory for what is on the lane between the two calls; 0 or CUDA's error.
int takeScratch(NcclPeer &peer, cudaStream *stream, int64_t bytes, void **pointer);
int releaseScratch(NcclPeer &peer, cudaStream *stream, int64_t bytes, void *pointer);

//===- NcclWatch.cpp -------------------------------------------------------------------------===//

/// Completes what is done; the peer's mutex is held.
void collectDone(NcclPeer &peer) COMMRT_REQUIRES(peer.mutex);
void dropFlightLocked(NcclFlight *flight);
void startWatchdog(NcclJob &job);
void stopWatchdog(NcclJob &job);
void notifyWatchdog(NcclJob &job);
/// What the rank waits for, as text. Any thread.
std::string describePeer(NcclPeer &peer);
/// What the rank has in flight, oldest first on each lane: "all_reduce of ... (site 0, step.mlir:1:1) has begun". Empty
/// if nothing is. Any thread that holds neither the peer's mutex nor a lock of the control plane's.
std::string describeFlights(NcclPeer &peer);
/// Ends all works of a rank that leaves. Own thread; blocks, at most as long as an abort may take.
void cancelAll(NcclPeer &peer, int32_t status);

//===- NcclImages.cpp ------------------------------------------------------------------------===//

/// A status with its text.
int32_t loadImage(NcclPeer &peer, const commrt_image_info &info, NcclImage **image, std::string &error);
/// Unless it is idle, the image stays until freeImages.
void unloadImage(NcclPeer &peer, NcclImage *image, bool isIdle);
int32_t launchKernel(NcclPeer &peer, NcclImage &image, const commrt_kernel_call &call, cudaStream *stream,
                     std::string &error);
/// The two halves of launchKernel: finds the kernel of an image, and puts it on the stream; gives 0 or CUDA's error.
int32_t prepareKernel(NcclPeer &peer, NcclImage &image, const char *name, int64_t sharedBytes, LoadedKernel **kernel,
                      std::string &error);
int launchPrepared(NcclPeer &peer, LoadedKernel &kernel, const commrt_kernel_call &call, cudaStream *stream);
/// The kernels of lib/Runtime/Kernels/Device, loaded at the first call. A status with its text, the same each time.
int32_t findKernels(NcclPeer &peer, NcclImage **image, std::string &error);
/// A product by cuBLASLt; COMMRT_ERR_UNSUPPORTED if it has no part in it.
int32_t multiplyByLibrary(NcclPeer &peer, const commrt_product &product, cudaStream *stream, std::string &error);
/// Once nothing runs on the device.
void freeImages(NcclPeer &peer);

/// The operations of the table.
extern const commrt_device_ops ncclDeviceOps;
int32_t createNcclSegment(void *peer, int64_t index, int64_t bytes, void **base, char *message, size_t size);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_NCCL_NCCLJOB_H
