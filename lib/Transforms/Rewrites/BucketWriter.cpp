//===- BucketWriter.cpp - Carry out buckets and orders in IR ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Rewrites/BucketWriter.h"
#include "CommSched/Analysis/MeasuredKeys.h"
#include "CommSched/Scheduling/Buckets/BucketShape.h"
#include "CommSched/Scheduling/Memory/Memory.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

void commsched::applyOrder(Block &block, ArrayRef<Operation *> ops) {
  bool hasTerminator = !block.empty() && block.back().hasTrait<OpTrait::IsTerminator>();
  Operation *terminator = hasTerminator ? &block.back() : nullptr;
  for (Operation *op : ops)
    op->moveBefore(&block, terminator ? terminator->getIterator() : block.end());
}

/// The element type of a member.
static Type getElementType(const LoadedBlock &loaded, NodeId member) {
  auto start = cast<CollectiveOpInterface>(loaded.nodes[member]);
  return cast<ShapedType>(start.getCollectiveInputs().front().getType()).getElementType();
}

/// Returns true if a bucket moves as bytes.
static bool isByteView(const LoadedBlock &loaded, const Bucket &bucket) {
  Type first = getElementType(loaded, bucket.members.front());
  return bucket.form == BucketForm::Packed &&
         llvm::any_of(bucket.members, [&](NodeId member) { return getElementType(loaded, member) != first; });
}

/// Cost of a bucket's start with at least one measured member. The sum of the members' times replaces the sum of their
/// modelled times.
static MergeKey fitToMembers(const LoadedBlock &loaded, const Bucket &bucket, const MergeKey &key) {
  bool any = llvm::any_of(bucket.members,
                          [&](NodeId member) { return isMeasured(cast<CollectiveOpInterface>(loaded.nodes[member])); });
  Ns measured = 0, modelled = 0;
  for (NodeId member : bucket.members) {
    const Node &node = loaded.problem.nodes[member];
    measured = std::min<Ns>(kMaxNs, measured + node.cost);
    modelled = std::min<Ns>(kMaxNs, modelled + key.cost(node.bytes));
  }
  return any && modelled > 0 ? scaledKey(key, measured, modelled) : key;
}

void commsched::priceBuckets(LoadedBlock &loaded, ArrayRef<Bucket> buckets, const OperationCosts &costs) {
  for (const Bucket &bucket : buckets) {
    NodeId first = bucket.members.front();
    auto start = cast<CollectiveOpInterface>(loaded.nodes[first]);
    Type byte = IntegerType::get(start.getContext(), 8);
    auto curve = !isByteView(loaded, bucket) ? costs.curveOf(start)
                                             : costs.model().curve(start.getCollectiveKind(), costs.shapeOf(start),
                                                                   elementTypeOf(RankedTensorType::get({1}, byte)),
                                                                   start.getGroupAttr().getValue());
    MergeKey key = loaded.problem.mergeKeys[loaded.problem.nodes[first].mergeKey];
    key.cost = [curve](Bytes bytes) { return (*curve)(bytes); };
    key = fitToMembers(loaded, bucket, key);
    for (NodeId member : bucket.members)
      loaded.problem.nodes[member].mergeKey = static_cast<int32_t>(loaded.problem.mergeKeys.size());
    loaded.problem.mergeKeys.push_back(std::move(key));
  }
}

void commsched::comparePrediction(Block &block, const OperationCosts &costs, CollectiveOrder collectiveOrder,
                                  Ns makespan, Bytes peak, StringRef pass) {
  LoadedBlock applied = loadBlock(block, costs, {collectiveOrder});
  if (!applied.defect.empty() || applied.cutValues > 0)
    return; // an error was emitted, or what was cut depends on the number of operations
  Order order = identityOrder(applied.problem);
  Ns madeMakespan = makespanOf(applied.problem, order);
  Bytes madePeak = peakOf(applied.problem, order);
  if (madeMakespan != makespan || madePeak != peak)
    emitWarning(block.getParentOp()->getLoc())
        << "the rewritten block takes " << madeMakespan << " ns and " << madePeak << " bytes where " << pass
        << " predicted " << makespan << " ns and " << peak << " bytes; please report this";
}

namespace {

/// Creates the operations of one bucket. Their positions do not matter until the order is applied.
class BucketWriter {
public:
  /// `cost` is the cost of the bucket's start.
  BucketWriter(const LoadedBlock &loaded, const Bucket &bucket, const BucketNodes &nodes, Ns cost,
               std::vector<Operation *> &opOf)
      : loaded(loaded), bucket(bucket), shape(describeBucket(loaded.problem, bucket)), nodes(nodes), cost(cost),
        opOf(opOf), byteView(isByteView(loaded, bucket)), builder(loaded.nodes.getBlock().getParentOp()) {
    builder.setInsertionPointToStart(&loaded.nodes.getBlock());
    llvm::ArrayRef<NodeId> fused = shape.casts;
    for (NodeId member : bucket.members) {
      const MergeMember &info = loaded.problem.members[member];
      starts.push_back(cast<CollectiveOpInterface>(loaded.nodes[member]));
      waits.push_back(cast<WaitOp>(loaded.nodes[info.wait]));
      bool isFused = !fused.empty() && fused.front() == info.cast;
      casts.push_back(isFused ? loaded.nodes[info.cast] : nullptr);
      fused = fused.drop_front(isFused ? 1 : 0);
    }
  }

  void write() {
    if (!shape.packs)
      writeCoalesced();
    else if (shape.unpacksOutputs)
      writePackedGather();
    else
      writePackedReduction();
    eraseMembers();
  }

private:
  /// The fused location of all members.
  template <typename Ops> Location fuse(const Ops &ops) {
    SmallVector<Location> locations;
    for (auto op : ops)
      locations.push_back(op.getLoc());
    return builder.getFusedLoc(locations);
  }

  static ShapedType inputType(CollectiveOpInterface start) {
    return cast<ShapedType>(start.getCollectiveInputs().front().getType());
  }
  static ShapedType outputType(WaitOp wait) { return cast<ShapedType>(wait->getResult(0).getType()); }

  /// The value that the pack reads: the operand of a fused cast, or else the start's input.
  SmallVector<Value> packInputs() {
    SmallVector<Value> inputs;
    for (auto [start, cast] : llvm::zip_equal(starts, casts))
      inputs.push_back(cast ? cast->getOperand(0) : start.getCollectiveInputs().front());
    return inputs;
  }

  /// The type of a bucket's buffer; its elements are bytes in a byte view.
  RankedTensorType flat(int64_t elements) {
    Type element = byteView ? builder.getI8Type() : inputType(starts.front()).getElementType();
    return RankedTensorType::get({elements}, element);
  }

  Location startLoc() {
    SmallVector<Location> locations;
    for (CollectiveOpInterface start : starts)
      locations.push_back(start->getLoc());
    return builder.getFusedLoc(locations);
  }

  WaitOp makeWait(Operation *start) {
    opOf[nodes.start] = start;
    auto wait = WaitOp::create(builder, fuse(waits), start->getResult(0), ValueRange());
    opOf[nodes.wait] = wait;
    return wait;
  }

  /// The cost of the bucket as an attribute, with the error bars of its members in proportion.
  CostAttr makeCost() {
    Wide time = 0, lo = 0, hi = 0;
    bool hasBar = false;
    for (CollectiveOpInterface start : starts)
      if (auto own = start->getAttrOfType<CostAttr>(CommDialect::kCostAttrName); own && own.getTime()) {
        time += *own.getTime();
        lo += own.getTimeLo().value_or(*own.getTime());
        hi += own.getTimeHi().value_or(*own.getTime());
        hasBar |= own.getTimeLo().has_value();
      }
    std::optional<int64_t> least, most;
    if (hasBar && time > 0) {
      least = saturateAmount(lo * cost / time);
      most = saturateAmount((hi * cost + time - 1) / time);
    }
    return CostAttr::get(builder.getContext(), /*flops=*/std::nullopt, /*bytes=*/std::nullopt,
                         /*workspace=*/std::nullopt, cost, least, most);
  }

  /// A start like that of the first member, with these inputs, destinations and results.
  Operation *makeStart(ValueRange inputs, ValueRange dests, ArrayRef<Type> results) {
    Operation *first = starts.front();
    OperationState state(startLoc(), first->getName());
    state.addOperands(inputs);
    state.addOperands(dests);
    state.addTypes(FutureType::get(builder.getContext(), results));
    state.propertiesAttr = first->getPropertiesAsAttribute();
    NamedAttrList properties(cast<DictionaryAttr>(state.propertiesAttr));
    properties.set("operandSegmentSizes", builder.getDenseI32ArrayAttr({static_cast<int32_t>(inputs.size()),
                                                                        static_cast<int32_t>(dests.size())}));
    state.propertiesAttr = properties.getDictionary(builder.getContext());
    // The cost model does not know the measured times of the members.
    if (llvm::any_of(starts, isMeasured))
      state.addAttribute(CommDialect::kCostAttrName, makeCost());
    return builder.create(state);
  }

  void writeCoalesced() {
    SmallVector<Value> inputs;
    SmallVector<Type> results;
    for (auto [start, wait] : llvm::zip_equal(starts, waits)) {
      inputs.push_back(start.getCollectiveInputs().front());
      results.push_back(wait->getResult(0).getType());
    }
    WaitOp merged = makeWait(makeStart(inputs, {}, results));
    for (auto [wait, result] : llvm::zip_equal(waits, merged->getResults()))
      wait->getResult(0).replaceAllUsesWith(result);
  }

  void writePackedGather() {
    SmallVector<int64_t> sizes;
    SmallVector<Type> types;
    for (CollectiveOpInterface start : starts) {
      sizes.push_back(byteView ? *getStaticBytes(inputType(start)) : inputType(start).getNumElements());
      types.push_back(inputType(start).getElementType());
    }
    int64_t slice = llvm::sum_of(sizes);
    int64_t ranks = loaded.problem.mergeKeys[loaded.problem.nodes[bucket.members.front()].mergeKey].ranks;
    auto pack = FsdpAllGatherCopyInOp::create(builder, startLoc(), flat(slice), flat(slice * ranks), packInputs(),
                                              Value(), starts.front().getGroupAttr(),
                                              byteView ? builder.getTypeArrayAttr(types) : ArrayAttr());
    opOf[nodes.pack] = pack;
    WaitOp wait = makeWait(makeStart(pack.getSlice(), pack.getBuffer(), {flat(slice * ranks)}));
    writeUnpacks(wait->getResult(0), sizes);
  }

  /// Creates one operation per distinct unpack node, with the members that share it.
  void writeUnpacks(Value gathered, ArrayRef<int64_t> sizes) {
    llvm::MapVector<NodeId, SmallVector<int64_t>> membersOf;
    for (auto [index, unpack] : llvm::enumerate(nodes.unpacks))
      membersOf[unpack].push_back(index);
    for (auto &[unpack, members] : membersOf) {
      SmallVector<Type> types;
      SmallVector<Location> locations;
      for (int64_t member : members) {
        types.push_back(outputType(waits[member]));
        locations.push_back(waits[member].getLoc());
      }
      auto all = members.size() == bucket.members.size() ? DenseI64ArrayAttr() : builder.getDenseI64ArrayAttr(members);
      auto op = FsdpSplitWithSizesCopyOp::create(builder, builder.getFusedLoc(locations), types, gathered, ValueRange(),
                                                 builder.getDenseI64ArrayAttr(sizes), all);
      opOf[unpack] = op;
      for (auto [member, piece] : llvm::zip_equal(members, op.getPieces()))
        waits[member]->getResult(0).replaceAllUsesWith(piece);
    }
  }

  void writePackedReduction() {
    int64_t ranks = loaded.problem.mergeKeys[loaded.problem.nodes[bucket.members.front()].mergeKey].ranks;
    int64_t elements = 0;
    SmallVector<int64_t> sizes;
    SmallVector<Type> types;
    for (auto [start, wait] : llvm::zip_equal(starts, waits)) {
      elements += inputType(start).getNumElements();
      sizes.push_back(outputType(wait).getNumElements());
      types.push_back(outputType(wait));
    }
    auto pack = FsdpChunkCatOp::create(builder, startLoc(), flat(elements), packInputs(), Value(),
                                       shape.definesMerged ? ranks : 1);
    opOf[nodes.pack] = pack;
    SmallVector<Value, 1> dests;
    if (!shape.definesMerged)
      dests.push_back(pack.getResult());
    WaitOp wait = makeWait(makeStart(pack.getResult(), dests, {flat(llvm::sum_of(sizes))}));
    auto view = FsdpSplitWithSizesOp::create(builder, fuse(waits), types, wait->getResult(0),
                                             builder.getDenseI64ArrayAttr(sizes));
    opOf[nodes.view] = view;
    for (auto [member, piece] : llvm::zip_equal(waits, view.getPieces()))
      member->getResult(0).replaceAllUsesWith(piece);
  }

  void eraseMembers() {
    for (auto [start, wait, cast] : llvm::zip_equal(starts, waits, casts)) {
      wait->erase();
      start->erase();
      if (cast)
        cast->erase();
    }
  }

  const LoadedBlock &loaded;
  const Bucket &bucket;
  BucketShape shape;
  const BucketNodes &nodes;
  Ns cost;
  std::vector<Operation *> &opOf;
  /// Returns true if the members have several element types, so that their bytes are packed.
  bool byteView;
  OpBuilder builder;
  SmallVector<CollectiveOpInterface> starts;
  SmallVector<WaitOp> waits;
  SmallVector<Operation *> casts;
};

} // namespace

/// Fixes the way to carry out a collective. Symmetric kernels need buffers in symmetric memory.
static void setVariant(Operation *op, const VariantName &name) {
  Builder builder(op->getContext());
  op->setAttr(CommDialect::kVariantAttrName, builder.getStringAttr(name.text()));
  if (name.means != VariantName::Symmetric || op->hasAttr(CommDialect::kSymmetricAttrName))
    return;
  auto start = cast<CollectiveOpInterface>(op);
  size_t buffers =
      start.getCollectiveInputs().size() + cast<FutureType>(start.getCollectiveFuture().getType()).getTypes().size();
  op->setAttr(CommDialect::kSymmetricAttrName, builder.getDenseBoolArrayAttr(SmallVector<bool>(buffers, true)));
}

void commsched::applySchedule(const LoadedBlock &loaded, const Schedule &schedule) {
  const ExpandedProblem &expanded = schedule.expanded;
  std::vector<Operation *> opOf(schedule.order.size(), nullptr);
  for (NodeId node = 0; node < static_cast<NodeId>(opOf.size()); ++node)
    if (NodeId origin = schedule.isExpanded() ? expanded.origin[node] : node; origin != kNone)
      opOf[node] = loaded.nodes[origin];
  for (auto [bucket, nodes] : llvm::zip_equal(schedule.buckets, expanded.buckets))
    BucketWriter(loaded, bucket, nodes, expanded.problem.nodes[nodes.start].cost, opOf).write();
  for (auto [start, name] : schedule.variants)
    setVariant(opOf[schedule.imageOf(start)], loaded.problem.variantNames[name]);
  std::vector<Operation *> ops;
  for (NodeId node : schedule.order)
    ops.push_back(opOf[node]);
  applyOrder(loaded.nodes.getBlock(), ops);
}
