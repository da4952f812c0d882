//===- DeviceMemory.cpp - Copies in place of the host's accesses to device memory -------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What is left for the host after kernels have been formed: whole copies, and single elements on which conditions and
// sizes depend.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Conversion/Passes.h"
#include "CommSched/Runtime/Runtime.h"
#include "FunctionLowering.h"
#include "RuntimeCalls/RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace commsched {
#define GEN_PASS_DEF_COMMDEVICEMEMORY
#include "CommSched/Conversion/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

/// Returns true if the buffer is the host's: on its stack, or the program's own copy of a constant. On devices
/// comm-to-llvm has replaced the address of every constant that something else than a load of the host uses.
static bool isHostMemory(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  return buffer.getDefiningOp<memref::AllocaOp>() || buffer.getDefiningOp<memref::GetGlobalOp>();
}

namespace {
class HostAccesses {
public:
  HostAccesses(func::FuncOp function, RuntimeCalls &calls, StringRef pass)
      : function(function), calls(calls), pass(pass), builder(function.getContext()) {}
  LogicalResult run();

private:
  Value context(Location loc);
  Value stackElement(Location loc, Type type);
  Value elementAddress(Location loc, Value buffer, ValueRange indices);
  Value toPointer(Location loc, Value index);
  Value byteSize(Location loc, Value buffer);
  void copyBytes(Location loc, Value to, Value from, Value bytes, int64_t direction);
  LogicalResult checkElement(Operation *op, ValueRange indices, StringRef what);
  bool dependsOnLoop(Value index);

  void lowerCopy(memref::CopyOp copy);
  LogicalResult lowerLoad(memref::LoadOp load);
  LogicalResult lowerStore(memref::StoreOp store);

  func::FuncOp function;
  RuntimeCalls &calls;
  StringRef pass;
  OpBuilder builder;
  Value currentContext;
  llvm::DenseMap<Type, Value> elements;       ///< indexed by element type: a buffer on the stack
  llvm::SmallPtrSet<Operation *, 16> visited; ///< operations that no index of a loop leads to
};
} // namespace

Value HostAccesses::context(Location loc) {
  if (!currentContext) {
    OpBuilder entry = OpBuilder::atBlockBegin(&function.getBody().front());
    currentContext = calls.call(entry, loc, "commrt_current", {});
  }
  return currentContext;
}

Value HostAccesses::stackElement(Location loc, Type type) {
  Value &element = elements[type];
  if (!element) {
    OpBuilder entry = OpBuilder::atBlockBegin(&function.getBody().front());
    element = memref::AllocaOp::create(entry, loc, MemRefType::get({}, type));
  }
  return element;
}

Value HostAccesses::toPointer(Location loc, Value index) {
  Value address = arith::IndexCastOp::create(builder, loc, builder.getI64Type(), index);
  return LLVM::IntToPtrOp::create(builder, loc, calls.pointerType(), address);
}

/// The address of an element; without indices, of the first.
Value HostAccesses::elementAddress(Location loc, Value buffer, ValueRange indices) {
  auto metadata = memref::ExtractStridedMetadataOp::create(builder, loc, buffer);
  Value offset = metadata.getOffset();
  for (auto [index, stride] : llvm::zip(indices, metadata.getStrides()))
    offset =
        arith::AddIOp::create(builder, loc, offset, arith::MulIOp::create(builder, loc, index, stride).getResult());
  Value width = arith::ConstantIndexOp::create(builder, loc,
                                               getElementBytes(cast<MemRefType>(buffer.getType()).getElementType()));
  Value begin = memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, buffer);
  Value bytes = arith::MulIOp::create(builder, loc, offset, width);
  return toPointer(loc, arith::AddIOp::create(builder, loc, begin, bytes));
}

Value HostAccesses::byteSize(Location loc, Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  Value bytes = arith::ConstantIndexOp::create(builder, loc, getElementBytes(type.getElementType()));
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    bytes = arith::MulIOp::create(builder, loc, bytes, memref::DimOp::create(builder, loc, buffer, dim).getResult());
  return arith::IndexCastOp::create(builder, loc, builder.getI64Type(), bytes);
}

void HostAccesses::copyBytes(Location loc, Value to, Value from, Value bytes, int64_t direction) {
  calls.call(builder, loc, "commrt_copy",
             {context(loc), to, from, bytes, calls.integer(builder, loc, direction, 32), calls.null(builder, loc)});
}

/// Returns true if a loop's index leads to the value through arithmetic. Amortised constant time.
bool HostAccesses::dependsOnLoop(Value index) {
  if (auto argument = dyn_cast<BlockArgument>(index)) {
    auto loop = dyn_cast<LoopLikeOpInterface>(argument.getOwner()->getParentOp());
    std::optional<SmallVector<Value>> ivs = loop ? loop.getLoopInductionVars() : std::nullopt;
    return ivs && llvm::is_contained(*ivs, index);
  }
  Operation *op = index.getDefiningOp();
  if (op->getName().getDialectNamespace() != arith::ArithDialect::getDialectNamespace() || visited.contains(op))
    return false;
  if (llvm::any_of(op->getOperands(), [&](Value operand) { return dependsOnLoop(operand); }))
    return true;
  visited.insert(op);
  return false;
}

LogicalResult HostAccesses::checkElement(Operation *op, ValueRange indices, StringRef what) {
  if (llvm::any_of(indices, [&](Value index) { return dependsOnLoop(index); }))
    return op->emitError() << "expected a linalg operation for a computation on elements of device memory, got a loop "
                              "of the host that "
                           << what << "s them one by one";
  auto remark = remark::analysis(op->getLoc(), remark::RemarkOpts::name("element").category(pass));
  remark << remark::metric("Access", what);
  return success();
}

void HostAccesses::lowerCopy(memref::CopyOp copy) {
  Location loc = copy.getLoc();
  bool fromHost = isHostMemory(copy.getSource()), toHost = isHostMemory(copy.getTarget());
  if (fromHost && toHost)
    return;
  int64_t direction = fromHost ? COMMRT_COPY_TO_DEVICE : toHost ? COMMRT_COPY_FROM_DEVICE : COMMRT_COPY_ON_DEVICE;
  copyBytes(loc, elementAddress(loc, copy.getTarget(), {}), elementAddress(loc, copy.getSource(), {}),
            byteSize(loc, copy.getSource()), direction);
  copy.erase();
}

LogicalResult HostAccesses::lowerLoad(memref::LoadOp load) {
  if (isHostMemory(load.getMemref()))
    return success();
  if (failed(checkElement(load, load.getIndices(), "load")))
    return failure();
  Location loc = load.getLoc();
  Value element = stackElement(loc, load.getType());
  Value bytes = calls.integer(builder, loc, getElementBytes(load.getType()));
  copyBytes(loc, elementAddress(loc, element, {}), elementAddress(loc, load.getMemref(), load.getIndices()), bytes,
            COMMRT_COPY_FROM_DEVICE);
  load.replaceAllUsesWith(memref::LoadOp::create(builder, loc, element, ValueRange()).getResult());
  load.erase();
  return success();
}

LogicalResult HostAccesses::lowerStore(memref::StoreOp store) {
  if (isHostMemory(store.getMemref()))
    return success();
  if (failed(checkElement(store, store.getIndices(), "store")))
    return failure();
  Location loc = store.getLoc();
  Type type = store.getValue().getType();
  Value element = stackElement(loc, type);
  memref::StoreOp::create(builder, loc, store.getValue(), element, ValueRange());
  copyBytes(loc, elementAddress(loc, store.getMemref(), store.getIndices()), elementAddress(loc, element, {}),
            calls.integer(builder, loc, getElementBytes(type)), COMMRT_COPY_TO_DEVICE);
  store.erase();
  return success();
}

/// Returns true if the operation reads or writes a buffer that is not the host's.
static bool touchesDevice(Operation *op) {
  auto effects = dyn_cast<MemoryEffectOpInterface>(op);
  if (!effects || isa<CallOpInterface>(op))
    return false;
  SmallVector<MemoryEffects::EffectInstance> instances;
  effects.getEffects(instances);
  return llvm::any_of(instances, [](const MemoryEffects::EffectInstance &instance) {
    Value value = instance.getValue();
    return value && isa<MemRefType>(value.getType()) &&
           isa<MemoryEffects::Read, MemoryEffects::Write>(instance.getEffect()) && !isHostMemory(value);
  });
}

LogicalResult HostAccesses::run() {
  SmallVector<Operation *> accesses;
  function.walk([&](Operation *op) {
    if (touchesDevice(op))
      accesses.push_back(op);
  });
  for (Operation *op : accesses) {
    builder.setInsertionPoint(op);
    LogicalResult result = success();
    if (auto copy = dyn_cast<memref::CopyOp>(op))
      lowerCopy(copy);
    else if (auto load = dyn_cast<memref::LoadOp>(op))
      result = lowerLoad(load);
    else if (auto store = dyn_cast<memref::StoreOp>(op))
      result = lowerStore(store);
    else
      result = op->emitOpError() << "expected no access of the host to device memory; use a linalg operation";
    if (failed(result))
      return failure();
  }
  return success();
}

namespace {
struct CommDeviceMemoryPass : public commsched::impl::CommDeviceMemoryBase<CommDeviceMemoryPass> {
  void runOnOperation() override {
    RuntimeCalls calls(getOperation(), "commrt_device");
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isDeclaration() && !function->hasAttr(kHostMemoryAttrName) &&
          failed(HostAccesses(function, calls, getArgument()).run()))
        return signalPassFailure();
  }
};
} // namespace
