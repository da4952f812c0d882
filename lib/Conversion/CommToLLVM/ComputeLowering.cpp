//===- ComputeLowering.cpp - Opaque computations and packing as calls -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// `comm.compute` and the FSDP operations call reference kernels of the runtime by name.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Runtime.h"
#include "FunctionLowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

static constexpr int64_t mutated = COMMRT_OPERAND_WRITTEN;
static constexpr int64_t output = COMMRT_OPERAND_WRITTEN | COMMRT_OPERAND_OUTPUT;

LogicalResult FunctionLowering::emitCompute(Operation *op, StringRef name, ValueRange operands, ArrayRef<int64_t> flags,
                                            ArrayRef<int64_t> extra, int64_t costNs) {
  Location loc = op->getLoc();
  SmallVector<int64_t> meta;
  SmallVector<std::pair<int64_t, Value>> dynamic;
  int64_t count = 0;
  SmallVector<std::pair<Value, Value>> written; // the dense copies of values that are not dense
  for (auto [operand, flag] : llvm::zip_equal(operands, flags)) {
    auto memref = dyn_cast<MemRefType>(operand.getType());
    Type element = memref ? memref.getElementType() : operand.getType();
    int64_t dtype = element.isIntOrIndexOrFloat() ? getRuntimeDtype(element) : -1;
    if (dtype < 0) {
      // Handles and other types have no bits that a kernel reads.
      if (!memref)
        continue;
      return op->emitOpError() << "expected an element type that the runtime knows, got " << element;
    }
    Value address;
    if (memref) {
      Value buffer = dense(loc, operand);
      if (flag != 0 && buffer != operand)
        written.push_back({buffer, operand});
      address = pointer(loc, buffer);
    } else {
      address = LLVM::GEPOp::create(builder, loc, calls.pointerType(), builder.getI64Type(), scalarSlots,
                                    ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(count)});
      Value scalar = operand;
      if (isa<IndexType>(element))
        scalar = arith::IndexCastOp::create(builder, loc, builder.getI64Type(), scalar);
      LLVM::StoreOp::create(builder, loc, scalar, address);
    }
    Value slot = LLVM::GEPOp::create(builder, loc, calls.pointerType(), calls.pointerType(), operandSlots,
                                     ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(count++)});
    LLVM::StoreOp::create(builder, loc, address, slot);
    int64_t place = facts.onDevice && !memref ? COMMRT_OPERAND_HOST : 0;
    llvm::append_values(meta, dtype, flag | place, memref ? memref.getRank() : 0);
    for (int64_t dim = 0; memref && dim < memref.getRank(); ++dim) {
      if (memref.isDynamicDim(dim))
        dynamic.push_back({meta.size(), product(loc, operand, dim, dim + 1)});
      meta.push_back(memref.getDimSize(dim));
    }
  }
  meta.push_back(extra.size());
  llvm::append_range(meta, extra);
  call(loc, "commrt_compute",
       {context, string(loc, name), integer(loc, count), operandSlots, metaData(loc, meta, dynamic),
        integer(loc, costNs)});
  for (auto [copy, operand] : written)
    memref::CopyOp::create(builder, loc, copy, operand);
  return success();
}

/// A constant, or a copy of it on the stack if sizes are known only at run time.
Value FunctionLowering::metaData(Location loc, ArrayRef<int64_t> meta, ArrayRef<std::pair<int64_t, Value>> dynamic) {
  if (dynamic.empty())
    return integers(loc, meta);
  Value slots = calls.stackSlot(entryBuilder, loc, builder.getI64Type(), meta.size());
  auto store = [&](int64_t index, Value value) {
    Value slot = LLVM::GEPOp::create(builder, loc, calls.pointerType(), builder.getI64Type(), slots,
                                     ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(index)});
    LLVM::StoreOp::create(builder, loc, value, slot);
  };
  for (auto [index, value] : llvm::enumerate(meta))
    if (!ShapedType::isDynamic(value))
      store(index, integer(loc, value));
  for (auto [index, value] : dynamic)
    store(index, value);
  return slots;
}

LogicalResult FunctionLowering::lowerCompute(ComputeOp op) {
  if (op->getNumResults() > 0)
    return op.emitOpError() << "expected no results on buffers, got " << op->getNumResults()
                            << "; comm-bufferize turns results into operands";
  SmallVector<int64_t> flags(op->getNumOperands(), 0);
  for (int64_t operand : op.getMutates().value_or(ArrayRef<int64_t>()))
    flags[operand] = mutated;
  int64_t outputs = 0;
  if (auto attr = op->getAttrOfType<IntegerAttr>("outputs"))
    outputs = std::min<int64_t>(attr.getInt(), flags.size());
  std::fill(flags.end() - outputs, flags.end(), output);
  return emitCompute(op, op.getName(), op->getOperands(), flags, {}, getCostNs(op));
}

Value FunctionLowering::viewAs(Location loc, Value source, Value offset, MemRefType type) {
  auto metadata = memref::ExtractStridedMetadataOp::create(builder, loc, source);
  Value begin = arith::AddIOp::create(builder, loc, metadata.getOffset(), offset);
  SmallVector<int64_t> strides(type.getRank(), 1);
  for (int64_t dim = type.getRank() - 2; dim >= 0; --dim)
    strides[dim] = strides[dim + 1] * type.getDimSize(dim + 1);
  auto dynamic = MemRefType::get(type.getShape(), type.getElementType(),
                                 StridedLayoutAttr::get(builder.getContext(), ShapedType::kDynamic, strides));
  Value view = memref::ReinterpretCastOp::create(builder, loc, dynamic, metadata.getBaseBuffer(), OpFoldResult(begin),
                                                 getAsIndexOpFoldResult(builder.getContext(), type.getShape()),
                                                 getAsIndexOpFoldResult(builder.getContext(), strides));
  return dynamic == type ? view : Value(memref::CastOp::create(builder, loc, type, view));
}

LogicalResult FunctionLowering::lowerCopyIn(FsdpAllGatherCopyInOp op) {
  Location loc = op.getLoc();
  auto slice = cast<MemRefType>(op.getSlice().getType());
  if (!slice.hasStaticShape())
    return op.emitOpError() << "expected a slice of static size, got " << slice;
  if (!isDense(op.getDest()))
    return op.emitOpError() << "expected a contiguous buffer of which the slice is a view, got "
                            << op.getDest().getType();
  Value place = calls.call(builder, loc, "commrt_group_rank", group(loc, op.getGroupAttr()));
  place = arith::IndexCastOp::create(builder, loc, builder.getIndexType(), place);
  Value elements = arith::ConstantIndexOp::create(builder, loc, slice.getDimSize(0));
  Value view = viewAs(loc, op.getDest(), arith::MulIOp::create(builder, loc, place, elements), slice);
  SmallVector<Value> operands(op.getInputs());
  operands.push_back(view);
  SmallVector<int64_t> flags(operands.size(), 0), types;
  flags.back() = output;
  if (std::optional<ArrayAttr> as = op.getAs())
    for (Type type : as->getAsValueRange<TypeAttr>()) {
      types.push_back(getRuntimeDtype(type));
      if (types.back() < 0)
        return op.emitOpError() << "expected an element type that the runtime knows in 'as', got " << type;
    }
  if (failed(emitCompute(op, "comm.pack", operands, flags, types, getCostNs(op))))
    return failure();
  op->replaceAllUsesWith(ValueRange{view, op.getDest()});
  return success();
}

LogicalResult FunctionLowering::lowerSplitCopy(FsdpSplitWithSizesCopyOp op) {
  SmallVector<Value> operands = {op.getSource()};
  llvm::append_range(operands, op.getDests());
  SmallVector<int64_t> flags(operands.size(), output), extra = {static_cast<int64_t>(op.getSizes().size())};
  flags[0] = 0;
  llvm::append_range(extra, op.getSizes());
  if (op.getMembers())
    llvm::append_range(extra, *op.getMembers());
  else
    llvm::append_range(extra, llvm::seq<int64_t>(0, op.getSizes().size()));
  SmallVector<Value> dests(op.getDests());
  if (failed(emitCompute(op, "comm.split_copy", operands, flags, extra, getCostNs(op))))
    return failure();
  op->replaceAllUsesWith(dests);
  return success();
}

LogicalResult FunctionLowering::lowerSplit(FsdpSplitWithSizesOp op) {
  if (!isDense(op.getSource()))
    return op.emitOpError() << "expected a contiguous buffer to view as its pieces, got " << op.getSource().getType();
  int64_t offset = 0;
  for (auto [result, size] : llvm::zip_equal(op->getResults(), op.getSizes())) {
    Value begin = arith::ConstantIndexOp::create(builder, op.getLoc(), offset);
    result.replaceAllUsesWith(viewAs(op.getLoc(), op.getSource(), begin, cast<MemRefType>(result.getType())));
    offset += size;
  }
  return success();
}

LogicalResult FunctionLowering::lowerChunkCat(FsdpChunkCatOp op) {
  SmallVector<Value> operands(op.getInputs());
  operands.push_back(op.getDest());
  SmallVector<int64_t> flags(operands.size(), 0);
  flags.back() = output;
  if (failed(emitCompute(op, "comm.chunk_cat", operands, flags, {static_cast<int64_t>(op.getChunks())}, getCostNs(op))))
    return failure();
  op->replaceAllUsesWith(ValueRange{op.getDest()});
  return success();
}
