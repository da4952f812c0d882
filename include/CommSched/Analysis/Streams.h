//===- Streams.h - The streams of a block's operations ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What each stream knows at each place of a block: up to which operation the work of every other stream is certain to
// have ended. From this come the dependences between streams that no event covers, and the place from which on storage
// may be used again.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_STREAMS_H
#define COMMSCHED_ANALYSIS_STREAMS_H

#include "CommSched/Analysis/Dependence.h"

namespace commsched {

/// What an operation does to streams.
enum class StreamUse : uint8_t {
  /// Nothing: a view, a constant, an allocation, arithmetic of the host, the terminator. Dependences pass through it.
  None,
  /// It does work on its stream.
  Work,
  /// It starts a collective when the work before it on its stream has ended.
  Start,
  /// Its stream waits for a collective.
  Wait,
  /// It records an event on its stream.
  Record,
  /// Its stream waits for an event.
  Await,
};

/// What an operation of a block does to streams. O(operands + results).
StreamUse getStreamUse(mlir::Operation *op);

/// The number of the stream that runs an operation: `comm.stream`, or the operand of an anchor; 0 for all others.
int64_t getStreamNumber(mlir::Operation *op);

/// Returns true if an operation of the block itself is on a stream other than 0. O(operations).
bool usesStreams(mlir::Block &block);

/// A dependence between two streams.
struct StreamCrossing {
  /// The operation that has to end first; kNone for what came before the block.
  NodeId producer = kNone;
  /// The operation that has to begin afterwards; BlockNodes::size() for what comes after the block.
  NodeId consumer = kNone;
};

/// The streams of one block.
///
/// The knowledge of a stream is a vector clock: per stream, the last position whose work is certain to have ended
/// (Mattern: Virtual Time and Global States of Distributed Systems, 1989). An operation adds its own position, an event
/// carries its stream's clock to the streams that await it, and a collective carries the clock of its start to the
/// streams that wait for it. A dependence is covered if the consumer's stream knows the producer's position.
class StreamAnalysis {
public:
  /// Every crossing that is not covered counts as covered from its consumer on, as if an event were recorded directly
  /// after the producer and awaited directly before the consumer. O((N + E) x streams).
  StreamAnalysis(const BlockNodes &nodes, const StorageMap &storage);

  /// Numbers of the streams, stream 0 first, then by first use; at most CommDialect::kMaxStreams.
  llvm::ArrayRef<int64_t> numbers() const { return streamNumbers; }
  /// The index of a node's stream in numbers(); kNone for nodes on no stream.
  int32_t streamOf(NodeId id) const { return streams[id]; }

  /// The crossings that no event covers, in the order of their consumers, each producer and consumer stream at most
  /// once; of several producers of one consumer, the last one first. None of them is implied by the others and by the
  /// events of the program.
  llvm::ArrayRef<StreamCrossing> missing() const { return missingEvents; }

  /// The first node, not before `id`, after which every stream that still has work in the block knows that node `id`
  /// has ended; the last node at the latest. `id` itself for nodes on no stream. O(log N).
  NodeId knownByAll(NodeId id) const;

  /// Up to which node the work of a stream, by its index in numbers(), is certain to have ended when the stream of `id`
  /// is past `id`, which is on a stream; kNone if nothing of the block is. O(1).
  NodeId knownAfter(NodeId id, int32_t stream) const {
    return std::max(snapshots[static_cast<size_t>(id) * streamNumbers.size() + stream] - 1, kNone);
  }

private:
  using Position = int32_t;
  static constexpr Position kUnknown = -1;

  /// The position of a node; 0 is the beginning of the block.
  static Position positionOf(NodeId id) { return id + 1; }

  void numberStreams();
  void play(const IndexLists &hazards);
  void visit(NodeId id, llvm::ArrayRef<NodeId> preds);
  void require(NodeId consumer, int32_t stream, llvm::MutableArrayRef<Position> needed);
  void finish();
  void noteKnowledge(NodeId id);

  llvm::MutableArrayRef<Position> clockOf(int32_t stream) { return row(clocks, stream); }
  /// What the stream of a node knew directly after it. Of nodes on no stream: what depends on them needs.
  llvm::MutableArrayRef<Position> after(NodeId id) { return row(snapshots, id); }
  llvm::MutableArrayRef<Position> row(std::vector<Position> &table, int32_t index) {
    return llvm::MutableArrayRef<Position>(table).slice(static_cast<size_t>(index) * streamNumbers.size(),
                                                        streamNumbers.size());
  }
  static void join(llvm::MutableArrayRef<Position> into, llvm::ArrayRef<Position> from);

  const BlockNodes &nodes;
  const StorageMap &storage;
  llvm::SmallVector<int64_t, 4> streamNumbers;
  /// Indexed by node.
  std::vector<StreamUse> uses;
  std::vector<int32_t> streams;
  /// By stream, and by node: one position per stream.
  std::vector<Position> clocks, snapshots;
  /// By start: what it needs of each stream.
  llvm::DenseMap<NodeId, llvm::SmallVector<Position, 8>> neededByStart;
  /// By stream: the position of the last node that does work there, starts excluded, so far; and of the last node at
  /// all.
  llvm::SmallVector<Position, 4> lastWork, lastUse;
  /// By stream, ascending: positions at which what all streams know of it grows, and what they then know.
  std::vector<std::vector<std::pair<Position, Position>>> knowledge;
  std::vector<StreamCrossing> missingEvents;
};

/// Inserts the missing events of a block: a `comm.record` directly after each producer, at most one, and a
/// `comm.await_event` before each consumer. Nothing is missing afterwards. Returns the numbers of records and awaits.
/// O((N + E) x streams).
std::pair<int64_t, int64_t> insertEvents(mlir::Block &block);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_STREAMS_H
