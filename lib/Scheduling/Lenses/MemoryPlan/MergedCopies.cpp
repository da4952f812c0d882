//===- MergedCopies.cpp - The problem in which every value is made once -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The nodes are those of the problem that keeps everything. Their edges are what the copies have in common.
//
//===------------------------------------------------------------------------------------------===//

#include "MergedCopies.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

/// Finds what stands for each node and each buffer.
static void findImages(const Problem &problem, llvm::ArrayRef<Repetition> repetitions, MergedCopies &merged) {
  std::vector<NodeId> firstNode(problem.size(), kNone);
  std::vector<BufferId> firstBuffer(problem.buffers.size(), kNone);
  for (const Repetition &repetition : repetitions) {
    for (auto [first, again] : llvm::zip_equal(repetition.first, repetition.again))
      firstNode[again] = first;
    for (auto [first, again] :
         llvm::zip_equal(allocatedBy(problem, repetition.first), allocatedBy(problem, repetition.again)))
      firstBuffer[again] = first;
  }
  for (NodeId node = 0; node < problem.size(); ++node)
    merged.nodeOf.push_back(firstNode[node] == kNone ? merged.all.image[node] : merged.nodeOf[firstNode[node]]);
  merged.hasCopies.resize(merged.all.problem.size());
  for (NodeId node = 0; node < problem.size(); ++node)
    if (firstNode[node] != kNone)
      merged.hasCopies.set(merged.nodeOf[node]);
  // Buffers keep their order.
  BufferId next = 0;
  for (BufferId first : firstBuffer)
    merged.bufferOf.push_back(first == kNone ? next++ : kNone);
  for (auto [buffer, image] : llvm::enumerate(merged.bufferOf))
    if (image == kNone) {
      BufferId root = firstBuffer[buffer];
      while (firstBuffer[root] != kNone)
        root = firstBuffer[root];
      image = merged.bufferOf[root];
    }
}

/// The edges that all copies have. Indexed by node of `merged.all`.
static IndexLists commonEdges(const Problem &problem, const MergedCopies &merged) {
  std::vector<llvm::SmallVector<NodeId>> common(merged.all.problem.size());
  llvm::BitVector isSeen(merged.all.problem.size());
  llvm::SmallVector<NodeId> row, both;
  for (NodeId node = 0; node < problem.size(); ++node) {
    const NodeId image = merged.nodeOf[node];
    row.clear();
    for (NodeId pred : problem.preds[node])
      row.push_back(merged.nodeOf[pred]);
    llvm::sort(row);
    row.erase(llvm::unique(row), row.end());
    if (isSeen.test(image)) {
      both.clear();
      std::set_intersection(row.begin(), row.end(), common[image].begin(), common[image].end(),
                            std::back_inserter(both));
      row = both;
    }
    isSeen.set(image);
    common[image] = row;
  }
  IndexLists edges;
  for (const llvm::SmallVector<NodeId> &preds : common)
    edges.append(preds);
  return edges;
}

MergedCopies commsched::mergeCopies(const Problem &problem, llvm::ArrayRef<Repetition> repetitions) {
  MergedCopies merged;
  merged.all = keepValues(problem, repetitions, llvm::BitVector(static_cast<uint32_t>(repetitions.size()), true));
  findImages(problem, repetitions, merged);
  Problem &all = merged.all.problem;
  all.preds = commonEdges(problem, merged);
  all.finalize();
  for (NodeId node = 0; node < problem.size(); ++node) {
    Node &image = all.nodes[merged.nodeOf[node]];
    image.cost = std::min(image.cost, problem.nodes[node].cost);
    image.issue = std::min(image.issue, problem.nodes[node].issue);
  }
  if (problem.members.empty())
    return merged;
  for (NodeId node = 0; node < problem.size(); ++node) {
    const NodeId image = merged.nodeOf[node];
    if (problem.nodes[node].mergeKey == kNone || !isMergeable(problem, node))
      continue;
    merged.losesBuckets |= all.nodes[image].mergeKey != problem.nodes[node].mergeKey ||
                           all.nodes[image].bytes != problem.nodes[node].bytes || !isMergeable(all, image);
    // A cast that some plan has in a pack may be no part of one here.
    if (NodeId cast = fusedCast(problem, node); cast != kNone && fusedCast(all, image) != merged.nodeOf[cast])
      all.nodes[merged.nodeOf[cast]].cost = 0;
  }
  return merged;
}
