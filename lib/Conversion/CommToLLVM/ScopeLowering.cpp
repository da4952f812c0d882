//===- ScopeLowering.cpp - Release of buffers at the end of loops and functions ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A buffer with a known last use is released there. A buffer that is passed on (to the next iteration of a loop, by a
// branch, or as a result) is not. At the end of each iteration, of each branch and of the function, everything created
// since its beginning is released, except what is passed on. The same is true for tokens and events. The runtime knows
// what a buffer is, so that a function may return its argument, a view of it, or new storage: no copy decides on
// ownership.
//
//===------------------------------------------------------------------------------------------===//

#include "FunctionLowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Returns true if values leave the regions of `op` only through terminators: loops and branches.
static bool isScope(Operation *op) {
  return isa<RegionBranchOpInterface>(op) && op->getName().getDialectNamespace() != "linalg";
}

bool FunctionLowering::isCall(Operation *op) { return isa<CallOpInterface>(op) && !isa<LLVM::CallOp>(op); }

/// Returns true if running `op` may leave a buffer, a token or an event that no operation of its own block releases.
static bool leavesSomething(Operation *op) {
  if (isa<RecordOp>(op))
    return true;
  if (auto alloc = dyn_cast<memref::AllocOp>(op))
    return llvm::none_of(op->getUsers(), [&](Operation *user) {
      return isa<memref::DeallocOp>(user) && user->getBlock() == op->getBlock();
    });
  if (auto start = dyn_cast<CollectiveOpInterface>(op))
    return !FunctionLowering::findLastWait(op);
  return FunctionLowering::isCall(op);
}

Operation *FunctionLowering::findLastWait(Operation *start) {
  Operation *last = start;
  for (Operation *user : start->getResult(0).getUsers()) {
    Operation *ancestor = start->getBlock()->findAncestorOpInBlock(*user);
    if (!isa<WaitOp>(user) || !ancestor)
      return nullptr;
    if (last->isBeforeInBlock(ancestor))
      last = ancestor;
  }
  return last;
}

void FunctionLowering::findScopes() {
  if (facts.storesBuffers)
    return;
  bool functionLeaves = false;
  llvm::SmallSetVector<Operation *, 4> inner;
  function.walk([&](Operation *op) {
    if (!leavesSomething(op))
      return;
    functionLeaves = true;
    // The enclosing operations. If one is already known, so are its own enclosing operations.
    for (Operation *parent = op->getParentOp(); parent != function; parent = parent->getParentOp())
      if (isScope(parent) && !inner.insert(parent))
        break;
  });
  if (!functionLeaves)
    return;
  Scope whole = {nullptr, {}};
  for (Block &block : function.getBody())
    if (isa<func::ReturnOp>(block.getTerminator()))
      whole.ends.push_back(block.getTerminator());
  scopes.push_back(std::move(whole));
  for (Operation *op : inner) {
    Scope scope = {op, {}};
    for (Region &region : op->getRegions())
      for (Block &block : region)
        if (block.getTerminator()->getNumSuccessors() == 0)
          scope.ends.push_back(block.getTerminator());
    scopes.push_back(std::move(scope));
  }
}

/// The address or the handle that keeps the storage of `value` alive; null if `value` has no storage to release.
Value FunctionLowering::keptAddress(Location loc, Value value) {
  if (isa<LLVM::LLVMPointerType>(value.getType()))
    return value;
  // A handle that is a block argument. The cast disappears when the argument's type becomes a pointer.
  if (isa<FutureType, EventType>(value.getType()))
    return UnrealizedConversionCastOp::create(builder, loc, TypeRange{calls.pointerType()}, value).getResult(0);
  if (!isa<BaseMemRefType>(value.getType()))
    return {};
  Value index = memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, value);
  Value address = arith::IndexCastOp::create(builder, loc, builder.getI64Type(), index);
  return LLVM::IntToPtrOp::create(builder, loc, calls.pointerType(), address);
}

void FunctionLowering::emitScopes() {
  for (const Scope &scope : scopes) {
    Value mark;
    if (scope.op) {
      builder.setInsertionPoint(scope.op);
      mark = calls.call(builder, scope.op->getLoc(), "commrt_mark", context);
    } else {
      mark = calls.call(entryBuilder, function.getLoc(), "commrt_mark", context);
    }
    for (Operation *end : scope.ends) {
      Location loc = end->getLoc();
      builder.setInsertionPoint(end);
      int32_t count = 0;
      for (Value operand : end->getOperands())
        if (Value address = keptAddress(loc, operand)) {
          Value slot = LLVM::GEPOp::create(builder, loc, calls.pointerType(), calls.pointerType(), operandSlots,
                                           ArrayRef<LLVM::GEPArg>{count++});
          LLVM::StoreOp::create(builder, loc, address, slot);
        }
      call(loc, "commrt_release_since", {context, mark, operandSlots, integer(loc, count)});
    }
  }
}
