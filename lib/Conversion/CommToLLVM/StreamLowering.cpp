//===- StreamLowering.cpp - Streams as calls --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The runtime has a current stream, to which starts and computations go. Every block begins and ends with stream 0, and
// a switch, which becomes a call, changes the stream before an operation of another one. The switches are there before
// upstream's passes run, because these keep the place of an operation and need not keep attributes that they do not
// know.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Streams.h"
#include "CommSched/Conversion/Passes.h"
#include "CommSched/Runtime/Runtime.h"
#include "FunctionLowering.h"

namespace commsched {
#define GEN_PASS_DEF_COMMSWITCHSTREAMS
#include "CommSched/Conversion/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// The stream that an operation has to be on; none for those that run on no stream or name theirs.
static std::optional<int64_t> wantedStream(Operation &op) {
  if (op.hasTrait<OpTrait::IsTerminator>())
    return 0;
  StreamUse use = getStreamUse(&op);
  if (use == StreamUse::None || use == StreamUse::Record || use == StreamUse::Await)
    return std::nullopt;
  return getStreamNumber(&op);
}

static void insertSwitches(Block &block) {
  OpBuilder builder(block.getParentOp()->getContext());
  int64_t current = 0;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    std::optional<int64_t> wanted = wantedStream(op);
    if (!wanted || *wanted == current)
      continue;
    builder.setInsertionPoint(&op);
    SwitchStreamOp::create(builder, op.getLoc(), builder.getI64IntegerAttr(*wanted));
    current = *wanted;
  }
}

/// Only operations of this dialect are sure to have kept their attribute.
static LogicalResult checkSwitches(Block &block) {
  int64_t current = 0;
  for (Operation &op : block) {
    if (auto change = dyn_cast<SwitchStreamOp>(op)) {
      current = change.getStream();
      continue;
    }
    bool knows = isa_and_nonnull<CommDialect>(op.getDialect()) || op.hasAttr(CommDialect::kStreamAttrName) ||
                 op.hasTrait<OpTrait::IsTerminator>();
    std::optional<int64_t> wanted = knows ? wantedStream(op) : std::nullopt;
    if (wanted && *wanted != current)
      return op.emitOpError() << "expected to be on stream " << *wanted << ", got stream " << current
                              << " from the last 'comm.switch_stream' before it";
  }
  return success();
}

LogicalResult commsched::switchStreams(Operation *root) {
  SmallVector<Block *> fresh;
  WalkResult checked = root->walk([&](Block *block) {
    if (llvm::any_of(*block, llvm::IsaPred<SwitchStreamOp>))
      return failed(checkSwitches(*block)) ? WalkResult::interrupt() : WalkResult::advance();
    if (usesStreams(*block))
      fresh.push_back(block);
    return WalkResult::advance();
  });
  if (checked.wasInterrupted())
    return failure();
  llvm::for_each(fresh, [](Block *block) { insertSwitches(*block); });
  return success();
}

namespace {
struct CommSwitchStreamsPass : public commsched::impl::CommSwitchStreamsBase<CommSwitchStreamsPass> {
  void runOnOperation() override {
    if (failed(switchStreams(getOperation())))
      signalPassFailure();
  }
};
} // namespace

Value FunctionLowering::stream(Location loc, int64_t number) {
  Value &stream = streams[number];
  if (!stream) {
    calls.call(entryBuilder, loc, "commrt_stream_get",
               {context, calls.integer(entryBuilder, loc, COMMRT_STREAM_COMPUTE, 32),
                calls.integer(entryBuilder, loc, number, 32), handleSlot});
    stream = LLVM::LoadOp::create(entryBuilder, loc, calls.pointerType(), handleSlot);
  }
  return stream;
}

void FunctionLowering::lowerSwitch(SwitchStreamOp op) {
  call(op.getLoc(), "commrt_set_stream", {context, stream(op.getLoc(), op.getStream())});
}
