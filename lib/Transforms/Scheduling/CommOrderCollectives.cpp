//===- CommOrderCollectives.cpp - The pass comm-order-collectives -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The order that is there becomes the order that has to stay, by a mark on each collective that every pass respects
// (Analysis/Dependence makes an edge from each pinned operation to the next one).
//
//===------------------------------------------------------------------------------------------===//

#include "BlockPass.h"
#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Support/Count.h"
#include "CommSched/Transforms/Passes.h"

namespace commsched {
#define GEN_PASS_DEF_COMMORDERCOLLECTIVES
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

struct CommOrderCollectivesPass : public commsched::impl::CommOrderCollectivesBase<CommOrderCollectivesPass> {
  using CommOrderCollectivesBase::CommOrderCollectivesBase;

  void runOnOperation() final {
    bool changed = false;
    for (Operation *function : findFunctions(getOperation()))
      for (Block *block : findSchedulableBlocks(function))
        changed |= pin(*block);
    markAnalysesPreserved<InputPeaks>();
    if (!changed)
      markAllAnalysesPreserved();
  }

private:
  bool pin(Block &block) {
    SmallVector<Operation *> collectives;
    for (Operation &op : block)
      if (isa<CollectiveOpInterface>(op) || op.hasAttr(CommDialect::kHybridAttrName))
        collectives.push_back(&op);
    if (collectives.size() < 2)
      return false;
    bool changed = false;
    for (Operation *op : collectives)
      if (!op->hasAttr(CommDialect::kPinnedAttrName)) {
        op->setAttr(CommDialect::kPinnedAttrName, UnitAttr::get(op->getContext()));
        changed = true;
      }
    if (changed)
      remarkPinned(block.getParentOp()->getLoc(), collectives.size());
    return changed;
  }

  void remarkPinned(Location loc, int64_t numCollectives) {
    auto remark = remark::passed(loc, remark::RemarkOpts::name("pinned").category(getArgument()));
    remark << remark::metric("Collectives", numCollectives);
    describeRemark(remark, "block", kNoLimitingFactor,
                   formatCount(numCollectives, "collective", " keeps its", " keep their") + " order in later passes");
  }
};

} // namespace
