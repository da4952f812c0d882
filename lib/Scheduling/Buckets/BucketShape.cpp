//===- BucketShape.cpp - Nodes and buffers that a bucket replaces -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Sums over the members, and the costs of the kernels that copy.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Buckets/BucketShape.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

/// The collective that does the work of all members.
static Node mergedStart(const Problem &problem, const Bucket &bucket) {
  Node start = problem.nodes[bucket.members.front()];
  start.bytes = 0;
  for (NodeId member : bucket.members) {
    start.bytes += problem.nodes[member].bytes;
    start.issue = std::max(start.issue, problem.nodes[member].issue);
  }
  const MergeKey &key = problem.mergeKeys[start.mergeKey];
  start.cost = bucket.form == BucketForm::Packed
                   ? key.cost(start.bytes)
                   : key.coalescedCost(start.bytes, static_cast<int32_t>(bucket.members.size()));
  start.mergeKey = start.demand = start.variants = kNone;
  return start;
}

/// Adds the kernel that fills the packed buffer: it reads the inputs of the members, or what their casts read.
static void addPack(const Problem &problem, const Bucket &bucket, BucketShape &shape) {
  BucketCopies copies;
  for (NodeId member : bucket.members) {
    const MergeMember &info = problem.members[member];
    NodeId cast = fusedCast(problem, member);
    copies.add(problem, member, cast);
    if (cast == kNone) {
      if (info.input != kNone)
        shape.touches.push_back(info.input);
      continue;
    }
    shape.casts.push_back(cast);
    shape.castResults.push_back(info.input);
    llvm::copy_if(problem.touches[cast], std::back_inserter(shape.touches),
                  [&](BufferId buffer) { return buffer != info.input; });
  }
  shape.packCost = copies.packCost(problem);
}

/// Adds the unpacks of an all-gather: one for all small outputs, at the place of the first, and one for each other.
static void addUnpacks(const Problem &problem, const Bucket &bucket, BucketShape &shape) {
  size_t shared = bucket.members.size();
  for (auto [index, member] : llvm::enumerate(bucket.members)) {
    bool isSmall = BucketCopies::sharesUnpack(problem, member);
    if (isSmall && shared < shape.unpacks.size()) {
      shape.unpacks[shared].members.push_back(static_cast<int32_t>(index));
      continue;
    }
    if (isSmall)
      shared = shape.unpacks.size();
    shape.unpacks.push_back({{static_cast<int32_t>(index)}, 0});
  }
  for (BucketShape::Unpack &unpack : shape.unpacks) {
    Bytes bytes = 0;
    for (int32_t index : unpack.members)
      bytes += problem.members[bucket.members[index]].outputBytes;
    unpack.cost = problem.copyCost(bytes, bytes);
  }
}

BucketShape commsched::describeBucket(const Problem &problem, const Bucket &bucket) {
  BucketShape shape;
  shape.start = mergedStart(problem, bucket);
  if (problem.hasContention())
    shape.demand =
        problem.mergeKeys[problem.nodes[bucket.members.front()].mergeKey].demandOf(shape.start.bytes, shape.start.cost);
  shape.packs = bucket.form == BucketForm::Packed;
  if (!shape.packs) {
    for (NodeId member : bucket.members) {
      const MergeMember &info = problem.members[member];
      if (info.input != kNone)
        shape.touches.push_back(info.input);
      shape.touches.push_back(info.output);
    }
    return shape;
  }
  CollectiveKind kind = shape.start.collective;
  shape.unpacksOutputs = kind == CollectiveKind::AllGather;
  shape.mergesOutputs = !shape.unpacksOutputs;
  shape.definesMerged = kind == CollectiveKind::ReduceScatter;
  addPack(problem, bucket, shape);
  for (NodeId member : bucket.members) {
    const MergeMember &info = problem.members[member];
    shape.packedBytes += shape.unpacksOutputs ? info.outputBytes : info.inputBytes;
    if (shape.definesMerged)
      shape.mergedBytes += info.outputBytes;
  }
  if (shape.unpacksOutputs)
    addUnpacks(problem, bucket, shape);
  return shape;
}
