//===- CommBufferize.cpp - Bufferization of programs with collectives -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Upstream's one-shot bufferization, with the facts about collectives that it needs. The pass frees buffers that stay
// in their block. comm-to-llvm releases the others at the end of a loop's iteration, a branch or a function.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Analysis/Streams.h"
#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Transforms/Rewrites/SymmetricMemory.h"
#include "JoinBuffers.h"
#include "StorageLives.h"
#include "StorageMarkers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
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

/// Copies that bufferization has made are on stream 0, whatever the streams of those that write and read them.
static void synchronizeCopies(ModuleOp module) {
  SmallVector<Block *> blocks;
  module.walk([&](Block *block) {
    if (usesStreams(*block))
      blocks.push_back(block);
  });
  for (Block *block : blocks)
    insertEvents(*block);
}

static void markManual(Operation *op) {
  op->setAttr(bufferization::BufferizationDialect::kManualDeallocation, UnitAttr::get(op->getContext()));
}

/// Frees buffers that stay in their block after their last use, which is never before a certain wait of a collective
/// that uses them: waits keep the buffers. Upstream's deallocation would free them at the end of the block; it skips
/// marked buffers.
static void releaseLocalBuffers(ModuleOp module) {
  // The program frees this buffer itself.
  module.walk([](memref::DeallocOp dealloc) {
    markManual(dealloc);
    if (auto alloc = dealloc.getMemref().getDefiningOp<memref::AllocOp>())
      markManual(alloc);
  });
  SmallVector<std::pair<memref::AllocOp, Operation *>> releases;
  module.walk([&](memref::AllocOp alloc) {
    if (alloc->hasAttr(bufferization::BufferizationDialect::kManualDeallocation))
      return;
    if (Operation *last = findLastUse(alloc))
      releases.push_back({alloc, last});
  });
  OpBuilder builder(module.getContext());
  for (auto [alloc, last] : releases) {
    builder.setInsertionPointAfter(last);
    markManual(alloc);
    markManual(memref::DeallocOp::create(builder, alloc.getLoc(), alloc.getResult()));
  }
}

/// Deallocation tracks buffers, not futures. It must not free a buffer in flight when a future leaves its block.
static void keepWhatEscapesInFlight(ModuleOp module) {
  module.walk([](memref::AllocOp alloc) {
    if (escapesInFlight(alloc))
      markManual(alloc);
  });
}

/// Builds the branch for the cases of a switch from number `first` on, and moves their regions there. Returns its
/// results.
static ValueRange branchFrom(OpBuilder &builder, scf::IndexSwitchOp op, unsigned first) {
  Location loc = op.getLoc();
  if (op.getCases().empty()) {
    auto only = scf::ExecuteRegionOp::create(builder, loc, op.getResultTypes());
    only.getRegion().takeBody(op.getDefaultRegion());
    return only.getResults();
  }
  Value number = arith::ConstantIndexOp::create(builder, loc, op.getCases()[first]);
  Value isCase = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, op.getArg(), number);
  auto branch = scf::IfOp::create(builder, loc, op.getResultTypes(), isCase, /*addThenBlock=*/false,
                                  /*addElseBlock=*/false);
  branch.getThenRegion().takeBody(op.getCaseRegions()[first]);
  if (first + 1 == op.getCases().size()) {
    branch.getElseRegion().takeBody(op.getDefaultRegion());
    return branch.getResults();
  }
  OpBuilder::InsertionGuard guard(builder);
  builder.createBlock(&branch.getElseRegion());
  scf::YieldOp::create(builder, loc, branchFrom(builder, op, first + 1));
  return branch.getResults();
}

/// Replaces each `scf.index_switch` that returns a tensor by `scf.if`. Upstream's analysis does not know that such a
/// result is what a case yields, and would write it in place although the caller, or a later operation, needs it.
static void replaceSwitches(ModuleOp module) {
  SmallVector<scf::IndexSwitchOp> switches;
  module.walk([&](scf::IndexSwitchOp op) {
    if (llvm::any_of(op.getResultTypes(), llvm::IsaPred<TensorType>))
      switches.push_back(op);
  });
  for (scf::IndexSwitchOp op : switches) {
    OpBuilder builder(op);
    ValueRange results = branchFrom(builder, op, 0);
    results.front().getDefiningOp()->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    op.replaceAllUsesWith(results);
    op.erase();
  }
}

/// Gives edges that pass on tensors blocks of their own: those of a cf.switch, of which upstream's analysis does not
/// know that they pass on their operands, and all but the first that lead from one branch to the same block, on which
/// upstream passes no buffers.
static void splitEdges(ModuleOp module) {
  SmallVector<BranchOpInterface> branches;
  module.walk([&](BranchOpInterface branch) { branches.push_back(branch); });
  for (BranchOpInterface branch : branches) {
    llvm::SmallPtrSet<Block *, 4> reached;
    for (auto [index, successor] : llvm::enumerate(branch->getSuccessors())) {
      SuccessorOperands operands = branch.getSuccessorOperands(static_cast<unsigned>(index));
      if (llvm::none_of(successor->getArgumentTypes(), llvm::IsaPred<TensorType>) ||
          (!isa<cf::SwitchOp>(*branch) && reached.insert(successor).second) || operands.getProducedOperandCount() > 0)
        continue;
      OpBuilder builder(branch);
      Block *edge = builder.createBlock(successor);
      cf::BranchOp::create(builder, branch.getLoc(), successor, operands.getForwardedOperands());
      operands.getMutableForwardedOperands().clear();
      branch->setSuccessor(edge, static_cast<unsigned>(index));
    }
  }
}

/// Without the analysis, upstream's model of calls has no information and crashes. `why` says why there is none.
static LogicalResult refuseCalls(ModuleOp module, StringRef why) {
  WalkResult result = module.walk([why](func::CallOp call) {
    if (llvm::none_of(call->getOperandTypes(), llvm::IsaPred<TensorType>) &&
        llvm::none_of(call->getResultTypes(), llvm::IsaPred<TensorType>))
      return WalkResult::advance();
    call.emitOpError()
        << "cannot be bufferized: expected no calls on tensors in a module in which every write copies (because " << why
        << "); inline the call first";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

/// Upstream asks what buffer a branch passes to each argument of a basic block, and a future is none.
static LogicalResult refuseFuturesInBranches(ModuleOp module) {
  WalkResult result = module.walk([](BranchOpInterface branch) {
    for (Block *successor : branch->getSuccessors())
      for (BlockArgument argument : successor->getArguments())
        if (auto future = dyn_cast<FutureType>(argument.getType());
            future && llvm::any_of(future.getTypes(), llvm::IsaPred<TensorType>)) {
          branch.emitOpError()
              << "cannot be bufferized: expected no future of tensors as an argument of a basic block; "
                 "wait in front of the branch, or use control flow of scf";
          return WalkResult::interrupt();
        }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

namespace {
struct CommBufferizePass : public commsched::impl::CommBufferizeBase<CommBufferizePass> {
  using CommBufferizeBase::CommBufferizeBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(refuseFuturesInBranches(module)))
      return signalPassFailure();
    waitInEveryBlock(module);
    replaceSwitches(module);
    splitEdges(module);
    bufferization::OneShotBufferizationOptions options;
    options.bufferizeFunctionBoundaries = true;
    options.allowReturnAllocsFromLoops = true;
    options.copyBeforeWrite = copyBeforeWrite;
    std::string obstacle = findObstacleToAnalysis(module);
    if (obstacle.empty()) {
      insertStorageMarkers(module);
    } else if (!copyBeforeWrite) {
      options.copyBeforeWrite = true;
      auto remark = remark::analysis(module.getLoc(),
                                     remark::RemarkOpts::name("copies before every write").category(getArgument()));
      describeRemark(remark, "module", obstacle, "every write of a tensor in the module copies: " + obstacle);
    }
    // Of a destination without other users nothing is copied, either way.
    if (options.copyBeforeWrite)
      markSharedDestinations(module);
    if (options.copyBeforeWrite && failed(refuseCalls(module, obstacle.empty() ? "it is asked for" : obstacle)))
      return signalPassFailure();
    options.allowUnknownOps = false;
    options.setFunctionBoundaryTypeConversion(bufferization::LayoutMapOption::IdentityLayoutMap);
    bufferization::BufferizationState state;
    if (failed(bufferization::runOneShotModuleBufferize(module, options, state)))
      return signalPassFailure();
    replaceFutureTypes(module);
    computePartsInPlace(module);
    applySymmetricMarks(module, getArgument());
    synchronizeCopies(module);
    releaseLocalBuffers(module);
    keepWhatEscapesInFlight(module);
  }
};
} // namespace
