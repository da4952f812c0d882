//===- MemRefCostModels.cpp - Costs of memref operations --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Copies of buffers, and accesses of single elements as part of the surrounding kernel. Views and allocations are free
// and need no model.
//
//===------------------------------------------------------------------------------------------===//

#include "Costs/CostModels.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

/// Bytes of one element.
static Bytes elementBytes(Type type) {
  Type element = getElementTypeOrSelf(type);
  return element.isIntOrFloat() ? llvm::divideCeil(element.getIntOrFloatBitWidth(), 8) : 8;
}

static OpWork access(Bytes read, Bytes written) {
  OpWork work = OpWork::copy(read, written);
  work.inlined = true;
  return work;
}

static OpWork load(memref::LoadOp op, const OperationCosts &) { return access(elementBytes(op.getType()), 0); }

static OpWork store(memref::StoreOp op, const OperationCosts &) {
  return access(0, elementBytes(op.getValueToStore().getType()));
}

template <typename Rmw> static OpWork readModifyWrite(Rmw op, const OperationCosts &) {
  Bytes bytes = elementBytes(op.getMemref().getType());
  OpWork work = access(bytes, bytes);
  work.flops = 1;
  work.element = elementTypeOf(op.getMemref().getType());
  return work;
}

static OpWork copy(memref::CopyOp op, const OperationCosts &) {
  return OpWork::copy(bytesOf(op.getSource()), bytesOf(op.getTarget()));
}

static OpWork realloc(memref::ReallocOp op, const OperationCosts &) {
  return OpWork::copy(bytesOf(op.getSource()), bytesOf(op.getSource()));
}

static OpWork nothing(Operation *, const OperationCosts &) { return OpWork::view(); }

void commsched::detail::registerMemRefCostModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, memref::MemRefDialect *) {
    attach<memref::LoadOp, load>(context);
    attach<memref::StoreOp, store>(context);
    attach<memref::AtomicRMWOp, readModifyWrite<memref::AtomicRMWOp>>(context);
    attach<memref::GenericAtomicRMWOp, readModifyWrite<memref::GenericAtomicRMWOp>>(context);
    attach<memref::CopyOp, copy>(context);
    attach<memref::ReallocOp, realloc>(context);
    attachToAll<nothing, memref::AssumeAlignmentOp, memref::ExtractAlignedPointerAsIndexOp,
                memref::ExtractStridedMetadataOp, memref::PrefetchOp, memref::RankOp, memref::AllocaScopeReturnOp>(
        context);
  });
}
