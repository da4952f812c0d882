//===- NcclRun.cpp - Carries calls out by stream operations -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See NcclComm.h for how ranks meet. Grouped calls of one communicator run side by side: its collectives one after
// another on the caller's stream, and its messages on helper streams, one for each peer and direction, that leave the
// caller's stream and come back to it by events.
//
//===------------------------------------------------------------------------------------------===//

#include "CudaApi.h"
#include "NcclComm.h"
#include <algorithm>
#include <cstring>

namespace emulator {
void check(cudaError_t error, const char *what) {
  if (error != cudaSuccess)
    report(std::string(what) + " failed: " + cudaGetErrorString(error));
}
#define CHECK(call) check(call, #call)

static Channel channelOf(Kind kind) { return kind == Kind::Send || kind == Kind::Recv ? kMessage : kCollective; }

/// Modelled duration: a latency, and the bytes that pass through one rank over a bandwidth, which is another one below
/// NCCL_EMU_SWITCH_BYTES, as with another protocol.
static int64_t durationNs(const Task &task) {
  size_t bytes = task.call.count * sizeOf(task.call.type) * std::max<size_t>(task.from.size(), 1);
  if (task.call.kind == Kind::AllReduce || task.call.kind == Kind::Broadcast)
    bytes = 2 * task.call.count * sizeOf(task.call.type);
  static const int64_t latency = option("NCCL_EMU_CALL_NS", 10000), rate = option("NCCL_EMU_BYTES_PER_US", 300000);
  static const int64_t switchBytes = option("NCCL_EMU_SWITCH_BYTES", 0),
                       slowRate = option("NCCL_EMU_SLOW_BYTES_PER_US", rate);
  return latency + int64_t(bytes) * 1000 / (int64_t(bytes) < switchBytes ? slowRate : rate);
}

/// How much later rank r ends than rank 0: r times a share of the duration.
static int64_t skewNs(const Task &task) {
  static const int64_t skew = option("NCCL_EMU_SKEW_PERMILLE", 0);
  return durationNs(task) * skew / 1000 * task.rank;
}

//===- The three kernels of a task -------------------------------------------------------------===//

static Task &taskOf(void **arguments) { return **static_cast<Task **>(arguments[0]); }

static void publish(void **arguments, dim3, dim3) {
  Task &task = taskOf(arguments);
  emulatorTakes(0);
  Held held; // mail is the emulator's own
  for (int member : task.to)
    task.shared->mailOf(channelOf(task.call.kind), task.rank, member).call = task.call;
}

static void meet(void **arguments, dim3, dim3) {
  Task &task = taskOf(arguments);
  if (task.shared->isEnded())
    return;
  emulatorTakes(durationNs(task));
  // Without a choice of the caller's, NCCL takes some.
  constexpr int usualCtas = 8;
  emulatorContends(1, task.comm->ctas[1] > 0 ? task.comm->ctas[1] : usualCtas);
  Channel channel = channelOf(task.call.kind);
  std::vector<const Call *> calls;
  std::vector<int> all = task.from;
  if (channel == kCollective) { // the rank itself takes part without mail
    bool isSource = resultBytes(task) > 0 && ((task.call.kind != Kind::Broadcast && task.call.kind != Kind::Scatter) ||
                                              task.call.peer == task.rank);
    if (isSource)
      all.insert(std::lower_bound(all.begin(), all.end(), task.rank), task.rank);
  }
  for (int member : all) {
    const Call *call = channel == kCollective && member == task.rank
                           ? &task.call
                           : &task.shared->mailOf(channel, member, task.rank).call;
    checkSame(*task.shared, task.call, task.rank, *call, member);
    if (channel == kCollective && member != task.rank) {
      Held held; // nobody holds this lock in a CUDA function
      checkWindows(*task.shared, task.call, task.rank, *call, member);
    }
    calls.push_back(call);
  }
  compute(task, calls);
}

static void deliver(void **arguments, dim3, dim3) {
  Task &task = taskOf(arguments);
  emulatorTakes(skewNs(task));
  // What has been computed is delivered even if a peer aborts now; after an own abort the buffer may be gone.
  if (!task.comm->isFailed && !task.temporary.empty()) {
    void *to = emulatorAccess(task.call.out, task.temporary.size(), 1);
    memcpy(to, task.temporary.data(), task.temporary.size());
  }
  task.temporary = {};
  if (task.isForgotten)
    return;
  Held held;
  auto &tasks = task.comm->tasks;
  tasks.erase(std::find_if(tasks.begin(), tasks.end(), [&](const auto &one) { return one.get() == &task; }));
}

namespace {
struct Kernels {
  cudaLibrary_t library = nullptr;
  cudaKernel_t publish = nullptr, meet = nullptr, deliver = nullptr;

  Kernels() {
    const size_t pointer = sizeof(void *);
    emulatorRegisterKernel("nccl_emu_publish", emulator::publish, 1, &pointer);
    emulatorRegisterKernel("nccl_emu_meet", emulator::meet, 1, &pointer);
    emulatorRegisterKernel("nccl_emu_deliver", emulator::deliver, 1, &pointer);
    CHECK(cudaLibraryLoadData(&library, "nccl_emu", nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cudaLibraryGetKernel(&publish, library, "nccl_emu_publish"));
    CHECK(cudaLibraryGetKernel(&meet, library, "nccl_emu_meet"));
    CHECK(cudaLibraryGetKernel(&deliver, library, "nccl_emu_deliver"));
  }
};

/// The thread's device is the communicator's for a block.
class OnDevice {
public:
  explicit OnDevice(int device) : device(device) {
    CHECK(cudaGetDevice(&before));
    if (before != device)
      CHECK(cudaSetDevice(device));
  }
  ~OnDevice() {
    if (before != device)
      CHECK(cudaSetDevice(before));
  }

private:
  int device, before = 0;
};
} // namespace

static const Kernels &kernels() {
  static const auto *made = new Kernels;
  return *made;
}

//===- Issuing ---------------------------------------------------------------------------------===//

static void chooseSides(Task &task) {
  auto others = [&](std::vector<int> &list) {
    for (int member = 0; member < task.shared->size; ++member)
      if (member != task.rank)
        list.push_back(member);
  };
  int peer = task.call.peer;
  switch (task.call.kind) {
  case Kind::Send:
    task.to = {peer};
    return;
  case Kind::Recv:
    task.from = {peer};
    return;
  case Kind::Broadcast:
  case Kind::Scatter:
    if (task.rank == peer)
      return others(task.to);
    task.from = {peer};
    return;
  case Kind::Reduce:
  case Kind::Gather:
    if (task.rank == peer)
      return others(task.from);
    task.to = {peer};
    return;
  default:
    others(task.from);
    others(task.to);
  }
}

static bool isCapturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

/// One operation of the task.
static void launchBetween(cudaKernel_t kernel, Task *task, const std::vector<EmulatorWord> &waits,
                          const std::vector<EmulatorWord> &writes, cudaStream_t stream) {
  void *arguments[] = {static_cast<void *>(&task)};
  CHECK(emulatorLaunchBetween(kernel, arguments, waits.data(), waits.size(), writes.data(), writes.size(), stream));
}

/// One call on one stream.
static void issue(ncclComm *comm, const Call &call, cudaStream_t stream, bool isCaptured) {
  const Kernels &all = kernels();
  auto made = std::make_unique<Task>();
  Task *task = made.get();
  task->comm = comm;
  task->shared = comm->shared;
  task->rank = comm->rank;
  task->call = call;
  if (isCaptured) {
    using Flag = std::shared_ptr<std::atomic<bool>>;
    task->isForgotten = std::make_shared<std::atomic<bool>>(false);
    auto forget = [](void *opaque) {
      std::unique_ptr<Flag> flag(static_cast<Flag *>(opaque));
      **flag = true;
    };
    emulatorKeepWithGraph(stream, forget, new Flag(task->isForgotten));
  }
  task->isLost = comm->isLost;
  chooseSides(*task);
  {
    Held held;
    comm->tasks.push_back(std::move(made));
  }
  Channel channel = channelOf(call.kind);
  Shared &shared = *comm->shared;
  std::vector<EmulatorWord> lost, ready, arrived, used, taken, done;
  if (task->isLost)
    lost.push_back({&shared.noMail(task->rank).ready, 1});
  for (int member : task->to) {
    Mail &mail = shared.mailOf(channel, task->rank, member);
    ready.push_back({&mail.ready, 1});
    taken.push_back({&mail.taken, 1});
    done.push_back({&mail.taken, 0});
  }
  for (int member : task->from) {
    Mail &mail = shared.mailOf(channel, member, task->rank);
    arrived.push_back({&mail.ready, 1});
    used.push_back({&mail.ready, 0});
    used.push_back({&mail.taken, 1});
  }
  if (!ready.empty() || task->isLost)
    launchBetween(task->isLost ? nullptr : all.publish, task, lost, ready, stream);
  launchBetween(all.meet, task, arrived, used, stream);
  launchBetween(all.deliver, task, taken, done, stream);
}

static cudaEvent_t makeEvent() {
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

/// Launches of one communicator run in the order of their calls, whatever their streams.
static void keepOrder(ncclComm *comm, cudaStream_t stream, bool isCaptured) {
  if (isCaptured) {
    if (comm->hasCaptured && comm->lastCaptured != stream && isCapturing(comm->lastCaptured))
      CHECK(cudaStreamWaitEvent(stream, comm->capturedOrder, 0));
  } else if (comm->hasLaunched && comm->lastStream != stream) {
    CHECK(cudaStreamWaitEvent(stream, comm->order, 0));
  }
}

static void noteOrder(ncclComm *comm, cudaStream_t stream, bool isCaptured) {
  cudaEvent_t &event = isCaptured ? comm->capturedOrder : comm->order;
  if (!event)
    event = makeEvent();
  CHECK(cudaEventRecord(event, stream));
  (isCaptured ? comm->lastCaptured : comm->lastStream) = stream;
  (isCaptured ? comm->hasCaptured : comm->hasLaunched) = true;
}

/// The stream for a communicator's messages with one peer in one direction.
static std::pair<cudaStream_t, cudaEvent_t> &helperOf(ncclComm *comm, const Call &call) {
  auto &helper = comm->helpers[{call.peer, call.kind == Kind::Send}];
  if (!helper.first) {
    CHECK(cudaStreamCreateWithFlags(&helper.first, cudaStreamNonBlocking));
    helper.second = makeEvent();
  }
  return helper;
}

void launch(ncclComm *comm, const std::vector<std::pair<Call, cudaStream_t>> &calls) {
  OnDevice device(comm->device);
  std::vector<cudaStream_t> streams;
  for (const auto &[call, stream] : calls) {
    int owner = 0;
    CHECK(cudaStreamGetDevice(stream, &owner));
    if (owner != comm->device && stream)
      report("wrong device: the stream is of device " + std::to_string(owner) + ", the communicator of device " +
             std::to_string(comm->device));
    if (std::find(streams.begin(), streams.end(), stream) == streams.end())
      streams.push_back(stream);
  }
  bool isCaptured = false;
  for (cudaStream_t stream : streams) {
    bool isThisCaptured = isCapturing(stream);
    keepOrder(comm, stream, isThisCaptured);
    isCaptured |= isThisCaptured;
  }
  if (calls.size() == 1) {
    issue(comm, calls[0].first, streams[0], isCaptured);
    noteOrder(comm, streams[0], isCaptured);
    return;
  }
  while (comm->forks.size() < streams.size())
    comm->forks.push_back(makeEvent());
  for (size_t i = 0; i < streams.size(); ++i)
    CHECK(cudaEventRecord(comm->forks[i], streams[i]));
  for (size_t i = 1; i < streams.size(); ++i)
    CHECK(cudaStreamWaitEvent(streams[0], comm->forks[i], 0));
  std::vector<std::pair<cudaStream_t, cudaEvent_t>> used;
  for (const auto &[call, stream] : calls) {
    if (channelOf(call.kind) == kCollective)
      continue;
    auto &helper = helperOf(comm, call);
    if (std::find(used.begin(), used.end(), helper) == used.end()) {
      used.push_back(helper);
      for (size_t i = 0; i < streams.size(); ++i)
        CHECK(cudaStreamWaitEvent(helper.first, comm->forks[i], 0));
    }
    issue(comm, call, helper.first, isCaptured);
  }
  for (const auto &[call, stream] : calls)
    if (channelOf(call.kind) == kCollective)
      issue(comm, call, streams[0], isCaptured);
  for (const auto &[stream, event] : used) {
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamWaitEvent(streams[0], event, 0));
  }
  noteOrder(comm, streams[0], isCaptured);
  cudaEvent_t done = isCaptured ? comm->capturedOrder : comm->order;
  for (size_t i = 1; i < streams.size(); ++i)
    CHECK(cudaStreamWaitEvent(streams[i], done, 0));
}
} // namespace emulator
