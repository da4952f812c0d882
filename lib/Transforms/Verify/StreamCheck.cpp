//===- StreamCheck.cpp - Are all dependences between streams covered? -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Puts what StreamAnalysis finds into words.
//
//===------------------------------------------------------------------------------------------===//

#include "StreamCheck.h"
#include "CommSched/Analysis/Streams.h"

using namespace mlir;
using namespace commsched;

static void report(const BlockNodes &nodes, const StreamAnalysis &analysis, StreamCrossing crossing) {
  Block &block = nodes.getBlock();
  Operation *parent = block.getParentOp();
  auto numberOf = [&](NodeId id) { return analysis.numbers()[analysis.streamOf(id)]; };
  if (crossing.consumer == nodes.size()) {
    Operation *producer = nodes[crossing.producer];
    InFlightDiagnostic error = producer->emitOpError()
                               << "runs on stream " << numberOf(crossing.producer)
                               << "; expected stream 0 to await an event of it before the block ends";
    error.attachNote(block.mightHaveTerminator() ? block.getTerminator()->getLoc() : parent->getLoc())
        << "the block ends here, on stream 0";
    return;
  }
  Operation *consumer = nodes[crossing.consumer];
  int64_t stream = numberOf(crossing.consumer);
  if (crossing.producer == kNone) {
    InFlightDiagnostic error = consumer->emitOpError()
                               << "is the first operation on stream " << stream
                               << "; expected this stream to await an event of stream 0 that is recorded in the block";
    error.attachNote(parent->getLoc()) << "the block begins on stream 0";
    return;
  }
  InFlightDiagnostic error = consumer->emitOpError()
                             << "runs on stream " << stream << " and depends on an operation of stream "
                             << numberOf(crossing.producer) << "; expected stream " << stream
                             << " to await an event that is recorded after it";
  error.attachNote(nodes[crossing.producer]->getLoc())
      << "the '" << nodes[crossing.producer]->getName() << "' on stream " << numberOf(crossing.producer) << " is here";
}

LogicalResult commsched::checkStreams(Block &block) {
  if (!usesStreams(block))
    return success();
  BlockNodes nodes(block);
  StreamAnalysis analysis(nodes, StorageMap(block));
  for (StreamCrossing crossing : analysis.missing())
    report(nodes, analysis, crossing);
  return success(analysis.missing().empty());
}
