//===- StreamLowering.cpp - Streams as calls --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The runtime has a current stream, to which starts and computations go. Every block begins and ends with stream 0, and
// a call changes the stream before an operation of another one.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Streams.h"
#include "CommSched/Runtime/Runtime.h"
#include "FunctionLowering.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

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

void FunctionLowering::switchStreams() {
  // A walk would visit the calls that are inserted.
  SmallVector<Block *> blocks;
  function.walk([&](Block *block) {
    if (usesStreams(*block))
      blocks.push_back(block);
  });
  for (Block *block : blocks)
    switchStreams(*block);
}

void FunctionLowering::switchStreams(Block &block) {
  int64_t current = 0;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    StreamUse use = getStreamUse(&op);
    bool isTerminator = &op == &block.back();
    // The anchors name their stream.
    if ((use == StreamUse::None && !isTerminator) || use == StreamUse::Record || use == StreamUse::Await)
      continue;
    int64_t wanted = isTerminator ? 0 : getStreamNumber(&op);
    if (wanted == current)
      continue;
    builder.setInsertionPoint(&op);
    call(op.getLoc(), "commrt_set_stream", {context, stream(op.getLoc(), wanted)});
    current = wanted;
  }
}
