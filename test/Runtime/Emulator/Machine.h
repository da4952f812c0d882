//===- Machine.h - Devices, streams, operations, events ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The state of the emulated machine. Everything here is guarded by stateLock(), except that an operation's body runs
// without it. Two schedulers work on the same state: one thread per stream, or no thread at all and a random legal
// order.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_MACHINE_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_MACHINE_H

#include "CudaTypes.h"
#include "Report.h"
#include "Sync.h"
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace emulator {
struct Allocation;
struct Capture;
struct Graph;
struct GraphExec;
struct Stream;

/// What has certainly happened: of each stream, how many of its operations. Sorted by stream; shared, never changed.
using ClockEntries = std::vector<std::pair<uint32_t, uint64_t>>;
using Clock = std::shared_ptr<const ClockEntries>;
/// The union of two clocks; linear in their lengths.
Clock join(const Clock &a, const Clock &b);
/// True if the operation of this stream and number is in the clock.
bool isIn(const Clock &clock, uint32_t stream, uint64_t number);

/// Bytes of one allocation that an operation reads or writes.
struct Use {
  std::shared_ptr<Allocation> allocation;
  bool isWrite = false;
};

/// A 32-bit word of host memory and the value that it is to get.
struct Word {
  uint32_t *word;
  uint32_t value;
};

/// What an operation competes for with others on its device, in a model that has contention.
enum class Contends : int { Nothing = 0, Collective = 1, Matrix = 2, Memory = 3 };

/// What an operation does, apart from when. A captured node keeps one and replays it.
struct Work {
  const char *name = "";
  std::function<void()> body; ///< runs without the lock; may be empty
  std::vector<Word> waits;    ///< all must hold before the body runs
  std::vector<Word> writes;   ///< done after the body
  std::vector<Use> uses;      ///< allocations known when it was issued
  int64_t durationNs = 0;     ///< on the virtual clock
  Contends contends = Contends::Nothing;
  int ctas = 0;                                 ///< of a collective
  std::shared_ptr<Allocation> allocates, frees; ///< stream-ordered memory
  std::vector<std::shared_ptr<void>> keeps;     ///< released when it is done
};

/// One operation in a stream.
struct Op {
  Work work;
  Stream *stream = nullptr; ///< null once it is done
  uint32_t streamId = 0;
  uint64_t number = 0;                    ///< place in its stream, from 1
  std::vector<std::shared_ptr<Op>> after; ///< cleared when it is done
  Clock issued;                           ///< what the host knew when it was issued
  Clock clock;                            ///< when it has begun: all that happened before, itself included
  int64_t readyNs = 0, beginNs = 0, endNs = 0;
  bool isDone = false;
  std::vector<Waiter *> waiters;
};
using OpRef = std::shared_ptr<Op>;

struct Stream {
  uint32_t id = 0;
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  bool isDefault = false, isClosing = false, isBusy = false;
  bool isInternal = false; ///< a lane of a graph
  uint64_t issued = 0;
  int64_t lastEndNs = 0;
  uint64_t rank = 0; ///< the random scheduler's priority
  Clock clock;       ///< of its last operation that has begun
  OpRef last;        ///< null or the operation issued last
  OpRef lastDone;    ///< in a model that has contention: null or the last one that has run
  std::deque<OpRef> queue;
  Waiter waiter;         ///< its worker
  bool isAsked = false;  ///< the worker carries out all of the queue before it waits for more
  void *fiber = nullptr; ///< for the sanitizer, if there is no worker
  void *stack = nullptr; ///< of the fiber, of fiberStackBytes
  std::shared_ptr<Capture> capture;
};

struct Event {
  int device = 0;
  unsigned flags = 0;
  OpRef op;                         ///< the last record; null: never recorded
  std::shared_ptr<Capture> capture; ///< set when the last record was captured
  std::vector<size_t> nodes;        ///< the captured nodes that it stands behind
};

struct Device {
  int64_t usedBytes = 0, peakBytes = 0;
  Stream *defaultStream = nullptr;
  std::set<int> peers; ///< devices that it may access
};

enum class Schedule { Threads, Random };

struct Machine {
  Schedule schedule = Schedule::Threads;
  std::vector<Device> devices;
  std::set<Stream *> streams;    ///< live, of the user
  std::set<Stream *> allStreams; ///< with internal and closing ones
  std::set<Event *> events;      ///< live
  std::set<Graph *> graphs;      ///< live
  std::set<GraphExec *> execs;   ///< live
  uint32_t nextStream = 1;
  Clock hostClock; ///< what some host thread has waited for
  std::unordered_map<const uint32_t *, Clock> wordClocks;
  std::unordered_map<const uint32_t *, int64_t> wordNs;
  std::unordered_map<const uint32_t *, OpRef> wordWriters; ///< in a model that has contention
  std::multimap<const uint32_t *, Waiter *> wordWaiters;
  std::set<Waiter *> idle; ///< host threads that wait for any progress (random schedule)
  std::mt19937_64 random;
  int policy = 0; ///< of the random schedule: 0 any time, 1 by priorities, 2 as late as possible
};

/// The machine, made at the first call from the environment.
Machine &machine();

/// What every function of the API begins with: holds the lock, and reports a call from a kernel or a host function.
class Entry {
public:
  explicit Entry(const char *name);

private:
  InFunction function;
  Held held;
};

/// Keeps the error for cudaGetLastError and returns it.
cudaError_t finish(cudaError_t error);

// All functions below are called with the lock held.

/// Finds the stream of a handle, the default streams included, or reports that it is destroyed or none.
Stream *streamOf(cudaStream_t handle);
/// Reports unless the stream is of the calling thread's device.
void checkDevice(const Stream *stream);
/// The calling thread's device.
int &currentDevice();

/// Makes a stream, and its worker where there are threads.
Stream *makeStream(int device, unsigned flags, int priority, bool isInternal);
/// The stream ends after its last operation.
void closeStream(Stream *stream);

/// Appends to a stream that is not being captured. `after`: beside what stands before it in the stream.
OpRef enqueue(Stream *stream, Work work, std::vector<OpRef> after);
/// Appends to the stream, or to the graph that captures it.
void submit(Stream *stream, Work work);

/// The event stands behind what was captured on the stream.
void captureRecord(Stream *stream, Event *event);
/// A node that records the event at each launch of the graph.
void captureExternalRecord(Stream *stream, Event *event);
/// The stream takes part in the event's capture.
void captureWait(Stream *stream, const Event *event);
/// Reports if a capture forbids calls like cudaMalloc or cudaEventQuery to this thread.
void checkSafe();
/// The same, and reports if the stream itself is captured. Null: any stream.
void checkNotCapturing(const Stream *stream);

/// Blocks until the operation is done; then the host knows of all that happened before it. Null: returns at once.
void waitFor(const OpRef &op);
/// True if it is done (or null), and then as waitFor.
bool query(const OpRef &op);

/// Modelled durations in nanoseconds, without noise; Durations.cpp has the model.
int64_t copyNs(size_t bytes, bool isOnDevice);
int64_t kernelNs();
/// The duration with the noise and the outliers that the environment asks for, the same for an operation of this stream
/// and number in every run.
int64_t withNoise(int64_t durationNs, const Op &op);

/// True if operations of one device slow each other down; Contention.cpp has the model. Then their times are final only
/// after settleTimes, which takes those that have run.
bool hasContention();
/// Writes down an operation that has run, what it came after, and how long it takes alone.
void noteTimes(const OpRef &op, std::vector<OpRef> after, int64_t durationNs);
void settleTimes();

/// The operation that runs on this thread, or null.
Op *runningOp();

} // namespace emulator

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_MACHINE_H
