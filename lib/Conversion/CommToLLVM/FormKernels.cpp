//===- FormKernels.cpp - Computations on device memory as kernels -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Upstream's path is a mapping attribute on a tiled loop, which convert-parallel-loops-to-gpu reads; it does not
// convert a loop whose size is known at run time only. Here all parallel dimensions become one, and one is easy to
// divide into blocks: the launch is created directly.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "FunctionLowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/Transforms.h"
#include "mlir/Dialect/SCF/Utils/Utils.h"
#include "mlir/Interfaces/CallInterfaces.h"

namespace commsched {
#define GEN_PASS_DEF_COMMFORMKERNELS
#include "CommSched/Conversion/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

/// Threads of a block: a multiple of the 32 of a warp, enough to fill a multiprocessor with few blocks, and at most the
/// 1024 that CUDA allows.
static constexpr int64_t kThreads = 256;

/// Returns true if the loop computes on elements only: it has no results and calls nothing.
static bool isComputation(scf::ParallelOp loop) {
  return loop->getNumResults() == 0 && !loop.walk([](Operation *op) {
                                              return isa<CallOpInterface, memref::AllocOp, memref::DeallocOp>(op)
                                                         ? WalkResult::interrupt()
                                                         : WalkResult::advance();
                                            })
                                            .wasInterrupted();
}

/// Puts the parallel dimensions first. The order of reductions, and so every bit of their results, stays.
static FailureOr<linalg::LinalgOp> withParallelFirst(IRRewriter &rewriter, linalg::LinalgOp op) {
  SmallVector<unsigned> order, reductions;
  for (auto [index, type] : llvm::enumerate(op.getIteratorTypesArray()))
    (type == utils::IteratorType::parallel ? order : reductions).push_back(index);
  llvm::append_range(order, reductions);
  if (llvm::is_sorted(order))
    return op;
  FailureOr<linalg::GenericOp> generic = isa<linalg::GenericOp>(op)
                                             ? FailureOr<linalg::GenericOp>(cast<linalg::GenericOp>(op))
                                             : linalg::generalizeNamedOp(rewriter, op);
  if (succeeded(generic))
    generic = linalg::interchangeGenericOp(rewriter, *generic, order);
  if (failed(generic))
    return failure();
  return cast<linalg::LinalgOp>(generic->getOperation());
}

/// An empty loop of one iteration before `op`, for what has no parallel dimension.
static scf::ParallelOp createSingleIteration(IRRewriter &rewriter, Operation *op) {
  rewriter.setInsertionPoint(op);
  Location loc = op->getLoc();
  Value zero = arith::ConstantIndexOp::create(rewriter, loc, 0);
  Value one = arith::ConstantIndexOp::create(rewriter, loc, 1);
  return scf::ParallelOp::create(rewriter, loc, ValueRange{zero}, ValueRange{one}, ValueRange{one});
}

/// The loop that computes `op`, in its place; null and a diagnostic if there is none.
static scf::ParallelOp createLoop(IRRewriter &rewriter, linalg::LinalgOp op) {
  Location loc = op->getLoc();
  auto refuse = [&] {
    emitError(loc) << "expected a computation on buffers that has loops, got '" << op->getName() << "'";
    return scf::ParallelOp();
  };
  if (!op.hasPureBufferSemantics())
    return refuse();
  rewriter.setInsertionPoint(op);
  if (op.getNumParallelLoops() == 0) {
    scf::ParallelOp single = createSingleIteration(rewriter, op);
    rewriter.moveOpBefore(op, single.getBody()->getTerminator());
    rewriter.setInsertionPoint(op);
    if (failed(linalg::linalgOpToLoops(rewriter, op)))
      return refuse();
    rewriter.eraseOp(op);
    return single;
  }
  FailureOr<linalg::LinalgOp> ordered = withParallelFirst(rewriter, op);
  if (failed(ordered))
    return refuse();
  rewriter.setInsertionPoint(*ordered);
  FailureOr<linalg::LinalgLoops> loops = linalg::linalgOpToParallelLoops(rewriter, *ordered);
  if (failed(loops) || loops->empty() || !isa<scf::ParallelOp>(loops->front()))
    return refuse();
  rewriter.eraseOp(*ordered);
  return cast<scf::ParallelOp>(loops->front());
}

/// The loop that copies elements; null and a diagnostic if there is none.
static scf::ParallelOp createLoop(IRRewriter &rewriter, memref::CopyOp copy) {
  if (!isa<MemRefType>(copy.getSource().getType()) || !isa<MemRefType>(copy.getTarget().getType())) {
    copy.emitOpError() << "expected buffers of known rank, got " << copy.getSource().getType() << " and "
                       << copy.getTarget().getType();
    return {};
  }
  rewriter.setInsertionPoint(copy);
  Location loc = copy.getLoc();
  SmallVector<Value> lower, upper, steps;
  for (int64_t dim = 0; dim < cast<MemRefType>(copy.getSource().getType()).getRank(); ++dim) {
    lower.push_back(arith::ConstantIndexOp::create(rewriter, loc, 0));
    upper.push_back(memref::DimOp::create(rewriter, loc, copy.getSource(), dim));
    steps.push_back(arith::ConstantIndexOp::create(rewriter, loc, 1));
  }
  auto loop = scf::ParallelOp::create(rewriter, loc, lower, upper, steps,
                                      [&](OpBuilder &builder, Location, ValueRange indices) {
                                        Value element = memref::LoadOp::create(builder, loc, copy.getSource(), indices);
                                        memref::StoreOp::create(builder, loc, element, copy.getTarget(), indices);
                                      });
  rewriter.eraseOp(copy);
  return loop;
}

/// Makes one dimension of all, from 0 in steps of 1.
static scf::ParallelOp collapse(IRRewriter &rewriter, scf::ParallelOp loop) {
  std::vector<unsigned> dims(loop.getNumLoops());
  llvm::copy(llvm::seq<unsigned>(0, dims.size()), dims.begin());
  Operation *next = loop->getNextNode();
  collapseParallelLoops(rewriter, loop, dims);
  return cast<scf::ParallelOp>(next->getPrevNode());
}

/// Gives each iteration to a thread.
static void createLaunch(IRRewriter &rewriter, scf::ParallelOp given) {
  scf::ParallelOp loop = collapse(rewriter, given);
  Location loc = loop.getLoc();
  rewriter.setInsertionPoint(loop);
  Value one = arith::ConstantIndexOp::create(rewriter, loc, 1);
  Value threads = arith::ConstantIndexOp::create(rewriter, loc, kThreads);
  Value size = loop.getUpperBound()[0];
  Value last = arith::ConstantIndexOp::create(rewriter, loc, kThreads - 1);
  Value blocks =
      arith::DivUIOp::create(rewriter, loc, arith::AddIOp::create(rewriter, loc, size, last).getResult(), threads);
  auto launch = gpu::LaunchOp::create(rewriter, loc, blocks, one, one, threads, one, one);
  rewriter.setInsertionPointToStart(&launch.getBody().front());
  Value begin = arith::MulIOp::create(rewriter, loc, launch.getBlockIds().x, threads);
  Value index = arith::AddIOp::create(rewriter, loc, begin, launch.getThreadIds().x);
  Value isInside = arith::CmpIOp::create(rewriter, loc, arith::CmpIPredicate::ult, index, size);
  auto inside = scf::IfOp::create(rewriter, loc, isInside, /*withElseRegion=*/false);
  gpu::TerminatorOp::create(rewriter, loc);
  rewriter.eraseOp(loop.getBody()->getTerminator());
  rewriter.inlineBlockBefore(loop.getBody(), inside.thenBlock()->getTerminator(), index);
  rewriter.eraseOp(loop);
}

bool commsched::isWholeCopy(memref::CopyOp copy) {
  auto isDense = [](Value value) {
    auto type = dyn_cast<MemRefType>(value.getType());
    return type && (type.getLayout().isIdentity() || type.areTrailingDimsContiguous(type.getRank()));
  };
  return isDense(copy.getSource()) && isDense(copy.getTarget());
}

static LogicalResult formKernels(func::FuncOp function) {
  IRRewriter rewriter(function.getContext());
  SmallVector<scf::ForallOp> foralls;
  function.walk([&](scf::ForallOp forall) { foralls.push_back(forall); });
  for (scf::ForallOp forall : foralls)
    if (rewriter.setInsertionPoint(forall); forall->getNumResults() == 0)
      (void)scf::forallToParallelLoop(rewriter, forall);
  // Outermost loops first, and nothing within them: that is part of their kernels.
  SmallVector<Operation *> found;
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto loop = dyn_cast<scf::ParallelOp>(op); loop && isComputation(loop)) {
      found.push_back(op);
      return WalkResult::skip();
    }
    auto copy = dyn_cast<memref::CopyOp>(op);
    if (isa<linalg::LinalgOp>(op) || (copy && !isWholeCopy(copy)))
      found.push_back(op);
    return WalkResult::advance();
  });
  for (Operation *op : found) {
    auto loop = dyn_cast<scf::ParallelOp>(op);
    if (loop) {
      SmallVector<linalg::LinalgOp> inner;
      loop.walk([&](linalg::LinalgOp each) { inner.push_back(each); });
      for (linalg::LinalgOp each : inner) {
        rewriter.setInsertionPoint(each);
        if (failed(linalg::linalgOpToLoops(rewriter, each)))
          return each.emitOpError() << "has no loops";
        rewriter.eraseOp(each);
      }
    } else if (auto copy = dyn_cast<memref::CopyOp>(op)) {
      loop = createLoop(rewriter, copy);
    } else {
      loop = createLoop(rewriter, cast<linalg::LinalgOp>(op));
    }
    if (!loop)
      return failure();
    createLaunch(rewriter, loop);
  }
  return success();
}

namespace {
struct CommFormKernelsPass : public commsched::impl::CommFormKernelsBase<CommFormKernelsPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isDeclaration() && !function->hasAttr(kHostMemoryAttrName) && failed(formKernels(function)))
        return signalPassFailure();
  }
};
} // namespace
