//===- CommReinplaceAllGather.cpp - The pass comm-reinplace-all-gather ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A copy-in packs the shards into this rank's slice of a buffer that has room for all ranks. An all-gather of the slice
// that makes new storage wastes that room; one that writes the buffer does not. A cast between the two is done by the
// copy-in itself.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Casts.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "RewriteRemarks.h"

namespace commsched {
#define GEN_PASS_DEF_COMMREINPLACEALLGATHER
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// Where one input of an all-gather comes from.
struct Source {
  FsdpAllGatherCopyInOp copyIn;
  /// The conversion between copy-in and all-gather, if there is one.
  Operation *cast = nullptr;
  /// Whether that is the last of several.
  bool severalCasts = false;
};

/// The copy-in whose slice `input` is, itself or through casts.
Source findSource(Value input) {
  Source source;
  Value slice = input;
  for (Operation *def = slice.getDefiningOp(); def && isElementTypeCast(def); def = slice.getDefiningOp()) {
    source.severalCasts = source.cast != nullptr;
    source.cast = source.cast ? source.cast : def;
    slice = def->getOperand(0);
  }
  source.copyIn = slice.getDefiningOp<FsdpAllGatherCopyInOp>();
  if (!source.copyIn || slice != source.copyIn.getSlice())
    return {};
  return source;
}

/// Why the all-gather cannot write the buffers of these copy-ins; empty where it can.
std::string findObstacle(AllGatherOp gather, ArrayRef<Source> sources) {
  llvm::SmallPtrSet<Operation *, 4> seen;
  for (auto [source, type] : llvm::zip_equal(sources, cast<FutureType>(gather.getFuture().getType()).getTypes())) {
    FsdpAllGatherCopyInOp copyIn = source.copyIn;
    if (!copyIn)
      return "an input of the all-gather is no slice of a copy-in";
    if (!seen.insert(copyIn).second)
      return "two inputs are the slice of one copy-in";
    if (source.severalCasts)
      return "several casts in a row round more than once, the copy-in would once";
    if (copyIn.getGroupAttr() != gather.getGroupAttr())
      return "the copy-in is for another group";
    if (copyIn->getBlock() != gather->getBlock())
      return "the copy-in stands in another block";
    if (!copyIn.getBuffer().use_empty())
      return "the buffer of the copy-in has other users";
    auto buffer = cast<ShapedType>(copyIn.getBuffer().getType()), value = cast<ShapedType>(type);
    if (buffer.getShape() != value.getShape())
      return "the all-gather's result does not have the shape of the buffer";
    if (!source.cast)
      continue;
    if (!source.cast->getResult(0).hasOneUse() || !copyIn.getSlice().hasOneUse())
      return "the slice or its cast has other users";
    if (copyIn.getDest())
      return "the copy-in has a destination of the type before the cast";
    // The copy-in would convert once where it and the cast convert twice.
    for (Value input : copyIn.getInputs())
      if (cast<ShapedType>(input.getType()).getElementType() != buffer.getElementType())
        return "the copy-in converts already, to another type than the cast";
  }
  return "";
}

/// Has the copy-in make what its cast made.
void fuseCast(Source &source) {
  FsdpAllGatherCopyInOp copyIn = source.copyIn;
  Type element = cast<ShapedType>(source.cast->getResult(0).getType()).getElementType();
  OpBuilder builder(copyIn);
  auto withElement = [&](Value value) { return cast<ShapedType>(value.getType()).clone(element); };
  auto fused = FsdpAllGatherCopyInOp::create(builder, builder.getFusedLoc({copyIn.getLoc(), source.cast->getLoc()}),
                                             withElement(copyIn.getSlice()), withElement(copyIn.getBuffer()),
                                             copyIn.getInputs(), Value(), copyIn.getGroupAttr(), ArrayAttr());
  fused->setDiscardableAttrs(copyIn->getDiscardableAttrDictionary());
  source.cast->getResult(0).replaceAllUsesWith(fused.getSlice());
  source.cast->erase();
  copyIn.erase();
  source = {fused, nullptr, false};
}

struct CommReinplaceAllGatherPass : public commsched::impl::CommReinplaceAllGatherBase<CommReinplaceAllGatherPass> {
  using CommReinplaceAllGatherBase::CommReinplaceAllGatherBase;

  void runOnOperation() final {
    TrafficCheck before(getOperation());
    SmallVector<AllGatherOp> gathers;
    getOperation()->walk([&](AllGatherOp gather) { gathers.push_back(gather); });
    for (AllGatherOp gather : gathers)
      reinplace(gather);
    if (failed(before.compare(TrafficCheck(getOperation()), getOperation()->getLoc(), getArgument())))
      signalPassFailure();
  }

private:
  void reinplace(AllGatherOp gather) {
    SmallVector<Source> sources;
    for (Value input : gather.getInputs())
      sources.push_back(findSource(input));
    // Nothing to say about all-gathers that have nothing to do with a copy-in, or are in place.
    if (llvm::none_of(sources, [](const Source &source) { return source.copyIn != nullptr; }))
      return;
    if (!gather.getDests().empty()) {
      for (auto [source, dest] : llvm::zip_equal(sources, gather.getDests()))
        if (source.copyIn && source.copyIn.getBuffer() != dest)
          return remarkMissed(gather.getLoc(), getArgument(), "the all-gather has another destination");
      return;
    }
    if (std::string obstacle = findObstacle(gather, sources); !obstacle.empty())
      return remarkMissed(gather.getLoc(), getArgument(), obstacle);
    int64_t bytes = 0;
    SmallVector<Value> buffers;
    for (Source &source : sources) {
      bytes += getStaticBytes(source.copyIn.getBuffer().getType()).value_or(0);
      if (source.cast)
        fuseCast(source);
      buffers.push_back(source.copyIn.getBuffer());
    }
    gather.getDestsMutable().assign(buffers);
    remarkPassed(gather.getLoc(), getArgument(), "the all-gather writes the buffer of its copy-in", bytes);
  }
};

} // namespace
