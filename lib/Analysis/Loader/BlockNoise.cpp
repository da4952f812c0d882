//===- BlockNoise.cpp - Variation of the durations of a block ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Derives keys from locations, and distributions from error bars.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/BlockNoise.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Support/SplitMix64.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Whether a bucket brought the operation, or could have: such copies are no part of the program's own work.
static bool isBucketCopy(Operation *op) {
  return isa<FsdpAllGatherCopyInOp, FsdpSplitWithSizesCopyOp, FsdpChunkCatOp>(op);
}

/// Sets the ends of the error bar of a node that has one. Rounded inward, so that no duration leaves the bar.
static void setBar(NodeNoise &noise, const std::optional<CostEstimate> &cost) {
  if (!cost || cost->lo >= cost->hi || cost->ns <= 0)
    return;
  Wide low = (static_cast<Wide>(cost->lo) * kFactorOne + cost->ns - 1) / cost->ns;
  noise.low = static_cast<NoiseFactor>(std::min<Wide>(low, kFactorOne));
  noise.high = mulDiv(std::max(cost->hi, cost->ns), kFactorOne, cost->ns);
}

Noise commsched::noiseOf(const LoadedBlock &block, const OperationCosts &costs, const NoiseOptions &options) {
  const Problem &problem = block.problem;
  Noise result;
  result.scenarios = options.scenarios;
  result.nodes.resize(problem.size());
  // Indexed by key without its number: operations so far.
  llvm::DenseMap<uint64_t, uint64_t> earlier;
  for (NodeId id = 0; id < problem.size(); ++id) {
    Operation *op = block.nodes[id];
    const Node &node = problem.nodes[id];
    if (node.cost == 0 || isBucketCopy(op))
      continue;
    NodeNoise &noise = result.nodes[id];
    bool isCollective = node.kind == NodeKind::Start || node.kind == NodeKind::Hybrid;
    uint64_t name = SplitMix64::mix(llvm::xxh3_64bits(nameOperation(op)), isCollective ? 1 : 0);
    // DenseMap reserves the two largest numbers.
    noise.key = SplitMix64::mix(name, earlier[name >> 1]++);
    noise.spreadPermille = isCollective ? options.collectiveSpreadPermille : options.computeSpreadPermille;
    setBar(noise, costs.estimateOf(op));
  }
  return result;
}
