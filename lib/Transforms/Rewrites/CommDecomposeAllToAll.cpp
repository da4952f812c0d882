//===- CommDecomposeAllToAll.cpp - The pass comm-decompose-all-to-all -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Libraries exchange contiguous pieces. An all-to-all that moves a shard from one dimension to another (as PyTorch's
// shard_dim_alltoall does) becomes a transposition that brings the pieces to the front, an exchange along the leading
// dimension, and a transposition that puts them in place. Nothing is computed, so the bits do not change.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Streams.h"
#include "CommSched/Analysis/TensorPlaces.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "RewriteRemarks.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace commsched {
#define GEN_PASS_DEF_COMMDECOMPOSEALLTOALL
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// Builds the operations before and after one exchange.
class Decomposer {
public:
  Decomposer(AllToAllOp op, int64_t ranks)
      : op(op), builder(op), split(op.getSplitDim()), concat(op.getConcatDim()), ranks(ranks), uneven(op.hasSplits()) {}

  /// The pieces of `input` in sequence along the leading dimension.
  Value bringToFront(Value input) {
    if (uneven)
      return moveDim(input, split, 0);
    auto type = cast<RankedTensorType>(input.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[split] /= ranks;
    shape.insert(shape.begin() + split, ranks);
    Value pieces = tensor::ExpandShapeOp::create(builder, op.getLoc(), type.clone(shape), input,
                                                 groupsAround(split, type.getRank()));
    return moveDim(pieces, split, 0);
  }

  /// The received pieces, in sequence along the leading dimension, in the shape of `result`.
  Value putInPlace(Value received, RankedTensorType result) {
    builder.setInsertionPointAfterValue(received);
    Value moved = moveDim(received, 0, concat);
    if (uneven)
      return moved;
    return tensor::CollapseShapeOp::create(builder, op.getLoc(), result, moved, groupsAround(concat, result.getRank()));
  }

private:
  /// The dimensions 0 to rank, with `dim` and its successor merged.
  static SmallVector<ReassociationIndices> groupsAround(int64_t dim, int64_t rank) {
    SmallVector<ReassociationIndices> groups;
    for (int64_t i = 0; i < rank; ++i) {
      ReassociationIndices &group = groups.emplace_back();
      group.push_back(i + (i > dim));
      if (i == dim)
        group.push_back(i + 1);
    }
    return groups;
  }

  Value moveDim(Value value, int64_t from, int64_t to) {
    if (from == to)
      return value;
    auto type = cast<RankedTensorType>(value.getType());
    auto permutation = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
    permutation.erase(permutation.begin() + from);
    permutation.insert(permutation.begin() + to, from);
    SmallVector<int64_t> shape;
    for (int64_t dim : permutation)
      shape.push_back(type.getDimSize(dim));
    Value init = tensor::EmptyOp::create(builder, op.getLoc(), shape, type.getElementType());
    return linalg::TransposeOp::create(builder, op.getLoc(), value, init, permutation)->getResult(0);
  }

  AllToAllOp op;
  OpBuilder builder;
  int64_t split, concat, ranks;
  bool uneven;
};

struct CommDecomposeAllToAllPass : public commsched::impl::CommDecomposeAllToAllBase<CommDecomposeAllToAllPass> {
  using CommDecomposeAllToAllBase::CommDecomposeAllToAllBase;

  void runOnOperation() final {
    SmallVector<AllToAllOp> exchanges;
    getOperation()->walk([&](AllToAllOp op) {
      if (op.getSplitDim() != 0 || op.getConcatDim() != 0)
        exchanges.push_back(op);
    });
    TrafficCheck before(getOperation());
    TensorPlaces places(getOperation());
    SymbolTableCollection symbols;
    // Indexed by block of an exchange: whether streams have been chosen for it.
    llvm::DenseMap<Block *, bool> hasStreams;
    for (AllToAllOp op : exchanges) {
      auto [known, isNew] = hasStreams.try_emplace(op->getBlock(), false);
      if (isNew)
        known->second = usesStreams(*op->getBlock());
      GroupOp group = lookupGroup(cast<CollectiveOpInterface>(*op), symbols);
      if (known->second)
        remarkMissed(op, getArgument(), "operations of the block are on several streams; choose streams last");
      else if (StringRef obstacle = findObstacle(op, places); !obstacle.empty())
        remarkMissed(op, getArgument(), obstacle.str());
      else
        decompose(op, group.getGroupSize());
    }
    if (failed(before.compare(TrafficCheck(getOperation()), getOperation()->getLoc(), getArgument())))
      signalPassFailure();
  }

private:
  static StringRef findObstacle(AllToAllOp op, const TensorPlaces &places) {
    for (Value input : op.getInputs()) {
      auto type = dyn_cast<RankedTensorType>(input.getType());
      if (!type)
        return "the exchange is on buffers";
      if (!type.hasStaticShape())
        return "an input has a dynamic size";
    }
    if (!op.getDests().empty())
      return "the exchange has destinations";
    // Transpositions are values, and know nothing of writes.
    auto isPlace = [&](Value tensor) { return places.isPlace(tensor); };
    if (llvm::any_of(op.getInputs(), isPlace))
      return "an input is written by others";
    for (Operation *user : op.getFuture().getUsers())
      if (!isa<WaitOp>(user))
        return "the future leaves its block";
      else if (llvm::any_of(user->getResults(), isPlace))
        return "a result is written";
    for (Type type : cast<FutureType>(op.getFuture().getType()).getTypes())
      if (!cast<RankedTensorType>(type).hasStaticShape())
        return "a result has a dynamic size";
    return "";
  }

  void decompose(AllToAllOp op, int64_t ranks) {
    remarkPassed(op, getArgument(), "exchanged along the leading dimension",
                 getCollectiveBytes(cast<CollectiveOpInterface>(*op)));
    Decomposer decomposer(op, ranks);
    SmallVector<Value> inputs;
    SmallVector<Type> types;
    for (auto [input, type] : llvm::zip_equal(op.getInputs(), cast<FutureType>(op.getFuture().getType()).getTypes())) {
      inputs.push_back(decomposer.bringToFront(input));
      auto front = cast<RankedTensorType>(inputs.back().getType());
      SmallVector<int64_t> shape(front.getShape());
      if (op.hasSplits())
        shape.front() = cast<RankedTensorType>(type).getDimSize(op.getConcatDim());
      types.push_back(front.clone(shape));
    }
    SmallVector<WaitOp> waits;
    for (Operation *user : op.getFuture().getUsers())
      waits.push_back(cast<WaitOp>(user));
    op.getInputsMutable().assign(inputs);
    op.setSplitDim(0);
    op.setConcatDim(0);
    op.getFuture().setType(FutureType::get(op.getContext(), types));
    for (WaitOp wait : waits)
      for (auto [value, type] : llvm::zip_equal(wait.getResults(), types)) {
        auto result = cast<RankedTensorType>(value.getType());
        value.setType(type);
        SmallVector<OpOperand *> uses;
        for (OpOperand &use : value.getUses())
          uses.push_back(&use);
        Value placed = decomposer.putInPlace(value, result);
        for (OpOperand *use : uses)
          use->set(placed);
      }
  }
};

} // namespace
