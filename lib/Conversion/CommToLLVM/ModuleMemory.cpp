//===- ModuleMemory.cpp - Places of a module's globals and stack buffers ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Decides by the uses of an address. What is not known to be an access of the host may be one of the device.
//
//===------------------------------------------------------------------------------------------===//

#include "ModuleMemory.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "FunctionLowering.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

//===- Globals ----------------------------------------------------------------------------------===//

static bool isSymmetric(memref::GlobalOp global) {
  return isa_and_nonnull<SymmetricAttr>(global.getType().getMemorySpace());
}

SmallVector<memref::GlobalOp> commsched::getArenas(ModuleOp module) {
  return llvm::filter_to_vector(module.getOps<memref::GlobalOp>(), isSymmetric);
}

SmallVector<memref::GlobalOp> commsched::getGlobalsOfRuntime(ModuleOp module, bool onDevice) {
  llvm::StringSet<> escaping;
  module.walk([&](memref::GetGlobalOp op) {
    if (!isOnlyLoaded(op))
      escaping.insert(op.getName());
  });
  return llvm::filter_to_vector(module.getOps<memref::GlobalOp>(), [&](memref::GlobalOp global) {
    return !isSymmetric(global) && escaping.contains(global.getSymName()) && (onDevice || !global.getConstant());
  });
}

//===- Buffers in buffers -----------------------------------------------------------------------===//

bool commsched::storesBuffers(ModuleOp module) {
  auto holdsBuffers = [](Type type) {
    auto memref = dyn_cast<BaseMemRefType>(type);
    return memref && isa<BaseMemRefType>(memref.getElementType());
  };
  WalkResult found = module.walk([&](Operation *op) {
    bool isFound = llvm::any_of(op->getResultTypes(), holdsBuffers);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        isFound |= llvm::any_of(block.getArgumentTypes(), holdsBuffers);
    return isFound ? WalkResult::interrupt() : WalkResult::advance();
  });
  return found.wasInterrupted();
}

//===- Buffers on the stack ---------------------------------------------------------------------===//

/// Upstream's lowering of bufferization.dealloc keeps lists of addresses and conditions in buffers, which its function
/// reads.
static constexpr StringLiteral kDeallocHelper = "dealloc_helper";

/// Keeps these lists on the host's stack.
static void keepListsOnHost(ModuleOp module) {
  SmallVector<memref::AllocOp> lists;
  module.walk([&](memref::AllocOp alloc) {
    auto isPassedOn = [](Operation *user) {
      return isa<memref::CastOp>(user) && llvm::any_of(user->getUsers(), [](Operation *call) {
               auto callee = dyn_cast<func::CallOp>(call);
               return callee && callee.getCallee().starts_with(kDeallocHelper);
             });
    };
    MemRefType type = alloc.getType();
    bool isList = type.hasStaticShape() && (type.getElementType().isIndex() || type.getElementType().isInteger(1));
    if (isList && llvm::any_of(alloc->getUsers(), isPassedOn))
      lists.push_back(alloc);
  });
  for (memref::AllocOp alloc : lists) {
    OpBuilder builder = OpBuilder::atBlockBegin(&alloc->getParentOfType<func::FuncOp>().getBody().front());
    Value onStack = memref::AllocaOp::create(builder, alloc.getLoc(), alloc.getType());
    onStack.getDefiningOp()->setAttr(kHostMemoryAttrName, builder.getUnitAttr());
    for (Operation *user : llvm::make_early_inc_range(alloc->getUsers()))
      if (isa<memref::DeallocOp>(user))
        user->erase();
    alloc.replaceAllUsesWith(onStack);
    alloc.erase();
  }
  for (auto function : module.getOps<func::FuncOp>())
    if (function.getName().starts_with(kDeallocHelper))
      function->setAttr(kHostMemoryAttrName, UnitAttr::get(module.getContext()));
}

/// Returns true if only the host's loads, stores and whole copies use a buffer and its views.
static bool isOfHost(Value buffer) {
  return llvm::all_of(buffer.getUses(), [](OpOperand &use) {
    Operation *op = use.getOwner();
    if (isInKernel(op))
      return false;
    if (isa<ViewLikeOpInterface>(op))
      return op->getNumResults() == 1 && isOfHost(op->getResult(0));
    if (auto store = dyn_cast<memref::StoreOp>(op))
      return store.getMemref() == use.get();
    if (auto store = dyn_cast<affine::AffineStoreOp>(op))
      return store.getMemref() == use.get();
    if (auto copy = dyn_cast<memref::CopyOp>(op))
      return isWholeCopy(copy);
    return isa<memref::LoadOp, affine::AffineLoadOp, memref::DimOp>(op);
  });
}

void commsched::placeStackBuffers(ModuleOp module) {
  keepListsOnHost(module);
  SmallVector<memref::AllocaOp> moved;
  module.walk([&](memref::AllocaOp alloca) {
    bool isPlain = !alloca.getType().getMemorySpace() && !alloca->hasAttr(kHostMemoryAttrName);
    if (isPlain && !isInKernel(alloca) && !isOfHost(alloca))
      moved.push_back(alloca);
  });
  for (memref::AllocaOp alloca : moved) {
    OpBuilder builder(alloca);
    auto alloc = memref::AllocOp::create(builder, alloca.getLoc(), alloca.getType(), alloca.getDynamicSizes(),
                                         alloca.getSymbolOperands(), alloca.getAlignmentAttr());
    alloca.replaceAllUsesWith(alloc.getResult());
    alloca.erase();
  }
}
