//===- Streams.cpp - The streams of a block's operations --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One walk in program order with a vector clock per stream. The clock that a stream had after an operation is kept, so
// that a missing event can be assumed to have been recorded there.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Streams.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include <limits>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

//===-----------------------------------------------------------------------------------------===//
// Operations
//===-----------------------------------------------------------------------------------------===//

/// Returns true if no data passes through an operation: its operands and results are numbers of the host.
static bool isHostArithmetic(Operation *op) {
  auto isData = [](Type type) { return isa<ShapedType, FutureType, EventType>(type); };
  return llvm::none_of(op->getOperandTypes(), isData) && llvm::none_of(op->getResultTypes(), isData) &&
         isMemoryEffectFree(op);
}

/// Returns true if the results are other names of the operands' storage, and nothing is written.
static bool onlyRenames(Operation *op) {
  if (isa<ViewLikeOpInterface>(op))
    return true;
  if (auto compute = dyn_cast<ComputeOp>(op); compute && compute.getSideEffects())
    return false;
  if (auto storage = dyn_cast<StorageOpInterface>(op))
    return op->getNumResults() > 0 &&
           llvm::all_of(op->getResults(),
                        [&](OpResult result) { return storage.getAliasedOperand(result.getResultNumber()); }) &&
           llvm::none_of(op->getOpOperands(), mutatesOperand);
  return isa<tensor::CastOp, tensor::BitcastOp, tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ReshapeOp,
             tensor::ExtractSliceOp, bufferization::ToTensorOp, bufferization::ToBufferOp>(op);
}

StreamUse commsched::getStreamUse(Operation *op) {
  if (isa<CollectiveOpInterface>(op))
    return StreamUse::Start;
  if (isa<WaitOp>(op))
    return StreamUse::Wait;
  if (isa<RecordOp>(op))
    return StreamUse::Record;
  if (isa<AwaitEventOp>(op))
    return StreamUse::Await;
  if (op->getNumRegions() > 0 || isa<CallOpInterface>(op))
    return StreamUse::Work;
  bool isIdle = op->hasTrait<OpTrait::ConstantLike>() || op->hasTrait<OpTrait::IsTerminator>() ||
                isa<tensor::EmptyOp, tensor::DimOp, memref::DimOp, memref::AllocOp, memref::AllocaOp, memref::DeallocOp,
                    memref::GetGlobalOp, memref::ExtractStridedMetadataOp, ResizeStorageOp, SwitchStreamOp>(op) ||
                isHostArithmetic(op) || onlyRenames(op);
  return isIdle ? StreamUse::None : StreamUse::Work;
}

int64_t commsched::getStreamNumber(Operation *op) {
  if (auto record = dyn_cast<RecordOp>(op))
    return record.getStream();
  if (auto await = dyn_cast<AwaitEventOp>(op))
    return await.getStream();
  auto number = op->getAttrOfType<IntegerAttr>(CommDialect::kStreamAttrName);
  return number ? number.getInt() : 0;
}

bool commsched::usesStreams(Block &block) {
  return llvm::any_of(block, [](Operation &op) {
    auto number = op.getAttrOfType<IntegerAttr>(CommDialect::kStreamAttrName);
    return number && number.getInt() != 0;
  });
}

//===-----------------------------------------------------------------------------------------===//
// StreamAnalysis
//===-----------------------------------------------------------------------------------------===//

StreamAnalysis::StreamAnalysis(const BlockNodes &nodes, const StorageMap &storage) : nodes(nodes), storage(storage) {
  numberStreams();
  play(computeHazards(nodes, storage));
}

void StreamAnalysis::numberStreams() {
  llvm::DenseMap<int64_t, int32_t> indices = {{0, 0}};
  streamNumbers.push_back(0);
  lastUse.push_back(kUnknown);
  uses.reserve(nodes.size());
  streams.assign(nodes.size(), kNone);
  auto isAnchor = [](StreamUse use) { return use == StreamUse::Record || use == StreamUse::Await; };
  auto number = [&](NodeId id) {
    auto [it, isNew] = indices.try_emplace(getStreamNumber(nodes[id]), static_cast<int32_t>(streamNumbers.size()));
    if (isNew) {
      streamNumbers.push_back(it->first);
      lastUse.push_back(kUnknown);
    }
    streams[id] = it->second;
  };
  for (NodeId id = 0; id < nodes.size(); ++id) {
    uses.push_back(getStreamUse(nodes[id]));
    if (uses[id] == StreamUse::None || isAnchor(uses[id]))
      continue;
    number(id);
    lastUse[streams[id]] = positionOf(id);
  }
  // Anchors may name any number. Those of streams that run nothing matter only if they pass knowledge on; beyond the
  // limit they are left out, which is safe.
  for (NodeId id = 0; id < nodes.size(); ++id) {
    if (!isAnchor(uses[id]))
      continue;
    if (indices.contains(getStreamNumber(nodes[id])) || streamNumbers.size() < CommDialect::kMaxStreams)
      number(id);
    else
      uses[id] = StreamUse::None;
  }
}

void StreamAnalysis::join(llvm::MutableArrayRef<Position> into, llvm::ArrayRef<Position> from) {
  for (auto [own, other] : llvm::zip_equal(into, from))
    own = std::max(own, other);
}

void StreamAnalysis::play(const IndexLists &hazards) {
  size_t count = streamNumbers.size();
  clocks.assign(count * count, kUnknown);
  snapshots.assign(count * nodes.size(), kUnknown);
  lastWork.assign(count, kUnknown);
  knowledge.resize(count);
  llvm::fill(clockOf(0), 0);
  noteKnowledge(kNone);
  for (NodeId id = 0; id < nodes.size(); ++id)
    visit(id, hazards[id]);
  finish();
}

void StreamAnalysis::visit(NodeId id, llvm::ArrayRef<NodeId> preds) {
  int32_t stream = streams[id];
  StreamUse use = uses[id];
  llvm::SmallVector<Position, 8> needed(streamNumbers.size(), kUnknown);
  for (NodeId pred : preds) {
    if (uses[pred] == StreamUse::Work || uses[pred] == StreamUse::Wait)
      needed[streams[pred]] = std::max(needed[streams[pred]], positionOf(pred));
    else if (uses[pred] == StreamUse::None)
      join(needed, after(pred));
    // The token of a collective orders what depends on it. What only may share storage with a collective in flight has
    // its hazards with earlier nodes behind that of the start, and needs them itself.
    else if (uses[pred] == StreamUse::Start)
      join(needed, neededByStart[pred]);
  }
  if (use == StreamUse::Start)
    neededByStart[id] = needed;
  if (use == StreamUse::None) {
    llvm::copy(needed, after(id).begin());
    return;
  }
  auto clock = clockOf(stream);
  bool learns = use == StreamUse::Await || use == StreamUse::Wait;
  Operation *source = nullptr;
  if (use == StreamUse::Await)
    source = cast<AwaitEventOp>(nodes[id]).getEvent().getDefiningOp();
  else if (use == StreamUse::Wait)
    source = storage.startOf(cast<WaitOp>(nodes[id]).getFuture());
  if (source && source->getBlock() == &nodes.getBlock())
    join(clock, after(nodes.find(source)));
  if (use != StreamUse::Record && use != StreamUse::Await) {
    needed[0] = std::max<Position>(needed[0], 0);
    require(id, stream, needed);
  }
  clock[stream] = positionOf(id);
  llvm::copy(clock, after(id).begin());
  if (use == StreamUse::Work || use == StreamUse::Wait)
    lastWork[stream] = positionOf(id);
  if (learns || lastUse[stream] == positionOf(id))
    noteKnowledge(id);
}

/// Adds the crossings that the consumer's stream does not know. A later event may cover an earlier producer, never the
/// other way round.
void StreamAnalysis::require(NodeId consumer, int32_t stream, llvm::MutableArrayRef<Position> needed) {
  auto clock = clockOf(stream);
  while (true) {
    int32_t latest = kNone;
    for (int32_t other = 0; other < static_cast<int32_t>(needed.size()); ++other)
      if (other != stream && needed[other] > clock[other] && (latest == kNone || needed[other] > needed[latest]))
        latest = other;
    if (latest == kNone)
      return;
    NodeId producer = needed[latest] - 1;
    missingEvents.push_back({producer, consumer});
    if (producer != kNone)
      join(clock, after(producer));
    else
      llvm::for_each(clock, [](Position &position) { position = std::max<Position>(position, 0); });
    if (consumer != nodes.size())
      noteKnowledge(consumer);
  }
}

/// At its end, the block's work is on stream 0.
void StreamAnalysis::finish() { require(nodes.size(), 0, lastWork); }

void StreamAnalysis::noteKnowledge(NodeId id) {
  constexpr Position kEverything = std::numeric_limits<Position>::max();
  Position now = positionOf(id);
  int32_t count = static_cast<int32_t>(streamNumbers.size());
  for (int32_t stream = 0; stream < count; ++stream) {
    Position known = kEverything;
    for (int32_t other = 0; other < count; ++other)
      if (other != stream && lastUse[other] > now)
        known = std::min(known, clockOf(other)[stream]);
    auto &steps = knowledge[stream];
    if (steps.empty() || known > steps.back().second)
      steps.emplace_back(now, known);
  }
}

NodeId StreamAnalysis::knownByAll(NodeId id) const {
  if (streams[id] == kNone)
    return id;
  const auto &steps = knowledge[streams[id]];
  auto step = std::partition_point(steps.begin(), steps.end(),
                                   [&](const auto &entry) { return entry.second < positionOf(id); });
  assert(step != steps.end() && "after the last operation nothing is left to know");
  return std::max<NodeId>(id, step->first - 1);
}

//===-----------------------------------------------------------------------------------------===//
// Events
//===-----------------------------------------------------------------------------------------===//

std::pair<int64_t, int64_t> commsched::insertEvents(Block &block) {
  BlockNodes nodes(block);
  StreamAnalysis analysis(nodes, StorageMap(block));
  auto numberOf = [&](NodeId id) {
    return id == kNone || id == nodes.size() ? 0 : analysis.numbers()[analysis.streamOf(id)];
  };
  OpBuilder builder(block.getParentOp()->getContext());
  llvm::DenseMap<NodeId, Value> records;
  for (StreamCrossing crossing : analysis.missing()) {
    Value &event = records[crossing.producer];
    if (!event) {
      Location loc = block.getParentOp()->getLoc();
      if (crossing.producer == kNone) {
        builder.setInsertionPointToStart(&block);
      } else {
        loc = nodes[crossing.producer]->getLoc();
        builder.setInsertionPointAfter(nodes[crossing.producer]);
      }
      event = RecordOp::create(builder, loc, EventType::get(builder.getContext()),
                               builder.getI64IntegerAttr(numberOf(crossing.producer)));
    }
    Location loc = event.getLoc();
    if (crossing.consumer != nodes.size()) {
      builder.setInsertionPoint(nodes[crossing.consumer]);
      loc = nodes[crossing.consumer]->getLoc();
    } else if (!block.empty() && block.back().hasTrait<OpTrait::IsTerminator>()) {
      builder.setInsertionPoint(&block.back());
    } else {
      builder.setInsertionPointToEnd(&block);
    }
    AwaitEventOp::create(builder, loc, event, builder.getI64IntegerAttr(numberOf(crossing.consumer)));
  }
  return {static_cast<int64_t>(records.size()), static_cast<int64_t>(analysis.missing().size())};
}
