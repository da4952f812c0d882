//===- TcpBackend.cpp - Ranks as processes over plain sockets ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The table of the tcp backend. It needs nothing but a launcher's environment: rank 0 is a Server, every other rank a
// Client. It is a control plane first; its collectives are right and bit-equal to those of threads, but pass through
// rank 0, so their time grows with the number of ranks.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/BackendLoader.h"
#include "Core/Text.h"
#include "Tcp/Client.h"
#include "Tcp/Server.h"

using namespace commsched::runtime;
using namespace commsched::runtime::tcp;

namespace {
/// One of the two is there.
struct TcpJob {
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> client;
};

/// A group with the job that it belongs to.
struct TcpGroup {
  TcpJob *job;
  void *ofServer = nullptr;
  std::unique_ptr<Client::Group> ofClient;
};
} // namespace

static TcpJob &jobOf(void *peer) { return *static_cast<TcpJob *>(peer); }

static int32_t openTcp(const commrt_backend_config *config, void **opened, int32_t *ranks, int32_t *localRank,
                       char *message, size_t size) {
  auto refuse = [&](int32_t status, const std::string &text) {
    copyText(text, message, size);
    return status;
  };
  Launch launch;
  MeetingPoint point;
  if (std::string error = readLaunch(processEnvironment(), launch); !error.empty())
    return refuse(COMMRT_ERR_INVALID, error);
  if (launch.rank < 0)
    return refuse(COMMRT_ERR_INVALID,
                  "no launcher's variables are set; start every rank with COMMRT_RANK and COMMRT_SIZE, or by torchrun, "
                  "mpirun or srun");
  if (config->ranks > 0 && config->ranks != launch.ranks)
    return refuse(COMMRT_ERR_INVALID, "asked for " + std::to_string(config->ranks) + " ranks, but " + launch.launcher +
                                          " says that there are " + std::to_string(launch.ranks));
  if (launch.ranks > 1)
    if (std::string error = readMeetingPoint(processEnvironment(), point); !error.empty())
      return refuse(COMMRT_ERR_INVALID, error);
  auto job = std::make_unique<TcpJob>();
  std::string text;
  int32_t status;
  if (launch.rank == 0) {
    job->server = std::make_unique<Server>(launch, point, *config);
    status = job->server->open(text);
  } else {
    job->client = std::make_unique<Client>(launch, point, *config);
    status = job->client->open(text);
  }
  if (status != COMMRT_OK)
    return refuse(status, text);
  *ranks = launch.ranks;
  *localRank = launch.rank;
  *opened = job.release();
  return COMMRT_OK;
}

static void closeTcp(void *opaque) {
  std::unique_ptr<TcpJob> job(static_cast<TcpJob *>(opaque));
  if (job->server)
    job->server->close();
  else
    job->client->close();
}

static int32_t attachTcp(void *opaque, int32_t, const commrt_host *host, void *context, void **peer) {
  TcpJob &job = jobOf(opaque);
  *peer = opaque;
  return job.server ? job.server->attach(host, context) : job.client->attach(host, context);
}

static void detachTcp(void *peer) {
  if (jobOf(peer).server)
    jobOf(peer).server->detach();
  else
    jobOf(peer).client->detach();
}

static int32_t createGroup(void *peer, const char *name, const int32_t *members, int32_t size, int32_t index,
                           void **group, char *, size_t) {
  *group = nullptr;
  if (index < 0)
    return COMMRT_OK;
  auto made = std::make_unique<TcpGroup>();
  made->job = &jobOf(peer);
  if (made->job->server) {
    if (int32_t status = made->job->server->createGroup(name, members, size, index, &made->ofServer))
      return status;
  } else {
    Client::Group *ofClient = nullptr;
    if (int32_t status = made->job->client->createGroup(name, members, size, index, &ofClient))
      return status;
    made->ofClient.reset(ofClient);
  }
  *group = made.release();
  return COMMRT_OK;
}

static void destroyGroup(void *opaque) {
  std::unique_ptr<TcpGroup> group(static_cast<TcpGroup *>(opaque));
  if (group && group->ofServer)
    threadsBackend()->group_destroy(group->ofServer);
}

static int32_t submitTcp(void *opaque, commrt_work *work) {
  auto &group = *static_cast<TcpGroup *>(opaque);
  return group.job->server ? group.job->server->submit(group.ofServer, work)
                           : group.job->client->submit(*group.ofClient, work);
}

static int32_t progressTcp(void *) { return COMMRT_OK; }

static int32_t combineTcp(void *peer, void *value, int64_t bytes, commrt_combine_fn combine, int64_t timeoutNs,
                          char *message, size_t size) {
  TcpJob &job = jobOf(peer);
  std::string text;
  int32_t status = job.server ? job.server->combine(value, bytes, combine, timeoutNs, text)
                              : job.client->combine(value, bytes, timeoutNs, text);
  copyText(text, message, size);
  return status;
}

static void abortTcp(void *peer, int32_t status, const char *message) {
  if (jobOf(peer).server)
    jobOf(peer).server->abort(status, message);
  else
    jobOf(peer).client->abort(status, message);
}

static int32_t describeTcp(void *peer, char *text, size_t size) {
  if (jobOf(peer).server)
    return jobOf(peer).server->describe(text, size);
  copyText(jobOf(peer).client->describe(), text, size);
  return COMMRT_OK;
}

const commrt_backend *commsched::runtime::tcpBackend() {
  static const commrt_backend table = [] {
    commrt_backend result = {};
    result.abi_version = COMMRT_BACKEND_ABI_VERSION;
    result.struct_size = sizeof(commrt_backend);
    result.name = "tcp";
    result.flags = COMMRT_BACKEND_PER_PROCESS | COMMRT_BACKEND_RANK_ORDER;
    result.open = openTcp;
    result.close = closeTcp;
    result.attach = attachTcp;
    result.detach = detachTcp;
    result.group_create = createGroup;
    result.group_destroy = destroyGroup;
    result.submit = submitTcp;
    result.progress = progressTcp;
    result.combine = combineTcp;
    result.abort = abortTcp;
    result.describe = describeTcp;
    return result;
  }();
  return &table;
}
