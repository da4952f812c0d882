//===- StreamMemory.cpp - A limit on memory over several streams ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One walk decides where streams wait; then the events are written. See StreamMemory.h for the rule.
//
//===------------------------------------------------------------------------------------------===//

#include "StreamMemory.h"
#include "CommSched/Analysis/Streams.h"
#include <deque>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// The stream with index `stream` waits, directly before the node `before`, until the node `producer` has ended.
struct StreamWait {
  NodeId producer, before;
  int32_t stream;
};

class StreamMemoryLimiter {
public:
  StreamMemoryLimiter(const LoadedBlock &plain, const LoadedBlock &written, Bytes limit)
      : plain(plain), nodes(written.nodes), problem(written.problem), limit(limit),
        streams(written.nodes, StorageMap(written.nodes.getBlock())), count(streams.numbers().size()), onStream(count),
        work(count), learnt(count * count, kNone) {
    for (NodeId id = 0; id < nodes.size(); ++id) {
      int32_t stream = streams.streamOf(id);
      if (stream == kNone)
        continue;
      StreamUse use = getStreamUse(nodes[id]);
      onStream[stream].push_back(id);
      if (use == StreamUse::Work || use == StreamUse::Wait)
        work[stream].push_back(id);
    }
  }

  int64_t run() {
    findLives();
    for (NodeId id = 0; id < nodes.size(); ++id)
      visit(id);
    write();
    return static_cast<int64_t>(waits.size());
  }

private:
  struct Life {
    /// The last operation that uses the buffer, and the one from which on all streams know that.
    NodeId used = kNone, known = kNone;
    bool isLive = false;
  };

  void findLives();
  void visit(NodeId id);
  void makeRoom(NodeId id, Bytes needed);
  void meet(NodeId before, NodeId horizon);
  void write();

  /// The last entry of an ascending list that is at most `id`; kNone if there is none.
  static NodeId lastUpTo(ArrayRef<NodeId> list, NodeId id) {
    const NodeId *next = llvm::upper_bound(list, id);
    return next == list.begin() ? kNone : *std::prev(next);
  }

  const LoadedBlock &plain;
  const BlockNodes &nodes;
  const Problem &problem;
  Bytes limit;
  StreamAnalysis streams;
  size_t count;
  /// By stream, ascending: its nodes; and those whose end an event after them tells.
  std::vector<std::vector<NodeId>> onStream, work;
  /// By pair of streams: up to which node of the second the first knows by the waits that this walk has added.
  std::vector<NodeId> learnt;
  /// Indexed by buffer.
  std::vector<Life> lives;
  /// Indexed by node: the buffers that become live there, and those that all streams know to be unused after it.
  std::vector<SmallVector<BufferId, 1>> begins, ends, uses;
  /// Buffers that are no longer used but still live, in the order of their last uses.
  std::deque<BufferId> kept;
  Bytes live = 0;
  std::vector<StreamWait> waits;
};

} // namespace

void StreamMemoryLimiter::findLives() {
  lives.resize(problem.buffers.size());
  begins.resize(nodes.size());
  ends.resize(nodes.size());
  uses.resize(nodes.size());
  for (BufferId id = 0; id < problem.users.size(); ++id) {
    ArrayRef<NodeId> users = problem.users[id];
    if (users.empty())
      continue;
    begins[problem.buffers[id].def == kNone ? 0 : users.front()].push_back(id);
    if (problem.buffers[id].liveOut)
      continue;
    // Buffers come from storage, so both loads number them alike; the events have no storage.
    lives[id].used = nodes.find(plain.nodes[plain.problem.users[id].back()]);
    lives[id].known = users.back();
    ends[lives[id].known].push_back(id);
    if (lives[id].known > lives[id].used)
      uses[lives[id].used].push_back(id);
  }
}

void StreamMemoryLimiter::visit(NodeId id) {
  for (BufferId buffer : begins[id]) {
    lives[buffer].isLive = true;
    live += problem.buffers[buffer].bytes;
  }
  if (Bytes now = live + problem.nodes[id].workspace; now > limit)
    makeRoom(id, now - limit);
  for (BufferId buffer : ends[id])
    if (std::exchange(lives[buffer].isLive, false))
      live -= problem.buffers[buffer].bytes;
  for (BufferId buffer : uses[id])
    kept.push_back(buffer);
}

void StreamMemoryLimiter::makeRoom(NodeId id, Bytes needed) {
  NodeId horizon = kNone;
  while (!kept.empty() && (needed > 0 || lives[kept.front()].used == horizon)) {
    BufferId buffer = kept.front();
    kept.pop_front();
    if (!std::exchange(lives[buffer].isLive, false))
      continue;
    live -= problem.buffers[buffer].bytes;
    needed -= problem.buffers[buffer].bytes;
    horizon = lives[buffer].used;
  }
  if (horizon != kNone)
    meet(id, horizon);
}

/// Lets every stream that still has work know, before a node, that the others have ended everything up to `horizon`.
void StreamMemoryLimiter::meet(NodeId before, NodeId horizon) {
  for (size_t stream = 0; stream < count; ++stream) {
    if (onStream[stream].empty() || onStream[stream].back() < before)
      continue;
    NodeId last = lastUpTo(onStream[stream], before - 1);
    for (size_t other = 0; other < count; ++other) {
      NodeId producer = other == stream ? kNone : lastUpTo(work[other], horizon);
      NodeId &known = learnt[stream * count + other];
      if (last != kNone)
        known = std::max(known, streams.knownAfter(last, static_cast<int32_t>(other)));
      if (producer == kNone || known >= producer)
        continue;
      waits.push_back({producer, before, static_cast<int32_t>(stream)});
      known = producer;
    }
  }
}

void StreamMemoryLimiter::write() {
  OpBuilder builder(nodes.getBlock().getParentOp()->getContext());
  auto number = [&](int32_t stream) { return builder.getI64IntegerAttr(streams.numbers()[stream]); };
  llvm::DenseMap<NodeId, Value> records;
  for (const StreamWait &wait : waits) {
    Operation *producer = nodes[wait.producer], *consumer = nodes[wait.before];
    Value &event = records[wait.producer];
    // There may be an event already.
    auto record = dyn_cast_or_null<RecordOp>(producer->getNextNode());
    if (!event && record && getStreamNumber(record) == getStreamNumber(producer))
      event = record.getResult();
    if (!event) {
      builder.setInsertionPointAfter(producer);
      event = RecordOp::create(builder, producer->getLoc(), EventType::get(builder.getContext()),
                               number(streams.streamOf(wait.producer)));
    }
    builder.setInsertionPoint(consumer);
    AwaitEventOp::create(builder, consumer->getLoc(), event, number(wait.stream));
  }
}

int64_t commsched::limitStreamMemory(const LoadedBlock &plain, const LoadedBlock &written, Bytes limit) {
  return StreamMemoryLimiter(plain, written, limit).run();
}
