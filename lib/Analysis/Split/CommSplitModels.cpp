//===- CommSplitModels.cpp - Splitting of the comm dialect's operations -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A collective divides along every dimension that it does not itself cut or join: each strand's tensor is sent as a
// collective of its own. Along the collective's own dimension the parts would arrive in another order.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "SplitModels.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

/// The dimensions that a collective cuts or joins; none for a collective whose parts would not meet their partners.
static std::optional<SmallVector<int64_t, 2>> dimsOfCollective(Operation *op) {
  auto dims = [](auto... values) { return SmallVector<int64_t, 2>{static_cast<int64_t>(values)...}; };
  if (auto gather = dyn_cast<AllGatherOp>(op))
    return dims(gather.getDim());
  if (auto scatter = dyn_cast<ReduceScatterOp>(op))
    return dims(scatter.getDim());
  if (auto exchange = dyn_cast<AllToAllOp>(op))
    return dims(exchange.getSplitDim(), exchange.getConcatDim());
  if (auto gather = dyn_cast<GatherOp>(op))
    return dims(gather.getDim());
  if (auto scatter = dyn_cast<ScatterOp>(op))
    return dims(scatter.getDim());
  if (isa<AllReduceOp, BroadcastOp, ReduceOp, PermuteOp>(op))
    return dims();
  // A send is matched by its order with receives on other ranks.
  return std::nullopt;
}

static SplitAxes startAxes(Operation *op) {
  auto start = cast<CollectiveOpInterface>(op);
  std::optional<SmallVector<int64_t, 2>> own = dimsOfCollective(op);
  if (!own || start.getCollectiveInputs().size() != 1 || !start.getCollectiveDests().empty())
    return {};
  Value future = start.getCollectiveFuture();
  auto isOwnWait = [&](Operation *user) { return isa<WaitOp>(user) && user->getBlock() == op->getBlock(); };
  std::optional<ArrayRef<int64_t>> from = shapeOf(start.getCollectiveInputs().front()), to = shapeOf(future);
  if (!from || !to || from->size() != to->size() || !llvm::all_of(future.getUsers(), isOwnWait))
    return {};
  SplitAxes axes;
  for (int64_t dim = 0; dim < static_cast<int64_t>(from->size()); ++dim) {
    if (llvm::is_contained(*own, dim))
      continue;
    SplitAxis axis = makeAxis(op);
    axis.operands[start.getCollectiveInputs().getBeginOperandIndex()] = dim;
    axis.results[0] = dim;
    axes.push_back(std::move(axis));
  }
  return axes;
}

static SplitAxes waitAxes(Operation *op) {
  auto wait = cast<WaitOp>(op);
  auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>();
  if (!start || start->getBlock() != op->getBlock() || !wait.getInflight().empty() || op->getNumResults() != 1)
    return {};
  SplitAxes axes = startAxes(start);
  for (SplitAxis &axis : axes) {
    int64_t dim = axis.results.front();
    axis = makeAxis(op);
    axis.operands[0] = axis.results[0] = dim;
  }
  return axes;
}

void commsched::detail::registerCommSplitModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, CommDialect *) {
    attachAxes<startAxes, AllGatherOp, ReduceScatterOp, AllReduceOp, AllToAllOp, BroadcastOp, ReduceOp, GatherOp,
               ScatterOp, PermuteOp>(context);
    attachAxes<waitAxes, WaitOp>(context);
    attachAxes<computeAxes, ComputeOp>(context);
  });
}
