//===- NcclErrors.cpp - Propagation of errors to all ranks -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The ranks of this process are told directly, those of others over the control plane. A rank has the message before
// any call of it returns with the status alone, and its works end by the watchdog.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclJob.h"

using namespace commsched::runtime;

void commsched::runtime::failPeer(NcclPeer &peer, int32_t status) {
  int32_t none = COMMRT_OK;
  peer.failing.compare_exchange_strong(none, status);
  notifyWatchdog(*peer.job);
}

void commsched::runtime::tellOthers(NcclPeer &origin, int32_t status, const std::string &message) {
  Lock lock(origin.controlMutex);
  if (origin.control)
    origin.job->control.backend->abort(origin.control, status, message.c_str());
}

void commsched::runtime::tellCore(NcclPeer &peer, int32_t status, int32_t rank, const char *message) {
  Lock lock(peer.hostMutex);
  if (!peer.hasDetached)
    peer.host->failed(peer.context, status, rank, message);
}

void commsched::runtime::failHere(NcclJob &job, const NcclPeer *except, int32_t status, int32_t rank,
                                  const std::string &message) {
  job.hasFailed = true;
  std::vector<NcclPeer *> peers = job.attached();
  // Everybody has the message before a call returns with the status alone.
  for (NcclPeer *peer : peers)
    if (peer != except)
      tellCore(*peer, status, rank, message.c_str());
  for (NcclPeer *peer : peers)
    failPeer(*peer, status);
}

void commsched::runtime::raiseError(NcclPeer &origin, int32_t status, int32_t rank, const std::string &message) {
  failHere(*origin.job, nullptr, status, rank, message);
  tellOthers(origin, status, message);
}
