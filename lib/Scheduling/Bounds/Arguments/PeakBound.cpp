//===- PeakBound.cpp - Bytes that are live at a node in every order ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemma 12 of Bounds.md: a buffer is live at a node if the node, or something that must come before it, defines
// it, and the node, or something that must come after it, needs it.
//
//===------------------------------------------------------------------------------------------===//

#include "PeakBound.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <array>

using namespace commsched;

/// Number of buffers that one pass over the nodes tracks, one bit each: a row of two cache lines.
static constexpr int32_t kBuffersPerRound = 1024;

/// Adds to `live`, indexed by node, the bytes of those `chosen` buffers that must be live at the node (Lemma 12).
/// `released` is indexed by node, for waits: an input of the start that the wait does not hold, or kNone.
static void addMandatory(const Problem &problem, llvm::ArrayRef<BufferId> chosen, llvm::ArrayRef<BufferId> released,
                         std::vector<Bytes> &live) {
  constexpr int32_t words = kBuffersPerRound / 64;
  using Row = std::array<uint64_t, words>;
  std::vector<int32_t> slot(problem.buffers.size(), kNone);
  Row always{}, kept{};
  for (auto [index, id] : llvm::enumerate(chosen)) {
    slot[id] = static_cast<int32_t>(index);
    uint64_t bit = uint64_t(1) << (index % 64);
    if (problem.buffers[id].def == kNone)
      always[index / 64] |= bit;
    if (problem.buffers[id].liveOut)
      kept[index / 64] |= bit;
  }
  std::vector<Row> defined(problem.nodes.size(), always), needed(problem.nodes.size(), kept);
  auto unite = [](Row &into, const Row &from) {
    for (int32_t word = 0; word < words; ++word)
      into[word] |= from[word];
  };
  auto touch = [&](Row &row, NodeId node) {
    for (BufferId id : problem.touches[node])
      if (slot[id] != kNone && id != released[node])
        row[slot[id] / 64] |= uint64_t(1) << (slot[id] % 64);
  };
  for (NodeId id = 0; id < problem.size(); ++id) {
    for (NodeId pred : problem.preds[id])
      unite(defined[id], defined[pred]);
    touch(defined[id], id);
  }
  for (NodeId id = problem.size() - 1; id >= 0; --id) {
    for (NodeId succ : problem.succs[id])
      unite(needed[id], needed[succ]);
    touch(needed[id], id);
    for (int32_t word = 0; word < words; ++word)
      for (uint64_t bits = defined[id][word] & needed[id][word]; bits != 0; bits &= bits - 1)
        live[id] += problem.buffers[chosen[word * 64 + llvm::countr_zero(bits)]].bytes;
  }
}

std::vector<Bytes> commsched::mandatoryBytes(const Problem &problem, const BoundOptions &options, bool bucketing) {
  std::vector<BufferId> released(problem.size(), kNone);
  for (NodeId id = 0; bucketing && id < problem.size(); ++id)
    if (problem.nodes[id].mergeKey != kNone && isMergeable(problem, id))
      released[problem.members[id].wait] = problem.members[id].input;
  std::vector<BufferId> sized;
  for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id)
    if (problem.buffers[id].bytes > 0 && !problem.users[id].empty())
      sized.push_back(id);
  std::vector<Bytes> live;
  for (const Node &node : problem.nodes)
    live.push_back(node.workspace);
  // Rounds times nodes stay within what a problem of exactNodes nodes and buffers takes.
  int64_t work = int64_t(options.exactNodes) * (options.exactNodes / kBuffersPerRound + 1);
  int64_t rounds = std::max<int64_t>(1, work / std::max<int64_t>(problem.size(), 1));
  size_t known = std::min<size_t>(sized.size(), rounds * kBuffersPerRound);
  std::nth_element(sized.begin(), sized.begin() + known, sized.end(), [&](BufferId a, BufferId b) {
    Bytes one = problem.buffers[a].bytes, other = problem.buffers[b].bytes;
    return one != other ? one > other : a < b;
  });
  for (size_t first = 0; first < known; first += kBuffersPerRound)
    addMandatory(problem,
                 llvm::ArrayRef<BufferId>(sized).slice(first, std::min<size_t>(kBuffersPerRound, known - first)),
                 released, live);
  for (size_t index = known; index < sized.size(); ++index)
    for (NodeId node : problem.users[sized[index]])
      live[node] += sized[index] == released[node] ? 0 : problem.buffers[sized[index]].bytes;
  return live;
}

static Bytes largest(const std::vector<Bytes> &live) {
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

Bytes commsched::peakLowerBound(const Problem &problem, const BoundOptions &options) {
  return largest(mandatoryBytes(problem, options, /*bucketing=*/false));
}

Bytes commsched::peakLowerBoundWithBuckets(const Problem &problem) {
  return largest(mandatoryBytes(problem, {}, /*bucketing=*/!problem.mergeKeys.empty()));
}
