//===- NcclBackend.cpp - The table of the nccl backend ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Opens NCCL, the CUDA runtime and a control plane, attaches ranks to devices, and ends both in an order in which
// nothing is used after it is gone. Where something is missing, one line says what.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Support/Text.h"
#include "NcclJob.h"
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

using namespace commsched::runtime;

/// From here on NCCL keeps the order of launches of all communicators on the device.
static constexpr int launchOrderVersion = 22600;
/// From here on several processes may share a device, when NCCL_MULTI_RANK_GPU_ENABLE asks for it. Threads of one
/// process may not: NCCL (2.32.3, on an H100) ends their collectives with "host threads racing to launch NCCL on same
/// device".
static constexpr int sharedDeviceVersion = 23003;

static NcclJob &jobOf(void *job) { return **static_cast<std::shared_ptr<NcclJob> *>(job); }

static bool isSet(const char *name) {
  const char *value = std::getenv(name);
  return value && *value && std::strcmp(value, "0") != 0;
}

std::vector<NcclPeer *> NcclJob::attached() {
  Lock lock(mutex);
  std::vector<NcclPeer *> result;
  for (auto &peer : peers)
    if (peer)
      result.push_back(peer.get());
  return result;
}

//===- The control plane's upcalls -----------------------------------------------------------===//

/// A message of the control plane in terms of this rank: with what it has in flight, and without what the control plane
/// says of starts that it is not shown.
static std::string inTermsOf(NcclPeer &peer, std::string message) {
  constexpr std::string_view unknown = "; it has started nothing";
  if (peer.job->options.checkEvery == 0)
    if (size_t at = message.rfind(unknown); at != std::string::npos && at + unknown.size() == message.size())
      message.resize(at);
  std::string own = describeFlights(peer);
  return own.empty() ? message : message + "; here " + own;
}

static void controlFailed(void *context, int32_t status, int32_t rank, const char *message) {
  auto &peer = *static_cast<NcclPeer *>(context);
  peer.job->hasFailed = true;
  tellCore(peer, status, rank, (status == COMMRT_ERR_PEER ? inTermsOf(peer, message) : std::string(message)).c_str());
  failPeer(peer, status);
}

/// Its works are shadows.
static const commrt_host controlHost = {sizeof(commrt_host),
                                        [](commrt_work *work, int32_t, int64_t) { endShadow(*work); }, controlFailed,
                                        [](const commrt_work *work, char *text, size_t size) {
                                          return static_cast<int32_t>(copyText(work->location, text, size));
                                        },
                                        [](commrt_work *work, int32_t) { endShadow(*work); }};

//===- Job -----------------------------------------------------------------------------------===//

/// Why the devices are too few; empty if they are not.
static std::string countDevices(const NcclJob &job) {
  int devices = job.libraries.devices;
  bool areThreads = job.localRank < 0;
  int32_t here = areThreads ? job.ranks : job.control.localRank + 1;
  bool mayShare = job.libraries.ncclVersion >= sharedDeviceVersion && isSet("NCCL_MULTI_RANK_GPU_ENABLE");
  if (here <= devices || (mayShare && !areThreads))
    return "";
  return "expected at least " + std::to_string(here) + " GPUs for the ranks of this machine, got " +
         std::to_string(devices) +
         (mayShare ? "; ranks that are threads of one process cannot share a GPU: start one process for each rank"
                   : "");
}

static int32_t openNccl(const commrt_backend_config *config, void **job, int32_t *ranks, int32_t *localRank,
                        char *message, size_t size) {
  *job = nullptr;
  auto refuse = [&](int32_t status, const std::string &text) {
    copyText(text, message, size);
    return status;
  };
  auto result = std::make_shared<NcclJob>();
  if (std::string text = result->libraries.load(); !text.empty())
    return refuse(COMMRT_ERR_BACKEND, text);
  result->timeoutNs = config->timeout_ns;
  result->isTraced = COMMRT_REACHES(config, commrt_backend_config, trace) && config->trace;
  result->exact = isSet("COMMRT_NCCL_EXACT");
  result->blocking = isSet("COMMRT_NCCL_BLOCKING");
  result->isSerial = result->libraries.ncclVersion < launchOrderVersion;
  if (std::string text = result->options.read(result->libraries.ncclVersion); !text.empty())
    return refuse(COMMRT_ERR_INVALID, text);
  if (const char *path = std::getenv("COMMRT_FLIGHT_RECORD"))
    result->recordPath = path;
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  std::string error;
  if (int32_t status = result->control.open(*config, result->ranks, result->localRank, error))
    return refuse(status, error);
  if (error = countDevices(*result); !error.empty()) {
    result->control.close();
    return refuse(COMMRT_ERR_BACKEND, error);
  }
  {
    Lock lock(result->mutex);
    result->peers.resize(result->ranks);
  }
  *ranks = result->ranks;
  *localRank = result->localRank;
  startWatchdog(*result);
  *job = new std::shared_ptr<NcclJob>(std::move(result));
  return COMMRT_OK;
}

/// Whether a thread of the process is still in NCCL.
static bool isLost(NcclPeer &peer) {
  Lock lock(peer.mutex);
  return peer.abort == NcclPeer::Abort::lost || peer.abort == NcclPeer::Abort::running;
}

/// How long the end of a job waits for all streams together. After an error, the abort has had its time already, and
/// everybody else waits for this process to end.
static constexpr std::chrono::seconds longestClose(10), longestCloseAfterError(1);

using Deadline = std::chrono::steady_clock::time_point;

/// Lets what is left on the stream end, as memory that is given back does. False: it does not until the deadline.
static bool finishStream(NcclPeer &peer, cudaStream *stream, Deadline deadline) {
  constexpr std::chrono::microseconds pause(50);
  std::string error;
  cudaEvent *event = stream ? recordEvent(peer, stream, error) : nullptr;
  int done = event ? 0 : 1;
  while (event && (done = queryEvent(peer, event, error)) == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(pause);
  return done == 1;
}

static void freePeer(NcclPeer &peer, Deadline deadline) {
  const CudaApi &cuda = peer.job->cuda();
  peer.enter();
  bool isQuiet = true;
  for (auto &group : peer.groups)
    for (NcclLane *lane : {&group->messages, &group->collectives})
      isQuiet &= finishStream(peer, lane->stream, deadline);
  for (auto &[key, stream] : peer.streams)
    isQuiet &= finishStream(peer, stream, deadline);
  isQuiet &= finishStream(peer, peer.graphStream, deadline);
  if (!isQuiet)
    return; // what the device may still use stays
  if (peer.newest) {
    Lock lock(peer.mutex);
    dropFlightLocked(peer.newest);
  }
  for (auto &graph : peer.graphs)
    freeGraph(peer, *graph);
  // The memory of graphs was given back on a stream just now.
  if (!peer.graphs.empty())
    for (auto &[key, stream] : peer.streams)
      finishStream(peer, stream, deadline);
  if (peer.graphStream)
    cuda.streamDestroy(peer.graphStream);
  for (auto &group : peer.groups)
    for (NcclLane *lane : {&group->messages, &group->collectives}) {
      if (lane->barrier)
        cuda.free(lane->barrier);
      if (lane->stream)
        cuda.streamDestroy(lane->stream);
    }
  for (auto &[key, stream] : peer.streams)
    if (stream)
      cuda.streamDestroy(stream);
  freeImages(peer);
  Lock lock(peer.mutex);
  for (cudaEvent *event : peer.allEvents)
    cuda.eventDestroy(event);
  for (const PinnedBlock &block : peer.allPinned)
    cuda.freeHost(block.data);
}

static void closeNccl(void *opaque) {
  std::unique_ptr<std::shared_ptr<NcclJob>> holder(static_cast<std::shared_ptr<NcclJob> *>(opaque));
  const std::shared_ptr<NcclJob> &job = *holder;
  stopWatchdog(*job);
  bool anyLost = false;
  for (NcclPeer *peer : job->attached())
    anyLost |= isLost(*peer);
  job->control.close();
  if (anyLost)
    return; // what NCCL may still use stays
  const Deadline deadline = std::chrono::steady_clock::now() + (job->hasFailed ? longestCloseAfterError : longestClose);
  for (NcclPeer *peer : job->attached())
    freePeer(*peer, deadline);
  Lock lock(job->mutex);
  for (const NcclJob::Segment &segment : job->segments) {
    segment.peer->enter();
    if (segment.isNccl)
      job->nccl().memFree(segment.base);
    else
      job->cuda().free(segment.base);
  }
}

//===- Ranks ---------------------------------------------------------------------------------===//

static int32_t attachNccl(void *opaque, int32_t rank, const commrt_host *host, void *context, void **result) {
  NcclJob &job = jobOf(opaque);
  auto peer = std::make_unique<NcclPeer>();
  peer->job = &job;
  peer->rank = rank;
  peer->host = host;
  peer->context = context;
  int32_t local = job.localRank < 0 ? rank : job.control.localRank;
  peer->device = local % job.libraries.devices;
  if (job.cuda().setDevice(peer->device))
    return COMMRT_ERR_BACKEND;
  if (job.localRank < 0) {
    Lock lock(job.mutex);
    if (!job.matcher)
      job.matcher = std::make_unique<Matcher>(job.ranks, host);
  }
  if (int32_t status = job.control.backend->attach(job.control.state, rank, &controlHost, peer.get(), &peer->control))
    return status;
  *result = peer.get();
  Lock lock(job.mutex);
  job.peers[rank] = std::move(peer);
  return COMMRT_OK;
}

/// Whether anything of the rank is not complete.
static bool hasOpen(NcclPeer &peer) {
  Lock lock(peer.mutex);
  collectDone(peer);
  for (NcclLane *lane : peer.lanes)
    if (!lane->flights.empty())
      return true;
  return !peer.messages.empty() || !peer.grouped.empty();
}

/// What a stream waits for has been waited for, as far as the program can tell: it is let end.
static void finishWaited(NcclPeer &peer) {
  constexpr std::chrono::microseconds pause(50);
  for (;;) {
    {
      Lock lock(peer.mutex);
      collectDone(peer);
      bool isAny = false;
      for (NcclLane *lane : peer.lanes)
        for (NcclFlight *flight : lane->flights)
          isAny |= !flight->waited.empty();
      if (!isAny || peer.failing)
        return;
    }
    std::this_thread::sleep_for(pause);
  }
}

/// Tells the ranks of this process that the rank has left, if that makes them fail.
static void announceLeave(NcclPeer &peer, bool isOpen) {
  // After an error everybody leaves. A rank whose own deadline comes at the same time still says whom it waited for,
  // and what that one had started.
  if (!peer.job->matcher || peer.job->hasFailed)
    return;
  Refusal refusal = peer.job->matcher->removeRank(peer.rank);
  if (isOpen && refusal.status == COMMRT_OK)
    refusal = {COMMRT_ERR_PEER, peer.rank, "left with collectives in flight"};
  if (refusal.status != COMMRT_OK && !peer.job->hasFailed)
    failHere(*peer.job, &peer, refusal.status, refusal.rank, refusal.text);
}

/// NCCL finalizes a communicator on all its ranks together. Ranks that are threads may be destroyed one after the other
/// by one thread, so the last one finalizes for all. `peer` is null if its communicators were aborted.
static void endComms(NcclJob &job, NcclPeer *peer) {
  std::vector<NcclPeer *> ending;
  {
    Lock lock(job.mutex);
    if (peer)
      job.ending.push_back(peer);
    if (++job.left < (job.localRank < 0 ? job.ranks : 1))
      return;
    ending = std::move(job.ending);
  }
  // Until then the watchdog looks after them: another rank may still fail.
  auto end = [](NcclPeer *each) {
    each->enter();
    if (each->failing || !finalizeComms(*each))
      cancelAll(*each, COMMRT_ERR_ABORTED);
    Lock lock(each->mutex);
    each->isDone = true;
  };
  if (ending.size() == 1)
    return end(ending.front());
  std::vector<std::thread> threads;
  for (NcclPeer *each : ending)
    threads.emplace_back(end, each);
  for (std::thread &thread : threads)
    thread.join();
}

static void detachNccl(void *opaque) {
  auto &peer = *static_cast<NcclPeer *>(opaque);
  peer.enter();
  NcclJob &job = *peer.job;
  std::string ignored;
  NcclGraph *unfinished = nullptr;
  endCapture(peer, &unfinished, ignored);
  finishWaited(peer);
  bool isOpen = hasOpen(peer);
  if (!isOpen)
    finishShadows(peer);
  announceLeave(peer, isOpen);
  {
    Lock lock(peer.controlMutex);
    job.control.backend->detach(std::exchange(peer.control, nullptr));
  }
  destroyShadowGroups(peer);
  bool isAborting = isOpen || peer.failing;
  if (isAborting) {
    cancelAll(peer, COMMRT_ERR_ABORTED);
    Lock lock(peer.mutex);
    peer.isDone = true;
  }
  endComms(job, isAborting ? nullptr : &peer);
  Lock lock(peer.hostMutex);
  peer.hasDetached = true;
}

//===- The table -----------------------------------------------------------------------------===//

static int32_t createNcclGroup(void *opaque, const char *name, const int32_t *members, int32_t size, int32_t index,
                               void **group, char *message, size_t messageSize) {
  std::string error;
  NcclGroup *made = nullptr;
  int32_t status = createGroup(*static_cast<NcclPeer *>(opaque), name, members, size, index, &made, error);
  *group = made;
  copyText(error, message, messageSize);
  return status;
}

static int32_t progressNccl(void *opaque) {
  auto &peer = *static_cast<NcclPeer *>(opaque);
  peer.enter();
  flushMessages(peer);
  presentShadows(peer);
  const commrt_backend &control = *peer.job->control.backend;
  if (control.flags & COMMRT_BACKEND_POLLED)
    control.progress(peer.control);
  if (peer.capture)
    return COMMRT_OK; // the device must not be asked, and nothing runs
  Lock lock(peer.mutex);
  collectDone(peer);
  return COMMRT_OK;
}

static int32_t combineNccl(void *opaque, void *value, int64_t bytes, commrt_combine_fn combine, int64_t timeoutNs,
                           char *message, size_t size) {
  auto &peer = *static_cast<NcclPeer *>(opaque);
  peer.enter();
  flushMessages(peer);
  presentShadows(peer);
  return peer.job->control.backend->combine(peer.control, value, bytes, combine, timeoutNs, message, size);
}

static void abortNccl(void *opaque, int32_t status, const char *message) {
  auto &peer = *static_cast<NcclPeer *>(opaque);
  failHere(*peer.job, &peer, status, peer.rank, message);
  tellOthers(peer, status, message);
}

static int32_t describeNccl(void *opaque, char *text, size_t size) {
  copyText(describePeer(*static_cast<NcclPeer *>(opaque)), text, size);
  return COMMRT_OK;
}

/// CUDA's number: major * 1000 + minor * 10.
static std::string cudaVersion(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// What decides how fast the first device is: its name, its multiprocessors, and its clocks, as far as the library
/// says.
static std::string describeDevice(const CudaApi &cuda) {
  // The largest structure of any version has about 1 KiB.
  alignas(16) char properties[8192] = {};
  std::string text;
  if (cuda.getDeviceProperties && cuda.getDeviceProperties(static_cast<void *>(properties), 0) == 0) {
    constexpr size_t nameBytes = 256;
    text += " " + std::string(properties, strnlen(properties, nameBytes));
  }
  // cudaDeviceAttr, and a number in its unit.
  struct Attribute {
    int number;
    const char *what;
    int64_t perUnit;
    const char *unit;
  };
  constexpr Attribute attributes[] = {
      {16, "multiprocessors", 1, ""}, {13, "clock", 1000, " MHz"}, {36, "memory clock", 1000, " MHz"}};
  for (const Attribute &attribute : attributes) {
    int value = 0;
    if (cuda.deviceGetAttribute && cuda.deviceGetAttribute(&value, attribute.number, 0) == 0)
      text += std::string(", ") + attribute.what + " " + std::to_string(value / attribute.perUnit) + attribute.unit;
  }
  // An attribute that a version no longer has is no error of the job.
  cuda.getLastError();
  return text;
}

static int32_t identifyNccl(void *opaque, char *text, size_t size) {
  NcclJob &job = **static_cast<std::shared_ptr<NcclJob> *>(opaque);
  const CudaApi &cuda = job.cuda();
  int runtime = 0, driver = 0;
  cuda.runtimeGetVersion(&runtime);
  std::string result = "NCCL " + ncclVersionText(job.libraries.ncclVersion) + ", CUDA runtime " + cudaVersion(runtime);
  if (cuda.driverGetVersion && cuda.driverGetVersion(&driver) == 0)
    result += ", CUDA of the driver " + cudaVersion(driver);
  result += ", " + std::to_string(job.libraries.devices) + " devices" + describeDevice(cuda);
  copyText(result, text, size);
  return static_cast<int32_t>(std::strlen(text));
}

static commrt_backend makeTable(uint32_t flags) {
  commrt_backend table = {};
  table.abi_version = COMMRT_BACKEND_ABI_VERSION;
  table.struct_size = sizeof(commrt_backend);
  table.name = "nccl";
  table.flags = flags | COMMRT_BACKEND_POLLED | COMMRT_BACKEND_DEVICE | COMMRT_BACKEND_ORDERED;
  table.open = openNccl;
  table.close = closeNccl;
  table.attach = attachNccl;
  table.detach = detachNccl;
  table.group_create = createNcclGroup;
  table.group_destroy = [](void *) {}; // with the rank
  table.submit = [](void *group, commrt_work *work) { return submitWork(*static_cast<NcclGroup *>(group), work); };
  table.progress = progressNccl;
  table.combine = combineNccl;
  table.abort = abortNccl;
  table.describe = describeNccl;
  table.segment_create = createNcclSegment;
  table.device = &ncclDeviceOps;
  table.identify = identifyNccl;
  table.is_serial = [](void *job) { return static_cast<int32_t>(jobOf(job).isSerial); };
  return table;
}

extern "C" COMMRT_API const commrt_backend *commrt_backend_entry(uint32_t version) {
  static const commrt_backend fast = makeTable(0), exact = makeTable(COMMRT_BACKEND_RANK_ORDER);
  if (version != COMMRT_BACKEND_ABI_VERSION)
    return nullptr;
  return isSet("COMMRT_NCCL_EXACT") ? &exact : &fast;
}
