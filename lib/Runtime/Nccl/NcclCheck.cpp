//===- NcclCheck.cpp - Comparison of starts across processes ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// NCCL hangs, or mixes data up, when ranks disagree. The control plane compares what ranks start, and names both sides.
// So, if COMMRT_CHECK asks for it, each start has a shadow there: a barrier, or a message without data, that has the
// start's fingerprint and its description for a location. Nothing waits for shadows; the control plane's own threads
// compare them, in the background. They are presented by the thread that starts, several at a time, and before it
// blocks.
//
// Where all ranks live in this process, the matcher compares each start, and there are no shadows.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Support/Text.h"
#include "NcclJob.h"

using namespace commsched::runtime;

/// What the control plane keeps of a start, until it says that it is complete.
struct commsched::runtime::Shadow {
  NcclPeer *peer;
  void *group; ///< the control plane's
  std::string name, text;
  commrt_work work = {};
};

int32_t commsched::runtime::createShadowGroup(NcclGroup &group, const int32_t *members, int32_t size,
                                              std::string &error) {
  NcclJob &job = *group.peer->job;
  if (job.options.checkEvery == 0 || job.matcher)
    return COMMRT_OK;
  char text[512] = "";
  int32_t status = job.control.backend->group_create(group.peer->control, group.name.c_str(), members, size,
                                                     group.index, &group.shadows, text, sizeof(text));
  if (status != COMMRT_OK)
    error = std::string("comparing starts (COMMRT_CHECK): ") + text;
  return status;
}

void commsched::runtime::destroyShadowGroups(NcclPeer &peer) {
  for (auto &group : peer.groups)
    if (group->shadows)
      peer.job->control.backend->group_destroy(group->shadows);
  for (Shadow *shadow : peer.shadows) // an error came first
    delete shadow;
  peer.shadows.clear();
}

void commsched::runtime::noteStart(NcclGroup &group, const commrt_work &work) {
  bool isMessage = work.kind == COMMRT_SEND || work.kind == COMMRT_RECV;
  if (!group.shadows || (isMessage && work.peer == group.index))
    return;
  NcclPeer &peer = *group.peer;
  char text[1024] = "";
  peer.host->describe(&work, text, sizeof(text));
  auto *shadow = new Shadow{&peer, group.shadows, group.name, text};
  commrt_work &base = shadow->work;
  base.struct_size = sizeof(base);
  base.kind = isMessage ? work.kind : COMMRT_BARRIER;
  base.dtype = COMMRT_I8;
  base.scale = 1;
  base.root = base.send_to = base.recv_from = -1;
  base.peer = work.peer;
  base.site = -1;
  base.in_outer = base.out_outer = 1;
  // NCCL knows no tags: the messages of two members have one order, which the tags are compared in.
  base.fingerprint = isMessage ? work.fingerprint * 31 + static_cast<uint64_t>(work.tag) : work.fingerprint;
  base.injected = work.injected;
  base.group = shadow->name.c_str();
  base.location = shadow->text.c_str();
  base.owner = shadow;
  peer.shadows.push_back(shadow);
  if (static_cast<int64_t>(peer.shadows.size()) >= peer.job->options.checkEvery)
    presentShadows(peer);
}

void commsched::runtime::presentShadows(NcclPeer &peer) {
  for (Shadow *shadow : peer.shadows) {
    ++peer.openShadows;
    if (peer.job->control.backend->submit(shadow->group, &shadow->work) != COMMRT_OK)
      endShadow(shadow->work); // the control plane has failed, and has said so
  }
  peer.shadows.clear();
}

void commsched::runtime::endShadow(commrt_work &work) {
  auto *shadow = static_cast<Shadow *>(work.owner);
  --shadow->peer->openShadows;
  delete shadow;
}

void commsched::runtime::finishShadows(NcclPeer &peer) {
  constexpr std::chrono::microseconds pause(50);
  presentShadows(peer);
  auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(peer.job->timeoutNs);
  while (peer.openShadows > 0 && !peer.failing && std::chrono::steady_clock::now() < deadline) {
    if (peer.job->control.backend->flags & COMMRT_BACKEND_POLLED)
      peer.job->control.backend->progress(peer.control);
    std::this_thread::sleep_for(pause);
  }
}
