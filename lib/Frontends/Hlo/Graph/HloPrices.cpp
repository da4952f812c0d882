//===- HloPrices.cpp - Costs of the instructions of a module ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Graph/HloPrices.h"
#include "HloCosts.h"
#include "HloGraph.h"
#include "llvm/ADT/SmallVector.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

std::vector<std::string> commsched::hlo::getResultTypes(const HloShape &shape) {
  SmallVector<const HloShape *> leaves;
  shape.appendLeaves(leaves);
  std::vector<std::string> types;
  for (const HloShape *leaf : leaves) {
    std::string text;
    for (int64_t size : leaf->dimensions)
      text += std::to_string(size) + "x";
    types.push_back(text + stringify(elementTypeOf(leaf->elementType)).str());
  }
  return types;
}

/// The computations that run, in the order in which they are found from the entry.
static SmallVector<int32_t> findRunning(const HloModule &module) {
  SmallVector<int32_t> running = {module.entry};
  std::vector<bool> seen(module.computations.size());
  seen[module.entry] = true;
  for (size_t next = 0; next < running.size(); ++next)
    for (const HloInstruction &instruction : module.computations[running[next]].instructions)
      if (runsComputations(instruction))
        for (int32_t called : instruction.called)
          if (!seen[called]) {
            seen[called] = true;
            running.push_back(called);
          }
  return running;
}

/// The cost of an instruction that is not a collective, and its source.
static PricedInstruction priceKernel(const HloInstruction &instruction, const HloComputation &computation,
                                     const HloCosts &costs) {
  KernelCost cost = !isStart(instruction)          ? costs.ofKernel(instruction, computation)
                    : instruction.is("copy-start") ? costs.ofCopy(instruction.shape.bytes() / 2)
                                                   : costs.ofAsyncKernel(instruction);
  PricedInstruction priced{instruction.name, getResultTypes(instruction.shape), cost.time};
  priced.known = cost.isMeasured  ? CostKnowledge::Measured
                 : cost.isUnknown ? CostKnowledge::Unknown
                                  : CostKnowledge::Model;
  return priced;
}

static PricedInstruction priceCollective(const HloInstruction &instruction, const CollectiveCost &cost,
                                         const MachineModel &machine) {
  PricedInstruction priced{instruction.name, getResultTypes(instruction.shape), cost.time};
  priced.known = knowledgeOf(cost.curve->estimate(cost.bytes).origin, machine, cost.kind, cost.shape, "", cost.bytes);
  priced.isCollective = true;
  priced.kind = cost.kind;
  priced.shape = cost.shape;
  priced.element = cost.element;
  priced.bytes = cost.bytes;
  return priced;
}

Expected<std::vector<PricedInstruction>> commsched::hlo::priceInstructions(const HloModule &module,
                                                                           const CostModel &model) {
  HloCosts costs(module, model);
  std::vector<PricedInstruction> result;
  for (int32_t index : findRunning(module)) {
    const HloComputation &computation = module.computations[index];
    for (const HloInstruction &instruction : computation.instructions) {
      if (isDone(instruction) || runsComputations(instruction))
        continue;
      Expected<std::optional<CollectiveCost>> collective = costs.ofCollective(instruction, computation);
      if (!collective)
        return collective.takeError();
      PricedInstruction priced = *collective ? priceCollective(instruction, **collective, model.machine())
                                             : priceKernel(instruction, computation, costs);
      if (priced.time > 0)
        result.push_back(std::move(priced));
    }
  }
  return std::move(result);
}
