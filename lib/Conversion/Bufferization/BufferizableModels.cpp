//===- BufferizableModels.cpp - The comm dialect in one-shot bufferization --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A tensor of this dialect denotes storage: a destination is written in place, `mutates` writes the storage of the
// operand, and a view shares it. So the models never request a copy of their own operands. These always bufferize in
// place and count as read. StorageMarkers expose the effects of futures to upstream's in-place analysis.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Bufferization.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "StorageMarkers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace commsched;
using namespace commsched::comm;

static MemRefType plainMemRef(Type type) {
  auto shaped = cast<ShapedType>(type);
  return MemRefType::get(shaped.getShape(), shaped.getElementType());
}

/// The buffers of `values`; failure if a value has none.
static LogicalResult getBuffers(RewriterBase &rewriter, ValueRange values, const BufferizationOptions &options,
                                BufferizationState &state, SmallVectorImpl<Value> &buffers) {
  for (Value value : values) {
    if (!isa<TensorType>(value.getType())) {
      buffers.push_back(value);
      continue;
    }
    FailureOr<Value> buffer = getBuffer(rewriter, value, options, state);
    if (failed(buffer))
      return failure();
    buffers.push_back(*buffer);
  }
  return success();
}

static FailureOr<Value> allocate(RewriterBase &rewriter, Operation *op, Type type, ValueRange sizes,
                                 const BufferizationOptions &options) {
  MemRefType memref = plainMemRef(type);
  if (static_cast<size_t>(memref.getNumDynamicDims()) != sizes.size())
    return op->emitOpError() << "cannot be bufferized: expected a known size for its result, got " << type;
  return options.createAlloc(rewriter, op->getLoc(), memref, sizes);
}

namespace {
/// Common part of the models: operands are read, no copies are requested, and results are new storage.
template <typename Model, typename Op> struct StorageModel : public BufferizableOpInterface::ExternalModel<Model, Op> {
  bool bufferizesToAllocation(Operation *op, Value value) const {
    auto storage = dyn_cast<StorageOpInterface>(op);
    return !storage || isa<WaitOp>(op) || !storage.getAliasedOperand(cast<OpResult>(value).getResultNumber());
  }
  bool bufferizesToMemoryRead(Operation *, OpOperand &, const AnalysisState &) const { return true; }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &, const AnalysisState &) const { return false; }
  AliasingValueList getAliasingValues(Operation *op, OpOperand &operand, const AnalysisState &) const {
    AliasingValueList list;
    if (auto storage = dyn_cast<StorageOpInterface>(op); storage && isa<TensorType>(operand.get().getType()))
      for (OpResult result : op->getResults())
        if (storage.getAliasedOperand(result.getResultNumber()) == operand.getOperandNumber())
          list.addAlias({result, result.getType() == operand.get().getType() ? BufferRelation::Equivalent
                                                                             : BufferRelation::Unknown});
    return list;
  }
  bool mustBufferizeInPlace(Operation *, OpOperand &, const AnalysisState &) const { return true; }
  FailureOr<BufferLikeType> getBufferType(Operation *, Value value, const BufferizationOptions &,
                                          const BufferizationState &, SmallVector<Value> &) const {
    return cast<BufferLikeType>(plainMemRef(value.getType()));
  }

private:
  friend Model;
  StorageModel() = default;
};
} // namespace

//===- Starts --------------------------------------------------------------------------------===//

/// The dimensions that the group's size multiplies and divides; -1 for none.
static std::pair<int64_t, int64_t> scaledDims(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::pair<int64_t, int64_t>>(op)
      .Case([](AllGatherOp gather) { return std::make_pair(int64_t(gather.getDim()), int64_t(-1)); })
      .Case([](GatherOp gather) { return std::make_pair(int64_t(gather.getDim()), int64_t(-1)); })
      .Case([](ReduceScatterOp scatter) { return std::make_pair(int64_t(-1), int64_t(scatter.getDim())); })
      .Case([](ScatterOp scatter) { return std::make_pair(int64_t(-1), int64_t(scatter.getDim())); })
      .Case([](AllToAllOp op) { return std::make_pair(int64_t(op.getConcatDim()), int64_t(op.getSplitDim())); })
      .Default({-1, -1});
}

/// Number of rows that the ranks of a group send to this rank.
static Value sumOf(RewriterBase &rewriter, Location loc, ArrayRef<OpFoldResult> splits) {
  Value sum;
  for (OpFoldResult split : splits) {
    Value rows = getValueOrCreateConstantIndexOp(rewriter, loc, split);
    sum = sum ? arith::AddIOp::create(rewriter, loc, sum, rows) : rows;
  }
  return sum;
}

/// The dynamic sizes of result `type`: from its input, or, for an exchange with splits, from the splits.
static SmallVector<Value> resultSizes(RewriterBase &rewriter, CollectiveOpInterface start, Type type, Value input) {
  SmallVector<Value> sizes;
  auto shaped = cast<ShapedType>(type);
  if (shaped.hasStaticShape() || !input)
    return sizes;
  SymbolTableCollection symbols;
  GroupOp group = lookupGroup(start, symbols);
  Location loc = start.getLoc();
  auto [grows, shrinks] = scaledDims(start);
  auto allToAll = dyn_cast<AllToAllOp>(start.getOperation());
  bool hasSplits = allToAll && allToAll.hasSplits();
  for (int64_t dim = 0; dim < shaped.getRank(); ++dim) {
    if (!shaped.isDynamicDim(dim))
      continue;
    if (hasSplits && dim == grows) {
      sizes.push_back(sumOf(rewriter, loc, allToAll.getMixedOutputSplits()));
      continue;
    }
    Value size = memref::DimOp::create(rewriter, loc, input, dim);
    Value factor = arith::ConstantIndexOp::create(rewriter, loc, group ? group.getGroupSize() : 1);
    if (dim == grows && grows != shrinks)
      size = arith::MulIOp::create(rewriter, loc, size, factor);
    if (dim == shrinks && grows != shrinks)
      size = arith::DivUIOp::create(rewriter, loc, size, factor);
    sizes.push_back(size);
  }
  return sizes;
}

static bool hasTensors(FutureType future) {
  return llvm::any_of(future.getTypes(), [](Type type) { return isa<TensorType>(type); });
}

namespace {
template <typename Op> struct StartModel : public StorageModel<StartModel<Op>, Op> {
  bool hasTensorSemantics(Operation *op) const {
    return hasTensors(cast<FutureType>(cast<Op>(op).getFuture().getType())) ||
           llvm::any_of(op->getOperandTypes(), [](Type type) { return isa<TensorType>(type); });
  }

  bool isNotConflicting(Operation *op, OpOperand *read, OpOperand *write, const AnalysisState &) const {
    return isReadInPlace(*read, *write);
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter, const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto start = cast<Op>(op);
    SmallVector<Value> inputs, dests;
    if (failed(getBuffers(rewriter, start.getInputs(), options, state, inputs)) ||
        failed(getBuffers(rewriter, start.getDests(), options, state, dests)))
      return failure();
    auto types = cast<FutureType>(start.getFuture().getType()).getTypes();
    if (start.getDests().empty())
      for (auto [index, type] : llvm::enumerate(types)) {
        Value input = index < inputs.size() ? inputs[index] : Value();
        SmallVector<Value> sizes = resultSizes(rewriter, cast<CollectiveOpInterface>(op), type, input);
        FailureOr<Value> dest = allocate(rewriter, op, type, sizes, options);
        if (failed(dest))
          return failure();
        dests.push_back(*dest);
      }
    SmallVector<Value> operands(inputs);
    llvm::append_range(operands, dests);
    // Operands that are not storage: splits.
    llvm::append_range(operands, op->getOperands().drop_front(start.getInputs().size() + start.getDests().size()));
    auto future = FutureType::get(op->getContext(), llvm::to_vector(ValueRange(dests).getTypes()));
    OperationState newState(op->getLoc(), op->getName(), operands, TypeRange{future},
                            llvm::to_vector(op->getDiscardableAttrs()));
    auto properties = start.getProperties();
    llvm::copy(ArrayRef<int32_t>{int32_t(inputs.size()), int32_t(dests.size())},
               properties.operandSegmentSizes.begin());
    newState.useProperties(properties);
    rewriter.replaceOp(op, rewriter.create(newState)->getResults());
    return success();
  }
};

struct WaitModel : public StorageModel<WaitModel, WaitOp> {
  bool hasTensorSemantics(Operation *op) const {
    return llvm::any_of(op->getResultTypes(), [](Type type) { return isa<TensorType>(type); });
  }

  bool isWritable(Operation *op, Value, const AnalysisState &) const { return areResultsWritable(cast<WaitOp>(op)); }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter, const BufferizationOptions &,
                          BufferizationState &) const {
    auto wait = cast<WaitOp>(op);
    SmallVector<Type> types;
    for (Type type : cast<FutureType>(wait.getFuture().getType()).getTypes())
      types.push_back(isa<MemRefType>(type) ? type : plainMemRef(type));
    SmallVector<Value> inFlight(wait.getInflight());
    if (auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>()) {
      inFlight.assign(start.getCollectiveInputs().begin(), start.getCollectiveInputs().end());
      for (Value dest : start.getCollectiveDests())
        if (!llvm::is_contained(inFlight, dest))
          inFlight.push_back(dest);
    }
    auto result = WaitOp::create(rewriter, op->getLoc(), types, wait.getFuture(), inFlight);
    result->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    replaceOpWithBufferizedValues(rewriter, op, result.getValues());
    return success();
  }
};
} // namespace

//===- FSDP ----------------------------------------------------------------------------------===//

/// The elements of the buffer `source` of `op` from `offset` on, in the shape of `type`. Reports a buffer that is not
/// contiguous.
static FailureOr<Value> viewAs(RewriterBase &rewriter, Operation *op, Value source, OpFoldResult offset,
                               ShapedType type) {
  Location loc = op->getLoc();
  auto given = cast<MemRefType>(source.getType());
  if (!given.getLayout().isIdentity() && !given.areTrailingDimsContiguous(given.getRank()))
    return op->emitOpError() << "cannot be bufferized: expected a contiguous buffer to view in another shape, got "
                             << given << "; copy the tensor first";
  auto metadata = memref::ExtractStridedMetadataOp::create(rewriter, loc, source);
  Value begin = metadata.getOffset();
  // A function takes a whole buffer as it is, and a copy of any other one.
  bool isWhole = isConstantIntValue(offset, 0) && given.getLayout().isIdentity();
  if (!isConstantIntValue(offset, 0))
    begin = arith::AddIOp::create(rewriter, loc, begin, getValueOrCreateConstantIndexOp(rewriter, loc, offset));
  SmallVector<int64_t> strides(type.getRank(), 1);
  for (int64_t dim = type.getRank() - 2; dim >= 0; --dim)
    strides[dim] = strides[dim + 1] * type.getDimSize(dim + 1);
  auto layout = StridedLayoutAttr::get(rewriter.getContext(), ShapedType::kDynamic, strides);
  MemRefType memref = isWhole ? MemRefType::get(type.getShape(), type.getElementType())
                              : MemRefType::get(type.getShape(), type.getElementType(), layout);
  OpFoldResult first = isWhole ? OpFoldResult(rewriter.getIndexAttr(0)) : OpFoldResult(begin);
  return Value(memref::ReinterpretCastOp::create(rewriter, loc, memref, metadata.getBaseBuffer(), first,
                                                 getAsIndexOpFoldResult(rewriter.getContext(), type.getShape()),
                                                 getAsIndexOpFoldResult(rewriter.getContext(), strides)));
}

static LogicalResult requireStatic(Operation *op) {
  for (Type type : op->getResultTypes())
    if (auto shaped = dyn_cast<ShapedType>(type); shaped && !shaped.hasStaticShape())
      return op->emitOpError() << "cannot be bufferized: expected a known size for its result, got " << type;
  return success();
}

namespace {
struct CopyInModel : public StorageModel<CopyInModel, FsdpAllGatherCopyInOp> {
  FailureOr<BufferLikeType> getBufferType(Operation *op, Value value, const BufferizationOptions &,
                                          const BufferizationState &, SmallVector<Value> &) const {
    MemRefType type = plainMemRef(value.getType());
    if (value == cast<FsdpAllGatherCopyInOp>(op).getSlice())
      type = MemRefType::get(type.getShape(), type.getElementType(),
                             StridedLayoutAttr::get(op->getContext(), ShapedType::kDynamic, {1}));
    return cast<BufferLikeType>(type);
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter, const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto copyIn = cast<FsdpAllGatherCopyInOp>(op);
    SmallVector<Value> inputs, dest;
    if (failed(requireStatic(op)) || failed(getBuffers(rewriter, copyIn.getInputs(), options, state, inputs)))
      return failure();
    if (copyIn.getDest()) {
      if (failed(getBuffers(rewriter, copyIn.getDest(), options, state, dest)))
        return failure();
    } else {
      FailureOr<Value> buffer = allocate(rewriter, op, copyIn.getBuffer().getType(), {}, options);
      if (failed(buffer))
        return failure();
      dest.push_back(*buffer);
    }
    MemRefType slice = plainMemRef(copyIn.getSlice().getType());
    slice = MemRefType::get(slice.getShape(), slice.getElementType(),
                            StridedLayoutAttr::get(op->getContext(), ShapedType::kDynamic, {1}));
    auto result = FsdpAllGatherCopyInOp::create(rewriter, op->getLoc(), slice, dest[0].getType(), inputs, dest[0],
                                                copyIn.getGroupAttr(), copyIn.getAsAttr());
    result->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    replaceOpWithBufferizedValues(rewriter, op, {result.getSlice(), dest[0]});
    return success();
  }
};

struct SplitCopyModel : public StorageModel<SplitCopyModel, FsdpSplitWithSizesCopyOp> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter, const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto split = cast<FsdpSplitWithSizesCopyOp>(op);
    SmallVector<Value> source, dests;
    if (failed(requireStatic(op)) || failed(getBuffers(rewriter, split.getSource(), options, state, source)) ||
        failed(getBuffers(rewriter, split.getDests(), options, state, dests)))
      return failure();
    if (dests.empty())
      for (Type type : op->getResultTypes()) {
        FailureOr<Value> dest = allocate(rewriter, op, type, {}, options);
        if (failed(dest))
          return failure();
        dests.push_back(*dest);
      }
    auto result = FsdpSplitWithSizesCopyOp::create(rewriter, op->getLoc(), TypeRange(ValueRange(dests)), source[0],
                                                   dests, split.getSizesAttr(), split.getMembersAttr());
    result->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    replaceOpWithBufferizedValues(rewriter, op, dests);
    return success();
  }
};

/// Bufferizes to a view; the operation itself disappears.
struct SplitModel : public StorageModel<SplitModel, FsdpSplitWithSizesOp> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &, const AnalysisState &) const { return false; }
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter, const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto split = cast<FsdpSplitWithSizesOp>(op);
    SmallVector<Value> source, views;
    if (failed(requireStatic(op)) || failed(getBuffers(rewriter, split.getSource(), options, state, source)))
      return failure();
    int64_t offset = 0;
    for (auto [result, size] : llvm::zip_equal(op->getResults(), split.getSizes())) {
      FailureOr<Value> view =
          viewAs(rewriter, op, source[0], rewriter.getIndexAttr(offset), cast<ShapedType>(result.getType()));
      if (failed(view))
        return failure();
      views.push_back(*view);
      offset += size;
    }
    replaceOpWithBufferizedValues(rewriter, op, views);
    return success();
  }
};

struct ChunkCatModel : public StorageModel<ChunkCatModel, FsdpChunkCatOp> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter, const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto cat = cast<FsdpChunkCatOp>(op);
    SmallVector<Value> inputs, dest;
    if (failed(requireStatic(op)) || failed(getBuffers(rewriter, cat.getInputs(), options, state, inputs)))
      return failure();
    if (cat.getDest()) {
      if (failed(getBuffers(rewriter, cat.getDest(), options, state, dest)))
        return failure();
    } else {
      FailureOr<Value> buffer = allocate(rewriter, op, cat.getResult().getType(), {}, options);
      if (failed(buffer))
        return failure();
      dest.push_back(*buffer);
    }
    auto result =
        FsdpChunkCatOp::create(rewriter, op->getLoc(), dest[0].getType(), inputs, dest[0], cat.getChunksAttr());
    result->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    replaceOpWithBufferizedValues(rewriter, op, dest);
    return success();
  }
};

struct CopyModel : public StorageModel<CopyModel, FsdpCopyOp> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter, const BufferizationOptions &options,
                          BufferizationState &state) const {
    SmallVector<Value> buffers;
    if (failed(getBuffers(rewriter, op->getOperands(), options, state, buffers)))
      return failure();
    DictionaryAttr attributes = op->getDiscardableAttrDictionary();
    rewriter.replaceOpWithNewOp<FsdpCopyOp>(op, buffers[0], buffers[1])->setDiscardableAttrs(attributes);
    return success();
  }
};

struct ResizeModel : public StorageModel<ResizeModel, ResizeStorageOp> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter, const BufferizationOptions &options,
                          BufferizationState &state) const {
    SmallVector<Value> buffers;
    if (failed(getBuffers(rewriter, op->getOperands(), options, state, buffers)))
      return failure();
    rewriter.replaceOpWithNewOp<ResizeStorageOp>(op, buffers[0], cast<ResizeStorageOp>(op).getBytesAttr());
    return success();
  }
};

/// On buffers a computation has no results. New storage becomes operands that it mutates, after the other operands.
struct ComputeModel : public StorageModel<ComputeModel, ComputeOp> {
  static bool isDestination(Operation *op) { return cast<ComputeOp>(op).getName() == kDestinationMarker; }
  /// Ranks that receive nothing keep the contents of a destination.
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand, const AnalysisState &) const {
    return !isDestination(op) || !isUndefined(operand.get());
  }
  bool bufferizesToMemoryWrite(Operation *op, OpOperand &, const AnalysisState &) const { return isDestination(op); }
  bool mustBufferizeInPlace(Operation *op, OpOperand &, const AnalysisState &) const { return !isDestination(op); }
  bool isNotConflicting(Operation *, OpOperand *read, OpOperand *write, const AnalysisState &) const {
    return isReadInPlace(*read, *write);
  }

  bool resultBufferizesToMemoryWrite(Operation *op, OpResult result, const AnalysisState &state) const {
    return cast<ComputeOp>(op).getName() == kArgumentMarker ||
           bufferization::detail::defaultResultBufferizesToMemoryWrite(result, state);
  }
  /// What a branch passes on may be a part of a buffer.
  FailureOr<BufferLikeType> getBufferType(Operation *op, Value value, const BufferizationOptions &options,
                                          const BufferizationState &state, SmallVector<Value> &invocations) const {
    if (cast<ComputeOp>(op).getName() == kArgumentMarker)
      return bufferization::getBufferType(op->getOperand(0), options, state, invocations);
    return cast<BufferLikeType>(plainMemRef(value.getType()));
  }

  AliasingValueList getAliasingValues(Operation *op, OpOperand &operand, const AnalysisState &state) const {
    if (cast<ComputeOp>(op).getName() != kSharedMarker)
      return StorageModel::getAliasingValues(op, operand, state);
    return {{op->getResult(0), BufferRelation::Unknown}};
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter, const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto compute = cast<ComputeOp>(op);
    SmallVector<Value> operands, results;
    if (failed(getBuffers(rewriter, op->getOperands(), options, state, operands)))
      return failure();
    if (isStorageMarker(compute) && compute.getName() != kStorageMarker) {
      replaceOpWithBufferizedValues(rewriter, op, ValueRange(operands).take_front(op->getNumResults()));
      return success();
    }
    if (failed(requireStatic(op)))
      return failure();
    SmallVector<int64_t> mutates;
    if (compute.getMutates())
      llvm::append_range(mutates, *compute.getMutates());
    unsigned numInputs = operands.size();
    for (OpResult result : op->getResults()) {
      auto type = dyn_cast<TensorType>(result.getType());
      if (!type)
        return op->emitOpError() << "cannot be bufferized: expected a tensor as result #" << result.getResultNumber()
                                 << ", got " << result.getType();
      std::optional<unsigned> aliased = compute.getAliasedOperand(result.getResultNumber());
      if (aliased && isa<MemRefType>(operands[*aliased].getType())) {
        Value source = operands[*aliased];
        bool same = cast<MemRefType>(source.getType()).getShape() == type.getShape() &&
                    cast<MemRefType>(source.getType()).getElementType() == type.getElementType();
        FailureOr<Value> view = same ? source : viewAs(rewriter, op, source, rewriter.getIndexAttr(0), type);
        if (failed(view))
          return failure();
        results.push_back(*view);
        continue;
      }
      FailureOr<Value> buffer = allocate(rewriter, op, type, {}, options);
      if (failed(buffer))
        return failure();
      mutates.push_back(operands.size());
      operands.push_back(*buffer);
      results.push_back(*buffer);
    }
    bool isView = operands.size() == numInputs && mutates.empty() && !compute.getSideEffects();
    if (!isView && !isStorageMarker(compute)) {
      auto result = ComputeOp::create(rewriter, op->getLoc(), TypeRange(), compute.getNameAttr(), operands, nullptr,
                                      rewriter.getDenseI64ArrayAttr(mutates), compute.getSideEffectsAttr());
      result->setDiscardableAttrs(op->getDiscardableAttrDictionary());
      result->setDiscardableAttr("outputs", rewriter.getI64IntegerAttr(operands.size() - numInputs));
    }
    replaceOpWithBufferizedValues(rewriter, op, results);
    return success();
  }
};
} // namespace

void commsched::registerBufferizableOpInterfaceModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, CommDialect *) {
    AllGatherOp::attachInterface<StartModel<AllGatherOp>>(*context);
    ReduceScatterOp::attachInterface<StartModel<ReduceScatterOp>>(*context);
    AllReduceOp::attachInterface<StartModel<AllReduceOp>>(*context);
    AllToAllOp::attachInterface<StartModel<AllToAllOp>>(*context);
    BroadcastOp::attachInterface<StartModel<BroadcastOp>>(*context);
    ReduceOp::attachInterface<StartModel<ReduceOp>>(*context);
    GatherOp::attachInterface<StartModel<GatherOp>>(*context);
    ScatterOp::attachInterface<StartModel<ScatterOp>>(*context);
    PermuteOp::attachInterface<StartModel<PermuteOp>>(*context);
    SendOp::attachInterface<StartModel<SendOp>>(*context);
    RecvOp::attachInterface<StartModel<RecvOp>>(*context);
    WaitOp::attachInterface<WaitModel>(*context);
    FsdpAllGatherCopyInOp::attachInterface<CopyInModel>(*context);
    FsdpSplitWithSizesCopyOp::attachInterface<SplitCopyModel>(*context);
    FsdpSplitWithSizesOp::attachInterface<SplitModel>(*context);
    FsdpChunkCatOp::attachInterface<ChunkCatModel>(*context);
    FsdpCopyOp::attachInterface<CopyModel>(*context);
    ResizeStorageOp::attachInterface<ResizeModel>(*context);
    ComputeOp::attachInterface<ComputeModel>(*context);
    // The rewrite creates operations of these dialects.
    context->loadDialect<arith::ArithDialect, memref::MemRefDialect, bufferization::BufferizationDialect>();
  });
}
