//===- NcclOrder.cpp - The order of collectives between communicators -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL may deadlock when two ranks call collectives of different communicators in different orders. Here that is an
// error: the collectives of a job and the orders in which each rank calls them form a graph that must stay without
// cycles. Levels of its nodes make the usual check constant: only a call that contradicts the levels so far is searched
// from.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclComm.h"
#include <algorithm>

namespace emulator {
static std::string textOf(const Collective &node) { return textOf(node.call) + " on " + node.communicator; }

/// Raises the levels of all that comes after `node` above `level`; true if `forbidden` is among them.
static bool raise(Collective *node, int64_t level, const Collective *forbidden) {
  std::vector<std::pair<Collective *, int64_t>> open{{node, level}};
  while (!open.empty()) {
    auto [next, least] = open.back();
    open.pop_back();
    if (next == forbidden)
      return true;
    if (next->level >= least)
      continue;
    next->level = least;
    for (Collective *after : next->after)
      open.push_back({after, least + 1});
  }
  return false;
}

/// Forgets a collective that all members have called and that nothing comes before, and then those after it.
static void retire(const std::shared_ptr<Job> &job, Collective *node) {
  std::vector<Collective *> open{node};
  while (!open.empty()) {
    Collective *done = open.back();
    open.pop_back();
    if (done->callers < done->members || done->before > 0)
      continue;
    for (Collective *after : done->after)
      if (--after->before == 0)
        open.push_back(after);
    for (auto &[rank, last] : job->last)
      last.erase(std::remove(last.begin(), last.end(), done), last.end());
    job->live.erase(done->place);
  }
}

Collective *addCollective(Shared &shared, const Call &call) {
  Job &job = *shared.job;
  job.live.emplace_back();
  Collective *node = &job.live.back();
  node->place = std::prev(job.live.end());
  node->call = call;
  node->communicator = shared.name;
  node->members = shared.size;
  return node;
}

void noteOrder(const std::shared_ptr<Job> &job, int rank, const std::vector<Collective *> &nodes) {
  std::vector<Collective *> before = job->last[rank];
  for (Collective *node : nodes)
    for (Collective *earlier : before) {
      if (std::find(earlier->after.begin(), earlier->after.end(), node) != earlier->after.end())
        continue;
      if (node->level <= earlier->level && raise(node, earlier->level + 1, earlier))
        report("another order of collectives: rank " + std::to_string(rank) + " calls " + textOf(*earlier) +
               " before " + textOf(*node) + ", other ranks after it");
      earlier->after.push_back(node);
      ++node->before;
    }
  if (!nodes.empty())
    job->last[rank] = nodes;
  for (Collective *node : nodes)
    ++node->callers;
  for (Collective *earlier : before)
    retire(job, earlier);
  // `nodes` may be gone now; those that are complete are still in the list of this rank's last ones if they live.
  for (Collective *node : std::vector<Collective *>(job->last[rank]))
    if (std::find(job->last[rank].begin(), job->last[rank].end(), node) != job->last[rank].end())
      retire(job, node);
}
} // namespace emulator
