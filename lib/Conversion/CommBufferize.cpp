//===- CommBufferize.cpp - Put a program of collectives on buffers -------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// Upstream's one-shot bufferization with what it has to know of collectives. What stays in its
// block is freed there; the rest is left to upstream's ownership-based deallocation.
//
//===--------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Transforms/SymmetricMemory.h"
#include "StorageMarkers.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
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

static void markManual(Operation *op) {
  op->setAttr(bufferization::BufferizationDialect::kManualDeallocation, UnitAttr::get(op->getContext()));
}

/// Calls `visit` with each value that shares the storage of `use`'s value because of its user, and `useLater` with each
/// operation that needs the storage without being a use of it: the waits of what it is in flight for. Returns false
/// where the storage may go on in ways that are not followed.
static bool followStorage(OpOperand &use, llvm::function_ref<void(Value)> visit,
                          llvm::function_ref<void(Operation *)> useLater) {
  Operation *user = use.getOwner();
  if (auto start = dyn_cast<CollectiveOpInterface>(user)) {
    for (Operation *wait : start.getCollectiveFuture().getUsers()) {
      if (!isa<WaitOp>(wait))
        return false;
      useLater(wait);
      for (auto [dest, result] : llvm::zip(start.getCollectiveDests(), wait->getResults()))
        if (dest == use.get())
          visit(result);
    }
    return true;
  }
  if (isa<WaitOp>(user)) // keeps it
    return true;
  if (auto storage = dyn_cast<StorageOpInterface>(user)) {
    for (OpResult result : user->getResults())
      if (storage.getAliasedOperand(result.getResultNumber()) == use.getOperandNumber())
        visit(result);
    return true;
  }
  bool isView = isa<ViewLikeOpInterface, memref::ExtractStridedMetadataOp>(user);
  for (Value result : user->getResults())
    if (isa<BaseMemRefType>(result.getType())) {
      if (!isView)
        return false;
      visit(result);
    }
  return !user->hasTrait<OpTrait::IsTerminator>() && !isa<CallOpInterface, RegionBranchOpInterface>(user);
}

/// The last operation of `alloc`'s block that needs its storage, or null if the storage may leave the block. Linear in
/// the uses.
static Operation *lastUse(memref::AllocOp alloc) {
  Block *block = alloc->getBlock();
  Operation *last = alloc;
  bool isLocal = true;
  SmallVector<Value> values = {alloc.getResult()};
  llvm::SmallDenseSet<Value> seen = {alloc.getResult()};
  auto useAt = [&](Operation *op) {
    Operation *ancestor = block->findAncestorOpInBlock(*op);
    isLocal &= ancestor != nullptr;
    if (ancestor && last->isBeforeInBlock(ancestor))
      last = ancestor;
  };
  auto visit = [&](Value value) {
    if (seen.insert(value).second)
      values.push_back(value);
  };
  while (!values.empty() && isLocal)
    for (OpOperand &use : values.pop_back_val().getUses()) {
      useAt(use.getOwner());
      isLocal = isLocal && followStorage(use, visit, useAt);
    }
  return isLocal ? last : nullptr;
}

/// Frees what stays in its block after its last use, which is never before the last wait of what is in flight: waits
/// keep the buffers. Upstream's deallocation would free it at the end of the block; it leaves marked buffers alone.
static void releaseLocalBuffers(ModuleOp module) {
  // What the program frees itself is its own affair.
  module.walk([](memref::DeallocOp dealloc) {
    markManual(dealloc);
    if (auto alloc = dealloc.getMemref().getDefiningOp<memref::AllocOp>())
      markManual(alloc);
  });
  SmallVector<std::pair<memref::AllocOp, Operation *>> releases;
  module.walk([&](memref::AllocOp alloc) {
    if (alloc->hasAttr(bufferization::BufferizationDialect::kManualDeallocation))
      return;
    if (Operation *last = lastUse(alloc))
      releases.push_back({alloc, last});
  });
  OpBuilder builder(module.getContext());
  for (auto [alloc, last] : releases) {
    builder.setInsertionPointAfter(last);
    markManual(alloc);
    markManual(memref::DeallocOp::create(builder, alloc.getLoc(), alloc.getResult()));
  }
}

/// Whether a future of `alloc`'s storage leaves the block of its start: then the storage has to outlive what the block
/// knows. Linear in the uses.
static bool escapesInFlight(memref::AllocOp alloc) {
  SmallVector<Value> values = {alloc.getResult()};
  llvm::SmallDenseSet<Value> seen = {alloc.getResult()};
  auto visit = [&](Value value) {
    if (seen.insert(value).second)
      values.push_back(value);
  };
  while (!values.empty())
    for (OpOperand &use : values.pop_back_val().getUses())
      if (!followStorage(use, visit, [](Operation *) {}) && isa<CollectiveOpInterface>(use.getOwner()))
        return true;
  return false;
}

/// Deallocation sees buffers, not futures: it must not touch what is in flight where a future leaves its block.
static void keepWhatEscapesInFlight(ModuleOp module) {
  module.walk([](memref::AllocOp alloc) {
    if (escapesInFlight(alloc))
      markManual(alloc);
  });
}

/// Without the analysis upstream's model of calls has nothing to go by, and crashes.
static LogicalResult refuseCalls(ModuleOp module) {
  WalkResult result = module.walk([](func::CallOp call) {
    if (llvm::none_of(call->getOperandTypes(), llvm::IsaPred<TensorType>) &&
        llvm::none_of(call->getResultTypes(), llvm::IsaPred<TensorType>))
      return WalkResult::advance();
    call.emitOpError()
        << "on tensors cannot be put on buffers where every write copies, as it does where a future leaves "
           "its block; inline it first";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

namespace {
struct CommBufferizePass : public commsched::impl::CommBufferizeBase<CommBufferizePass> {
  using CommBufferizeBase::CommBufferizeBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    bufferization::OneShotBufferizationOptions options;
    options.bufferizeFunctionBoundaries = true;
    options.allowReturnAllocsFromLoops = true;
    options.copyBeforeWrite = copyBeforeWrite;
    if (std::string obstacle = findObstacleToAnalysis(module); obstacle.empty()) {
      insertStorageMarkers(module);
    } else if (!copyBeforeWrite) {
      options.copyBeforeWrite = true;
      remark::analysis(module.getLoc(), remark::RemarkOpts::name("copies before every write").category(getArgument()))
          << remark::metric("Reason", obstacle);
    }
    if (options.copyBeforeWrite && failed(refuseCalls(module)))
      return signalPassFailure();
    options.allowUnknownOps = false;
    options.setFunctionBoundaryTypeConversion(bufferization::LayoutMapOption::IdentityLayoutMap);
    bufferization::BufferizationState state;
    if (failed(bufferization::runOneShotModuleBufferize(module, options, state)))
      return signalPassFailure();
    replaceFutureTypes(module);
    applySymmetricMarks(module, getArgument());
    releaseLocalBuffers(module);
    keepWhatEscapesInFlight(module);
  }
};
} // namespace
