//===- StartLowering.cpp - Starts as calls ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One call per input of a start; a coalesced list of several inputs is enclosed in a begin and an end call.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Locations.h"
#include "CommSched/Runtime/Runtime.h"
#include "FunctionLowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

// Kinds and reductions go to the runtime as their numbers.
#define COMMSCHED_SAME(ours, theirs) static_assert(static_cast<int>(ours) == (theirs), "expected the runtime's number")
COMMSCHED_SAME(CollectiveKind::AllGather, COMMRT_ALL_GATHER);
COMMSCHED_SAME(CollectiveKind::ReduceScatter, COMMRT_REDUCE_SCATTER);
COMMSCHED_SAME(CollectiveKind::AllReduce, COMMRT_ALL_REDUCE);
COMMSCHED_SAME(CollectiveKind::AllToAll, COMMRT_ALL_TO_ALL);
COMMSCHED_SAME(CollectiveKind::Broadcast, COMMRT_BROADCAST);
COMMSCHED_SAME(CollectiveKind::Reduce, COMMRT_REDUCE);
COMMSCHED_SAME(CollectiveKind::Gather, COMMRT_GATHER);
COMMSCHED_SAME(CollectiveKind::Scatter, COMMRT_SCATTER);
COMMSCHED_SAME(CollectiveKind::Permute, COMMRT_PERMUTE);
COMMSCHED_SAME(CollectiveKind::Send, COMMRT_SEND);
COMMSCHED_SAME(CollectiveKind::Recv, COMMRT_RECV);
COMMSCHED_SAME(CollectiveKind::Barrier, COMMRT_BARRIER);
COMMSCHED_SAME(ReductionKind::sum, COMMRT_SUM);
COMMSCHED_SAME(ReductionKind::product, COMMRT_PRODUCT);
COMMSCHED_SAME(ReductionKind::min, COMMRT_MIN);
COMMSCHED_SAME(ReductionKind::max, COMMRT_MAX);
COMMSCHED_SAME(ReductionKind::avg, COMMRT_AVG);
COMMSCHED_SAME(ReductionKind::scaled_sum, COMMRT_SCALED_SUM);
#undef COMMSCHED_SAME

static int64_t rankOf(Value memref) { return cast<MemRefType>(memref.getType()).getRank(); }
static int64_t staticElements(Value memref, int64_t begin) {
  int64_t count = 1;
  for (int64_t size : cast<MemRefType>(memref.getType()).getShape().drop_front(begin)) {
    if (ShapedType::isDynamic(size))
      return -1;
    count *= size;
  }
  return count;
}

int64_t FunctionLowering::addSite(CollectiveOpInterface start, Value in, Value out) {
  Value data = in ? in : out;
  int64_t dtype = -1, count = 0;
  if (data) {
    dtype = getRuntimeDtype(cast<MemRefType>(data.getType()).getElementType());
    // Uneven pieces may differ between ranks.
    auto allToAll = dyn_cast<AllToAllOp>(start.getOperation());
    count = allToAll && allToAll.hasSplits() ? -1 : staticElements(data, 0);
  }
  sites.push_back({static_cast<int64_t>(start.getCollectiveKind()), dtype, count, start.getGroupAttr().getValue().str(),
                   locationText(start.getLoc()), getCostNs(start)});
  return static_cast<int64_t>(sites.size()) - 1;
}

/// Returns true if the only use of the future is a wait in the block of its start.
static bool hasOneWait(CollectiveOpInterface start) {
  Value future = start.getCollectiveFuture();
  return future.hasOneUse() && isa<WaitOp>(*future.user_begin()) &&
         future.user_begin()->getBlock() == start->getBlock();
}

LogicalResult FunctionLowering::lowerStart(CollectiveOpInterface start) {
  Location loc = start.getLoc();
  SmallVector<Value> inputs(start.getCollectiveInputs()), dests(start.getCollectiveDests());
  SmallVector<CopyBack> copies;
  SmallVector<Value> targets = dests;
  for (Value &target : targets)
    if (!isDense(target)) {
      if (!hasOneWait(start))
        return start.emitOpError()
               << "expected a contiguous destination, or exactly one wait in the block of the start, got "
               << target.getType() << " and another use of the future";
      auto [copy, data] = denseCopy(loc, target);
      copies.push_back({copy, target, data});
      target = copy;
    }
  for (Value &input : inputs)
    input = dense(loc, input);
  int64_t count = std::max<int64_t>({1, int64_t(inputs.size()), int64_t(dests.size())});
  bool isCoalesced = count > 1;
  if (isCoalesced)
    call(loc, "commrt_coalesce_begin", context);
  for (int64_t i = 0; i < count; ++i) {
    Value in = i < int64_t(inputs.size()) ? inputs[i] : Value(),
          out = i < int64_t(targets.size()) ? targets[i] : Value();
    if (failed(emitStart(start, in, out, isCoalesced ? null(loc) : handleSlot)))
      return failure();
  }
  if (isCoalesced)
    call(loc, "commrt_coalesce_end", {context, handleSlot});
  Value token = LLVM::LoadOp::create(builder, loc, calls.pointerType(), handleSlot);
  tokenDests[token] = dests;
  if (!copies.empty())
    copyBacks[token] = std::move(copies);
  releaseToken(start, token);
  start->getResult(0).replaceAllUsesWith(token);
  return success();
}

LogicalResult FunctionLowering::emitStart(CollectiveOpInterface start, Value in, Value out, Value token) {
  Location loc = start.getLoc();
  Value data = in ? in : out;
  Type elementType = data ? cast<MemRefType>(data.getType()).getElementType() : builder.getI8Type();
  int64_t dtype = getRuntimeDtype(elementType);
  if (dtype < 0)
    return start.emitOpError() << "expected an element type that the runtime can move, got " << elementType;
  bool isReduced = start.getCollectiveReduction().has_value();
  if (isReduced && !(dtype <= COMMRT_F64 || elementType.isInteger()))
    return start.emitOpError() << "expected an element type that the runtime can reduce, got " << elementType;
  Value handle = group(loc, start.getGroupAttr());
  Value source = in ? pointer(loc, in) : null(loc);
  Value target = out ? pointer(loc, out) : null(loc);
  Value type = integer(loc, dtype, 32), site = integer(loc, addSite(start, in, out));
  int64_t rank = data ? rankOf(data) : 0;
  Value all = data ? product(loc, data, 0, rank) : integer(loc, 0);
  auto reduction = [&] { return integer(loc, static_cast<int64_t>(*start.getCollectiveReduction()), 32); };
  auto scale = [&](std::optional<APFloat> value) {
    return calls.real(builder, loc, value ? value->convertToDouble() : 1.0);
  };
  auto small = [&](int64_t value) { return integer(loc, value, 32); };
  return llvm::TypeSwitch<Operation *, LogicalResult>(start)
      .Case([&](AllGatherOp op) {
        int64_t dim = op.getDim();
        call(loc, "commrt_all_gather_start",
             {handle, source, target, product(loc, in, 0, dim), product(loc, in, dim, rank), type, site, token});
        return success();
      })
      .Case([&](ReduceScatterOp op) {
        int64_t dim = op.getDim();
        call(loc, "commrt_reduce_scatter_start",
             {handle, source, target, product(loc, out, 0, dim), product(loc, out, dim, rank), type, reduction(),
              scale(op.getScale()), site, token});
        return success();
      })
      .Case([&](AllReduceOp op) {
        if (op.getOneShot()) {
          call(loc, "commrt_all_reduce_one_shot_start", {handle, source, target, all, type, site, token});
          return success();
        }
        call(loc, "commrt_all_reduce_start",
             {handle, source, target, all, type, reduction(), scale(op.getScale()), site, token});
        return success();
      })
      .Case([&](AllToAllOp op) -> LogicalResult {
        if (op.hasSplits())
          return emitUneven(op, in, out, token);
        SymbolTableCollection symbols;
        GroupOp group = lookupGroup(start, symbols);
        Value block = LLVM::UDivOp::create(builder, loc, all, integer(loc, group.getGroupSize()));
        call(loc, "commrt_all_to_all_start",
             {handle, source, target, product(loc, in, 0, op.getSplitDim()),
              concatRows(loc, op, in, group.getGroupSize()), block, type, site, token});
        return success();
      })
      .Case([&](BroadcastOp op) {
        call(loc, "commrt_broadcast_start", {handle, source, target, all, type, small(op.getRoot()), site, token});
        return success();
      })
      .Case([&](ReduceOp op) {
        call(loc, "commrt_reduce_start",
             {handle, source, target, all, type, reduction(), scale(op.getScale()), small(op.getRoot()), site, token});
        return success();
      })
      .Case([&](GatherOp op) {
        int64_t dim = op.getDim();
        call(loc, "commrt_gather_start",
             {handle, source, target, product(loc, in, 0, dim), product(loc, in, dim, rank), type, small(op.getRoot()),
              site, token});
        return success();
      })
      .Case([&](ScatterOp op) {
        int64_t dim = op.getDim();
        call(loc, "commrt_scatter_start",
             {handle, source, target, product(loc, out, 0, dim), product(loc, out, dim, rank), type,
              small(op.getRoot()), site, token});
        return success();
      })
      .Case([&](PermuteOp op) {
        call(loc, "commrt_permute_start",
             {handle, source, target, all, type, integers(loc, op.getPairs()), integer(loc, op.getPairs().size() / 2),
              site, token});
        return success();
      })
      .Case([&](SendOp op) {
        call(loc, "commrt_send_start",
             {handle, source, all, type, small(op.getPeer()), integer(loc, op.getTag()), site, token});
        return success();
      })
      .Case([&](RecvOp op) {
        call(loc, "commrt_recv_start",
             {handle, target, all, type, small(op.getPeer()), integer(loc, op.getTag()), site, token});
        return success();
      })
      .Case([&](BarrierOp) {
        call(loc, "commrt_barrier_start", {handle, site, token});
        return success();
      })
      .Default([](Operation *op) { return op->emitOpError() << "has no lowering to the runtime"; });
}

/// The product of the sizes of a received piece before the dimension of concatenation.
Value FunctionLowering::concatRows(Location loc, AllToAllOp op, Value in, int64_t groupSize) {
  int64_t concat = op.getConcatDim(), split = op.getSplitDim();
  Value rows = product(loc, in, 0, concat);
  return split < concat ? Value(LLVM::UDivOp::create(builder, loc, rows, integer(loc, groupSize))) : rows;
}

/// The splits as an array: constant data, or the slots for scalars from `firstSlot` on.
Value FunctionLowering::splitArray(Location loc, ArrayRef<OpFoldResult> splits, int64_t firstSlot) {
  if (std::optional<SmallVector<int64_t>> constants = getConstantIntValues(splits))
    return integers(loc, *constants);
  auto slotOf = [&](int64_t index) {
    return LLVM::GEPOp::create(builder, loc, calls.pointerType(), builder.getI64Type(), scalarSlots,
                               ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(firstSlot + index)});
  };
  for (auto [index, split] : llvm::enumerate(splits)) {
    Value rows;
    if (std::optional<int64_t> constant = getConstantIntValue(split))
      rows = integer(loc, *constant);
    else
      rows = arith::IndexCastOp::create(builder, loc, builder.getI64Type(), cast<Value>(split));
    LLVM::StoreOp::create(builder, loc, rows, slotOf(static_cast<int64_t>(index)));
  }
  return slotOf(0);
}

LogicalResult FunctionLowering::emitUneven(AllToAllOp op, Value in, Value out, Value token) {
  Location loc = op.getLoc();
  auto type = cast<MemRefType>(in.getType());
  int64_t dim = op.getSplitDim(), site = static_cast<int64_t>(sites.size()) - 1;
  SmallVector<OpFoldResult> sent = op.getMixedInputSplits(), received = op.getMixedOutputSplits();
  Value handle = group(loc, op.getGroupAttr());
  Value sendCounts = splitArray(loc, sent, 0);
  Value receiveCounts = splitArray(loc, received, static_cast<int64_t>(sent.size()));
  // The verifier has checked the sum of static splits.
  auto check = [&](ArrayRef<OpFoldResult> splits, Value counts, Value buffer) {
    if (llvm::any_of(splits, llvm::IsaPred<Value>) || cast<MemRefType>(buffer.getType()).isDynamicDim(dim))
      call(loc, "commrt_check_rows", {handle, counts, product(loc, buffer, dim, dim + 1), integer(loc, site)});
  };
  check(sent, sendCounts, in);
  check(received, receiveCounts, out);
  call(loc, "commrt_all_to_all_v_start",
       {handle, pointer(loc, in), sendCounts, pointer(loc, out), receiveCounts, product(loc, in, 0, dim),
        product(loc, in, dim + 1, type.getRank()), integer(loc, getRuntimeDtype(type.getElementType()), 32),
        integer(loc, site), token});
  return success();
}
