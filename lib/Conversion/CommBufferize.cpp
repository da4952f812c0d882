//===- CommBufferize.cpp - Put a program of collectives on buffers -------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// Upstream's one-shot bufferization with the right settings, then the release of buffers that stay in their block.
//
//===--------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Pass/Pass.h"

namespace commsched {
#define GEN_PASS_DEF_COMMBUFFERIZE
#include "CommSched/Conversion/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Futures that cross a function or block boundary carry buffers, too.
static void replaceFutureTypes(ModuleOp module) {
  AttrTypeReplacer replacer;
  replacer.addReplacement([](FutureType future) -> std::optional<Type> {
    SmallVector<Type> types;
    for (Type type : future.getTypes()) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      types.push_back(tensor ? MemRefType::get(tensor.getShape(), tensor.getElementType()) : type);
    }
    return FutureType::get(future.getContext(), types);
  });
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true, /*replaceLocs=*/false, /*replaceTypes=*/true);
}

/// Whether the results of `user` are, or hold, the storage of its operand.
static bool passesStorageOn(Operation *user) {
  return isa<ViewLikeOpInterface, memref::ExtractStridedMetadataOp, CollectiveOpInterface, WaitOp,
             FsdpAllGatherCopyInOp, FsdpSplitWithSizesOp, FsdpSplitWithSizesCopyOp, FsdpChunkCatOp>(user);
}

/// The last operation of `alloc`'s block that uses its storage, or null if the storage may leave the block. Linear in
/// the uses.
static Operation *lastUse(memref::AllocOp alloc) {
  Block *block = alloc->getBlock();
  Operation *last = alloc;
  SmallVector<Value> values = {alloc.getResult()};
  llvm::SmallDenseSet<Value> seen;
  while (!values.empty()) {
    Value value = values.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    for (Operation *user : value.getUsers()) {
      Operation *ancestor = block->findAncestorOpInBlock(*user);
      bool keepsNothing = passesStorageOn(user) || user->getNumResults() == 0 ||
                          llvm::none_of(user->getResultTypes(), [](Type type) { return isa<BaseMemRefType>(type); });
      if (!ancestor || user->hasTrait<OpTrait::IsTerminator>() || isa<CallOpInterface>(user) ||
          user->getNumRegions() > 0 || !keepsNothing)
        return nullptr;
      if (last->isBeforeInBlock(ancestor))
        last = ancestor;
      if (passesStorageOn(user))
        for (Value result : user->getResults())
          if (isa<BaseMemRefType, FutureType>(result.getType()))
            values.push_back(result);
    }
  }
  return last;
}

static void releaseLocalBuffers(ModuleOp module) {
  SmallVector<std::pair<memref::AllocOp, Operation *>> releases;
  module.walk([&](memref::AllocOp alloc) {
    if (Operation *last = lastUse(alloc))
      releases.push_back({alloc, last});
  });
  OpBuilder builder(module.getContext());
  for (auto [alloc, last] : releases) {
    builder.setInsertionPointAfter(last);
    memref::DeallocOp::create(builder, alloc.getLoc(), alloc.getResult());
  }
}

namespace {
struct CommBufferizePass : public commsched::impl::CommBufferizeBase<CommBufferizePass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    bufferization::OneShotBufferizationOptions options;
    options.bufferizeFunctionBoundaries = true;
    options.copyBeforeWrite = true;
    options.allowUnknownOps = false;
    options.setFunctionBoundaryTypeConversion(bufferization::LayoutMapOption::IdentityLayoutMap);
    bufferization::BufferizationState state;
    if (failed(bufferization::runOneShotModuleBufferize(module, options, state)))
      return signalPassFailure();
    replaceFutureTypes(module);
    releaseLocalBuffers(module);
  }
};
} // namespace
