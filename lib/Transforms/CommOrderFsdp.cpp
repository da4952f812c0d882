//===- CommOrderFsdp.cpp - The pass comm-order-fsdp --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// Names the roles of the fsdp operations for Scheduling/OrderFsdp.
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/OrderFsdp.h"
#include "ReorderingPass.h"
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

  ReorderResult solve(const LoadedBlock &block, Bytes) const {
    return orderFsdp(block.problem, identityOrder(block.problem), rolesOf(block.nodes)).reorder;
  }

private:
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
