//===- ControlPlane.cpp - The control plane as the table of a backend -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Processes find each other over plain sockets, combine values, compare what they start and tell each other of errors.
// It needs nothing but a launcher's environment. It moves no data: a backend that does is built over it
// (commrt_backend_find), and a job over it alone is refused.
//
//===------------------------------------------------------------------------------------------===//

#include "Control/Client.h"
#include "Control/Server.h"
#include "Core/BackendLoader.h"
#include "Core/Support/Text.h"

using namespace commsched::runtime;
using namespace commsched::runtime::control;

static Endpoint &endpointOf(void *opaque) { return *static_cast<Endpoint *>(opaque); }

/// An empty text, or what is wrong with the launcher's variables.
static std::string readVariables(const commrt_backend_config &config, Launch &launch, MeetingPoint &point) {
  if (std::string error = readLaunch(processEnvironment(), launch); !error.empty())
    return error;
  if (launch.rank < 0)
    return "no launcher's variables are set; start every rank with COMMRT_RANK and COMMRT_SIZE, or by torchrun, mpirun "
           "or srun";
  if (config.ranks > 0 && config.ranks != launch.ranks)
    return "asked for " + std::to_string(config.ranks) + " ranks, but " + launch.launcher + " says that there are " +
           std::to_string(launch.ranks);
  return launch.ranks > 1 ? readMeetingPoint(processEnvironment(), point) : "";
}

static int32_t openControl(const commrt_backend_config *config, void **job, int32_t *ranks, int32_t *localRank,
                           char *message, size_t size) {
  Launch launch;
  MeetingPoint point;
  std::string text = readVariables(*config, launch, point);
  int32_t status = COMMRT_ERR_INVALID;
  std::unique_ptr<Endpoint> endpoint;
  if (text.empty()) {
    if (launch.rank == 0)
      endpoint = std::make_unique<Server>(launch, point, *config);
    else
      endpoint = std::make_unique<Client>(launch, point, *config);
    status = endpoint->open(text);
  }
  if (status != COMMRT_OK) {
    copyText(text, message, size);
    return status;
  }
  *ranks = launch.ranks;
  *localRank = launch.rank;
  *job = endpoint.release();
  return COMMRT_OK;
}

static void closeControl(void *job) {
  std::unique_ptr<Endpoint> endpoint(&endpointOf(job));
  endpoint->close();
}

static int32_t attachControl(void *job, int32_t, const commrt_host *host, void *context, void **peer) {
  *peer = job;
  return endpointOf(job).attach(host, context);
}

static void detachControl(void *peer) { endpointOf(peer).detach(); }

static int32_t createGroup(void *peer, const char *name, const int32_t *members, int32_t size, int32_t index,
                           void **group, char *, size_t) {
  *group = nullptr;
  if (index < 0)
    return COMMRT_OK;
  auto made = std::make_unique<Endpoint::Group>();
  made->endpoint = &endpointOf(peer);
  int32_t status = made->endpoint->createGroup(name, members, size, index, *made);
  if (status == COMMRT_OK)
    *group = made.release();
  return status;
}

static void destroyGroup(void *opaque) {
  std::unique_ptr<Endpoint::Group> group(static_cast<Endpoint::Group *>(opaque));
  if (group && group->ofEngine)
    threadsBackend()->group_destroy(group->ofEngine);
}

static int32_t submitControl(void *opaque, commrt_work *work) {
  auto &group = *static_cast<Endpoint::Group *>(opaque);
  return isComparison(*work) ? group.endpoint->submit(group, work) : COMMRT_ERR_UNSUPPORTED;
}

static int32_t progressControl(void *) { return COMMRT_OK; }

static int32_t combineControl(void *peer, void *value, int64_t bytes, commrt_combine_fn combine, int64_t timeoutNs,
                              char *message, size_t size) {
  std::string text;
  int32_t status = COMMRT_ERR_INVALID;
  if (static_cast<uint64_t>(bytes) <= kLongestFrame)
    status = endpointOf(peer).combine(value, bytes, combine, timeoutNs, text);
  else
    text = "expected a value of at most 2^30 bytes, got " + std::to_string(bytes);
  copyText(text, message, size);
  return status;
}

static void abortControl(void *peer, int32_t status, const char *message) { endpointOf(peer).abort(status, message); }

static int32_t describeControl(void *peer, char *text, size_t size) {
  copyText(endpointOf(peer).describe(), text, size);
  return COMMRT_OK;
}

const commrt_backend *commsched::runtime::controlPlane() {
  static const commrt_backend table = [] {
    commrt_backend result = {};
    result.abi_version = COMMRT_BACKEND_ABI_VERSION;
    result.struct_size = sizeof(commrt_backend);
    result.name = "tcp";
    result.flags = COMMRT_BACKEND_PER_PROCESS;
    result.open = openControl;
    result.close = closeControl;
    result.attach = attachControl;
    result.detach = detachControl;
    result.group_create = createGroup;
    result.group_destroy = destroyGroup;
    result.submit = submitControl;
    result.progress = progressControl;
    result.combine = combineControl;
    result.abort = abortControl;
    result.describe = describeControl;
    return result;
  }();
  return &table;
}
