//===- CommOrderFsdp.cpp - The pass comm-order-fsdp -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Determines the roles of the fsdp operations for Scheduling/Inductor/OrderFsdp.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/OrderFsdp.h"
#include "Scheduling/ReorderingPass.h"
#include "llvm/ADT/TypeSwitch.h"

namespace commsched {
#define GEN_PASS_DEF_COMMORDERFSDP
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

struct CommOrderFsdpPass : ReorderingPass<CommOrderFsdpPass, commsched::impl::CommOrderFsdpBase> {
  using ReorderingPass::ReorderingPass;

  /// The pass discards the units of an earlier run or of another pass, so that they add no dependences.
  void prepare(Operation *root) const {
    root->walk([](Operation *op) {
      op->removeAttr(CommDialect::kUnitAttrName);
      op->removeAttr(CommDialect::kAfterUnitAttrName);
    });
  }

  Schedule solve(const LoadedBlock &block, Bytes) const {
    std::vector<FsdpGroups> formed;
    Schedule schedule = orderFsdp(block.problem, identityOrder(block.problem), rolesOf(block.nodes), formed);
    for (auto [index, groups] : llvm::enumerate(formed)) {
      int64_t launch = 2 * static_cast<int64_t>(index), wait = launch + 1;
      if (groups.launchTogether)
        mark(block, groups.launch, launch, groups.after == kNone ? -1 : 2 * int64_t(groups.after) + 1);
      if (groups.waitTogether)
        mark(block, groups.wait, wait, -1);
    }
    return schedule;
  }

private:
  /// Makes a unit of `nodes`. It comes after the unit `after`, unless that is negative.
  static void mark(const LoadedBlock &block, ArrayRef<NodeId> nodes, int64_t unit, int64_t after) {
    Builder builder(block.nodes.getBlock().getParentOp()->getContext());
    for (NodeId id : nodes)
      block.nodes[id]->setAttr(CommDialect::kUnitAttrName, builder.getI64IntegerAttr(unit));
    if (after >= 0)
      block.nodes[nodes.front()]->setAttr(CommDialect::kAfterUnitAttrName, builder.getI64IntegerAttr(after));
  }

  static std::vector<FsdpRole> rolesOf(const BlockNodes &nodes) {
    std::vector<FsdpRole> roles;
    roles.reserve(nodes.size());
    for (Operation *op : nodes.getOps())
      roles.push_back(llvm::TypeSwitch<Operation *, FsdpRole>(op)
                          .Case([](FsdpAllGatherCopyInOp) { return FsdpRole::CopyIn; })
                          .Case<FsdpSplitWithSizesCopyOp, FsdpSplitWithSizesOp>([](auto) { return FsdpRole::CopyOut; })
                          .Case([](FsdpChunkCatOp) { return FsdpRole::ChunkCat; })
                          .Default([](Operation *) { return FsdpRole::None; }));
    return roles;
  }
};

} // namespace
