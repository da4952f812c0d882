//===- CommReinplaceAllGather.cpp - The pass comm-reinplace-all-gather ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A copy-in packs the shards into this rank's slice of a buffer with room for all ranks. An all-gather of the slice
// into new storage does not use that room; this pass lets the all-gather write the buffer. If there is a cast between
// the two, the copy-in does it.
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

/// The source of one input of an all-gather.
struct Source {
  FsdpAllGatherCopyInOp copyIn;
  /// The conversion between copy-in and all-gather, if there is one.
  Operation *cast = nullptr;
  /// True if `cast` is the last of several casts.
  bool severalCasts = false;
};

/// The copy-in whose slice `input` is, directly or through casts.
Source findCopyIn(Value input) {
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

/// Returns why the all-gather cannot write the buffers of these copy-ins, or an empty string if it can.
std::string findObstacle(AllGatherOp gather, ArrayRef<Source> sources) {
  llvm::SmallPtrSet<Operation *, 4> seen;
  for (auto [source, type] : llvm::zip_equal(sources, cast<FutureType>(gather.getFuture().getType()).getTypes())) {
    FsdpAllGatherCopyInOp copyIn = source.copyIn;
    if (!copyIn)
      return "an input of the all-gather is not the slice of a copy-in";
    if (!seen.insert(copyIn).second)
      return "two inputs are slices of one copy-in";
    if (source.severalCasts)
      return "consecutive casts round more than once, but the copy-in rounds once";
    if (copyIn.getGroupAttr() != gather.getGroupAttr())
      return "the copy-in is for another group";
    if (copyIn->getBlock() != gather->getBlock())
      return "the copy-in is in another block";
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
    // The copy-in would convert once, but the copy-in and the cast convert twice.
    for (Value input : copyIn.getInputs())
      if (cast<ShapedType>(input.getType()).getElementType() != buffer.getElementType())
        return "the copy-in already converts, to another type than the cast";
  }
  return "";
}

/// Lets the copy-in produce the result of its cast.
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
      sources.push_back(findCopyIn(input));
    // No remarks for all-gathers without a copy-in, or already in place.
    if (llvm::none_of(sources, [](const Source &source) { return source.copyIn != nullptr; }))
      return;
    if (!gather.getDests().empty()) {
      for (auto [source, dest] : llvm::zip_equal(sources, gather.getDests()))
        if (source.copyIn && source.copyIn.getBuffer() != dest)
          return remarkMissed(gather, getArgument(), "the all-gather has another destination");
      return;
    }
    if (std::string obstacle = findObstacle(gather, sources); !obstacle.empty())
      return remarkMissed(gather, getArgument(), obstacle);
    int64_t bytes = 0;
    SmallVector<Value> buffers;
    for (Source &source : sources) {
      bytes += getStaticBytes(source.copyIn.getBuffer().getType()).value_or(0);
      if (source.cast)
        fuseCast(source);
      buffers.push_back(source.copyIn.getBuffer());
    }
    gather.getDestsMutable().assign(buffers);
    remarkPassed(gather, getArgument(), "the all-gather writes the buffer of its copy-in", bytes);
  }
};

} // namespace
