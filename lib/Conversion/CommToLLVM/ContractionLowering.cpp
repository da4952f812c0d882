//===- ContractionLowering.cpp - Matrix products as calls -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Upstream's loops compute a product of 8192 x 4096 x 4096 in minutes. The runtime's blocked kernel needs two seconds.
// It reads operands by their strides, so transposed operands cost nothing extra. It sums f16 and bf16 in f32.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Runtime.h"
#include "FunctionLowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Returns true if the body is `out + left * right`, with only widening in between.
static bool multipliesAndAdds(linalg::LinalgOp op) {
  return op.getNumDpsInputs() == 2 && op.getNumDpsInits() == 1 && linalg::isaContractionOpInterface(op) &&
         llvm::all_of(*op.getBlock(),
                      [](Operation &inner) {
                        return isa<arith::MulFOp, arith::AddFOp, arith::ExtFOp, linalg::YieldOp>(inner);
                      }) &&
         llvm::all_of(op->getOperandTypes(), [](Type type) {
           auto memref = dyn_cast<MemRefType>(type);
           Type element = memref ? memref.getElementType() : Type();
           return memref && memref.isStrided() &&
                  (element.isF16() || element.isBF16() || element.isF32() || element.isF64());
         });
}

OpFoldResult FunctionLowering::sizeOf(Location loc, Value memref, int64_t dim) {
  auto type = cast<MemRefType>(memref.getType());
  return type.isDynamicDim(dim) ? OpFoldResult(product(loc, memref, dim, dim + 1))
                                : OpFoldResult(builder.getI64IntegerAttr(type.getDimSize(dim)));
}

OpFoldResult FunctionLowering::strideOf(Location loc, Value memref, int64_t dim) {
  auto [strides, offset] = cast<MemRefType>(memref.getType()).getStridesAndOffset();
  if (!ShapedType::isDynamic(strides[dim]))
    return builder.getI64IntegerAttr(strides[dim]);
  Value stride = memref::ExtractStridedMetadataOp::create(builder, loc, memref).getStrides()[dim];
  return arith::IndexCastOp::create(builder, loc, builder.getI64Type(), stride).getResult();
}

bool FunctionLowering::lowerContraction(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || !multipliesAndAdds(linalgOp))
    return false;
  FailureOr<linalg::ContractionDimensions> found = linalg::inferContractionDims(linalgOp);
  if (failed(found) || found->k.size() != 1 || found->m.empty() || found->n.empty())
    return false;
  // Of several rows or columns, all but the innermost are iterated like batches.
  SmallVector<unsigned> batch(found->batch.begin(), found->batch.end());
  llvm::append_range(batch, ArrayRef(found->m).drop_back());
  llvm::append_range(batch, ArrayRef(found->n).drop_back());
  unsigned m = found->m.back(), n = found->n.back(), k = found->k.front();
  if (batch.size() + 3 != linalgOp.getNumLoops())
    return false;
  Location loc = op->getLoc();
  SmallVector<AffineMap> maps = linalgOp.getIndexingMapsArray();
  SmallVector<OpFoldResult> extra = {builder.getI64IntegerAttr(batch.size())};
  auto addSize = [&](unsigned dim) {
    for (auto [operand, map] : llvm::zip_equal(op->getOperands(), maps))
      if (std::optional<unsigned> position = map.getResultPosition(builder.getAffineDimExpr(dim)))
        return extra.push_back(sizeOf(loc, operand, *position));
  };
  auto addStride = [&](unsigned operand, unsigned dim) {
    std::optional<unsigned> position = maps[operand].getResultPosition(builder.getAffineDimExpr(dim));
    extra.push_back(position ? strideOf(loc, op->getOperand(operand), *position)
                             : OpFoldResult(builder.getI64IntegerAttr(0)));
  };
  for (unsigned dim : batch)
    addSize(dim);
  for (unsigned dim : {m, n, k})
    addSize(dim);
  std::pair<unsigned, unsigned> matrixDims[] = {{m, k}, {k, n}, {m, n}};
  for (auto [operand, dims] : llvm::enumerate(matrixDims)) {
    for (unsigned dim : batch)
      addStride(operand, dim);
    addStride(operand, dims.first);
    addStride(operand, dims.second);
  }
  // The kernel reads the operands by their strides; the call takes each as an address.
  SmallVector<int64_t> meta;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    Value slot = LLVM::GEPOp::create(builder, loc, calls.pointerType(), calls.pointerType(), operandSlots,
                                     ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(index)});
    LLVM::StoreOp::create(builder, loc, pointer(loc, operand), slot);
    llvm::append_values(meta, getRuntimeDtype(cast<MemRefType>(operand.getType()).getElementType()),
                        int64_t(index == 2 ? COMMRT_OPERAND_WRITTEN : 0), int64_t(0));
  }
  meta.push_back(extra.size());
  SmallVector<std::pair<int64_t, Value>> dynamic;
  for (OpFoldResult value : extra) {
    std::optional<int64_t> known = getConstantIntValue(value);
    if (!known)
      dynamic.push_back({meta.size(), cast<Value>(value)});
    meta.push_back(known.value_or(ShapedType::kDynamic));
  }
  call(loc, "commrt_compute",
       {context, string(loc, "comm.contract"), integer(loc, 3), operandSlots, metaData(loc, meta, dynamic),
        integer(loc, getCostNs(op))});
  return true;
}
