//===- CommCanonicalize.cpp - Canonicalizations that need no cost model -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The patterns fold repeated waits, collectives that move no data, and unused members of coalesced collectives. Every
// rank of the group must drop the same collectives. A pattern therefore looks only at types, symbols and uses, because
// constants may differ between the modules of the ranks. No pattern touches a future that escapes its function, and
// none drops a pair of a start and a wait on two streams.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// All users of a future if they are all waits; none otherwise.
std::optional<SmallVector<WaitOp>> getWaits(Value future) {
  SmallVector<WaitOp> waits;
  for (Operation *user : future.getUsers()) {
    auto wait = dyn_cast<WaitOp>(user);
    if (!wait)
      return std::nullopt;
    waits.push_back(wait);
  }
  return waits;
}

/// Returns true if a tensor comes from control flow or a call, so that its storage may have other names.
bool comesFromElsewhere(Value value) {
  Operation *def = value.getDefiningOp();
  if (!def)
    return !isa<FunctionOpInterface>(value.getParentBlock()->getParentOp()) || !value.getParentBlock()->isEntryBlock();
  return isa<RegionBranchOpInterface, CallOpInterface, SelectLikeOpInterface>(def);
}

/// Returns true if an operation may give the storage of its operands another name that this file does not follow:
/// control flow in a function, and calls.
bool passesOn(Operation *op) {
  bool isReturn = isa_and_nonnull<FunctionOpInterface>(op->getParentOp()) && op->hasTrait<OpTrait::ReturnLike>();
  return isa<RegionBranchOpInterface, CallOpInterface, SelectLikeOpInterface>(op) ||
         (op->hasTrait<OpTrait::IsTerminator>() && !isReturn);
}

/// Returns true if a StorageOpInterface operation may write the storage of a tensor, directly, through a view, or under
/// a name that control flow or a call gives it.
bool mayBeWritten(Value value) {
  // Maximum number of uses visited; beyond it the answer is true. It bounds the cost of one query.
  constexpr int kMaxUses = 512;
  SmallVector<Value> worklist{value};
  llvm::SmallPtrSet<Value, 8> seen;
  int numUses = 0;
  auto push = [&](Value other) {
    if (isa<TensorType>(other.getType()) && seen.insert(other).second)
      worklist.push_back(other);
  };
  seen.insert(value);
  while (!worklist.empty()) {
    Value current = worklist.pop_back_val();
    if (comesFromElsewhere(current))
      return true;
    if (auto result = dyn_cast<OpResult>(current))
      if (auto storage = dyn_cast<StorageOpInterface>(result.getOwner()))
        if (std::optional<unsigned> operand = storage.getAliasedOperand(result.getResultNumber()))
          push(result.getOwner()->getOperand(*operand));
    for (OpOperand &use : current.getUses()) {
      if (++numUses > kMaxUses)
        return true;
      Operation *user = use.getOwner();
      if (auto start = dyn_cast<CollectiveOpInterface>(user))
        if (llvm::is_contained(start.getCollectiveDests(), current))
          return true;
      if (passesOn(user))
        return true;
      auto storage = dyn_cast<StorageOpInterface>(user);
      if (!storage) {
        // Views of other dialects are among them.
        if (isMemoryEffectFree(user))
          llvm::for_each(user->getResults(), push);
        continue;
      }
      if (storage.mutatesOperand(use.getOperandNumber()))
        return true;
      for (OpResult result : user->getResults())
        if (storage.getAliasedOperand(result.getResultNumber()) == use.getOperandNumber())
          push(result);
    }
  }
  return false;
}

/// Returns true if `first` keeps every buffer that `second` keeps, so that removing `second` leaves no buffer
/// unprotected.
bool keepsAll(WaitOp first, WaitOp second) {
  return llvm::all_of(second.getInflight(),
                      [&](Value buffer) { return llvm::is_contained(first.getInflight(), buffer); });
}

/// Replaces a second wait of one future in one block by the values of the first.
struct FoldRepeatedWaits : public OpRewritePattern<WaitOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(WaitOp wait, PatternRewriter &rewriter) const final {
    if (wait.getFuture().hasOneUse())
      return failure();
    WaitOp first = wait;
    SmallVector<WaitOp> waits;
    for (Operation *user : wait.getFuture().getUsers())
      if (auto other = dyn_cast<WaitOp>(user); other && other->getBlock() == wait->getBlock()) {
        waits.push_back(other);
        if (other->isBeforeInBlock(first))
          first = other;
      }
    bool changed = false;
    for (WaitOp other : waits) {
      if (other == first || !keepsAll(first, other) ||
          other->getDiscardableAttrDictionary() != first->getDiscardableAttrDictionary())
        continue;
      rewriter.replaceOp(other, first.getValues());
      changed = true;
    }
    return success(changed);
  }
};

/// Returns true if the start or a wait is on another stream than the others. The pair then orders two streams, even if
/// it moves nothing, and a memory plan may count on it.
bool ordersStreams(Operation *start, ArrayRef<WaitOp> waits) {
  auto streamOf = [](Operation *op) {
    auto number = op->getAttrOfType<IntegerAttr>(CommDialect::kStreamAttrName);
    return number ? number.getInt() : 0;
  };
  return llvm::any_of(waits, [&](WaitOp wait) { return streamOf(wait) != streamOf(start); });
}

/// Returns true if value i of a start equals its input i when the rank is alone in its group or there is no data.
bool isIdentityKind(CollectiveOpInterface start) {
  if (auto permute = dyn_cast<PermuteOp>(*start))
    return permute.getPairs() == ArrayRef<int64_t>({0, 0});
  if (start.isPointToPoint())
    return false;
  if (start.getCollectiveReduction() != ReductionKind::scaled_sum)
    return true;
  auto scale = start->getAttrOfType<FloatAttr>("scale");
  return scale && scale.getValue().isExactlyValue(1.0);
}

/// Returns true if dropping the start leaves no other value of its tensor destination `index` without what the start
/// writes there: nobody else uses the destination, which is no view and no argument.
bool isDestUnused(CollectiveOpInterface start, unsigned index) {
  if (start.getCollectiveDests().empty())
    return true;
  Value dest = start.getCollectiveDests()[index];
  if (dest == start.getCollectiveInputs()[index])
    return true;
  auto result = dyn_cast<OpResult>(dest);
  auto storage = result ? dyn_cast<StorageOpInterface>(result.getOwner()) : StorageOpInterface();
  bool isView = result && (isa<ViewLikeOpInterface>(result.getOwner()) ||
                           (storage && storage.getAliasedOperand(result.getResultNumber())));
  return result && !isView && result.hasOneUse();
}

/// Returns true if value `index` of a start, which equals its input, may be replaced by that input.
bool canForward(CollectiveOpInterface start, ArrayRef<WaitOp> waits, unsigned index) {
  Value input = start.getCollectiveInputs()[index];
  Type type = cast<FutureType>(start.getCollectiveFuture().getType()).getTypes()[index];
  if (input.getType() != type)
    return false;
  if (isa<MemRefType>(type))
    return start.getCollectiveDests()[index] == input;
  return isDestUnused(start, index) && !mayBeWritten(input) &&
         llvm::none_of(waits, [&](WaitOp wait) { return mayBeWritten(wait.getValues()[index]); });
}

/// Replaces a collective over groups of one rank by its inputs.
struct FoldSingleRank : public OpInterfaceRewritePattern<CollectiveOpInterface> {
  using OpInterfaceRewritePattern::OpInterfaceRewritePattern;

  LogicalResult matchAndRewrite(CollectiveOpInterface start, PatternRewriter &rewriter) const final {
    if (!isIdentityKind(start))
      return failure();
    std::optional<SmallVector<WaitOp>> waits = getWaits(start.getCollectiveFuture());
    if (!waits || waits->empty())
      return rewriter.notifyMatchFailure(start, "the future escapes or has no wait");
    if (ordersStreams(start, *waits))
      return rewriter.notifyMatchFailure(start, "the pair orders two streams");
    auto group = SymbolTable::lookupNearestSymbolFrom<GroupOp>(start, start.getGroupAttr());
    if (!group || group.getGroupSize() != 1)
      return rewriter.notifyMatchFailure(start, "the group has more than one rank");
    unsigned numValues = cast<FutureType>(start.getCollectiveFuture().getType()).getTypes().size();
    for (unsigned index = 0; index < numValues; ++index)
      if (!canForward(start, *waits, index))
        return rewriter.notifyMatchFailure(start, "a value differs from its input, or may be written");
    SmallVector<Value> inputs(start.getCollectiveInputs());
    for (WaitOp wait : *waits)
      rewriter.replaceOp(wait, ValueRange(inputs).take_front(numValues));
    rewriter.eraseOp(start);
    return success();
  }
};

/// Returns true if every rank of the group starts this collective with the same members, so that all drop the same.
bool isSymmetricKind(CollectiveOpInterface start) {
  if (auto allToAll = dyn_cast<AllToAllOp>(*start))
    return !allToAll.hasSplits();
  return isa<AllGatherOp, ReduceScatterOp, AllReduceOp, BroadcastOp, ReduceOp, GatherOp, ScatterOp>(*start);
}

/// The members of a coalesced start that are not dropped.
struct MemberPlan {
  /// Members that stay in the start.
  SmallVector<unsigned> kept;
  /// Members of zero bytes. Their inputs replace their values.
  SmallVector<unsigned> forwarded;
};

MemberPlan planMembers(CollectiveOpInterface start, ArrayRef<WaitOp> waits) {
  MemberPlan plan;
  ArrayRef<Type> types = cast<FutureType>(start.getCollectiveFuture().getType()).getTypes();
  for (auto [index, type] : llvm::enumerate(types)) {
    Value input = start.getCollectiveInputs()[index];
    bool used = llvm::any_of(waits, [&, index = index](WaitOp wait) { return !wait.getValues()[index].use_empty(); });
    // What is written stays apart: one of both may be in flight.
    bool isWritten = mayBeWritten(input) || llvm::any_of(waits, [&, index = index](WaitOp wait) {
                       return mayBeWritten(wait.getValues()[index]);
                     });
    if (input.getType() == type && getStaticElements(type) == 0 && !isWritten)
      plan.forwarded.push_back(index);
    else if (used)
      plan.kept.push_back(index);
  }
  return plan;
}

/// Drops the members of a coalesced start on tensors that have no reader or no bytes. A whole collective is never
/// dropped because its results are unused.
struct DropMembers : public OpInterfaceRewritePattern<CollectiveOpInterface> {
  using OpInterfaceRewritePattern::OpInterfaceRewritePattern;

  LogicalResult matchAndRewrite(CollectiveOpInterface start, PatternRewriter &rewriter) const final {
    Value future = start.getCollectiveFuture();
    ArrayRef<Type> types = cast<FutureType>(future.getType()).getTypes();
    if (!isSymmetricKind(start) || types.empty() || !isa<TensorType>(types.front()) ||
        !start.getCollectiveDests().empty())
      return failure();
    std::optional<SmallVector<WaitOp>> waits = getWaits(future);
    if (!waits || waits->empty())
      return rewriter.notifyMatchFailure(start, "the future escapes or has no wait");
    MemberPlan plan = planMembers(start, *waits);
    if (plan.kept.size() == types.size() || (plan.kept.empty() && plan.forwarded.size() != types.size()))
      return failure();
    if (plan.kept.empty() && ordersStreams(start, *waits))
      return rewriter.notifyMatchFailure(start, "the pair orders two streams");

    SmallVector<Value> inputs(start.getCollectiveInputs());
    SmallVector<Type> keptTypes;
    for (unsigned index : plan.kept)
      keptTypes.push_back(types[index]);
    auto keptFuture = FutureType::get(getContext(), keptTypes);
    SmallVector<SmallVector<Value>> replacements;
    for (WaitOp wait : *waits) {
      SmallVector<Value> values(wait.getNumResults());
      for (unsigned index : plan.forwarded)
        values[index] = inputs[index];
      rewriter.setInsertionPoint(wait);
      if (!plan.kept.empty()) {
        auto narrow = WaitOp::create(rewriter, wait.getLoc(), TypeRange(keptTypes), future, wait.getInflight());
        narrow->setDiscardableAttrs(wait->getDiscardableAttrDictionary());
        for (auto [place, index] : llvm::enumerate(plan.kept))
          values[index] = narrow.getValues()[place];
      }
      // The other values have no uses.
      for (auto [value, result] : llvm::zip_equal(values, wait.getValues()))
        if (value)
          rewriter.replaceAllUsesWith(result, value);
      rewriter.eraseOp(wait);
    }
    if (plan.kept.empty()) {
      rewriter.eraseOp(start);
      return success();
    }
    rewriter.modifyOpInPlace(start, [&] {
      for (unsigned index = types.size(); index-- > 0;)
        if (!llvm::is_contained(plan.kept, index))
          start->eraseOperand(index);
      setNumInputs(start, plan.kept.size());
      keepMarks(start, plan.kept, types.size());
      future.setType(keptFuture);
    });
    return success();
  }

private:
  /// Keeps the marks of the members that are left: one for each input, then one for each value of the future.
  static void keepMarks(CollectiveOpInterface start, ArrayRef<unsigned> kept, size_t members) {
    auto marks = start->getAttrOfType<DenseBoolArrayAttr>(CommDialect::kSymmetricAttrName);
    if (!marks)
      return;
    SmallVector<bool> left;
    for (size_t first : {size_t(0), members})
      for (unsigned index : kept)
        left.push_back(marks[first + index]);
    start->setAttr(CommDialect::kSymmetricAttrName, DenseBoolArrayAttr::get(start->getContext(), left));
  }

  /// Sets the operand segments after inputs were erased.
  static void setNumInputs(CollectiveOpInterface start, int32_t numInputs) {
    auto segments = llvm::to_vector(start->getAttrOfType<DenseI32ArrayAttr>("operandSegmentSizes").asArrayRef());
    segments.front() = numInputs;
    start->setAttr("operandSegmentSizes", DenseI32ArrayAttr::get(start->getContext(), segments));
  }
};

/// Moves splits that are constants to the static list. The exchange itself does not change, because other ranks may
/// have other constants. A constant that the verifier would refuse stays an operand, and the runtime reports the error.
struct FoldConstantSplits : public OpRewritePattern<AllToAllOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AllToAllOp op, PatternRewriter &rewriter) const final {
    SmallVector<Type> inputTypes(op.getInputs().getTypes());
    ArrayRef<Type> outputTypes = cast<FutureType>(op.getFuture().getType()).getTypes();
    SmallVector<OpFoldResult> inputs = op.getMixedInputSplits(), outputs = op.getMixedOutputSplits();
    bool foldInputs = fold(inputs, inputTypes, op.getSplitDim());
    bool foldOutputs = fold(outputs, outputTypes, op.getSplitDim());
    if (!foldInputs && !foldOutputs)
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      SmallVector<int64_t> constants;
      SmallVector<Value> operands;
      if (foldInputs) {
        dispatchIndexOpFoldResults(inputs, operands, constants);
        op.getInputSplitsMutable().assign(operands);
        op.setStaticInputSplits(constants);
      }
      if (foldOutputs) {
        operands.clear();
        constants.clear();
        dispatchIndexOpFoldResults(outputs, operands, constants);
        op.getOutputSplitsMutable().assign(operands);
        op.setStaticOutputSplits(constants);
      }
    });
    return success();
  }

private:
  /// Folds the constant splits. Returns false if there are none, or if the verifier would refuse the list.
  static bool fold(SmallVectorImpl<OpFoldResult> &splits, ArrayRef<Type> types, int64_t dim) {
    if (failed(foldDynamicIndexList(splits, /*onlyNonNegative=*/true)))
      return false;
    int64_t sum = 0;
    bool isConstant = true;
    for (OpFoldResult split : splits) {
      std::optional<int64_t> rows = isa<Attribute>(split) ? getConstantIntValue(split) : std::nullopt;
      isConstant &= rows.has_value();
      if (llvm::AddOverflow(sum, rows.value_or(0), sum))
        return false;
    }
    return !isConstant || llvm::all_of(types, [&](Type type) {
      int64_t size = cast<ShapedType>(type).getDimSize(dim);
      return ShapedType::isDynamic(size) || size == sum;
    });
  }
};

} // namespace

void CommDialect::getCanonicalizationPatterns(RewritePatternSet &patterns) const {
  patterns.add<FoldRepeatedWaits, FoldSingleRank, DropMembers, FoldConstantSplits>(getContext());
}
