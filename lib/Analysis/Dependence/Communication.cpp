//===- Communication.cpp - The communication in an operation and its regions ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "Communication.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

Communication::Communication(Operation *op) {
  op->walk([&](Operation *inner) { visit(inner); });
}

void Communication::visit(Operation *op) {
  if (auto wait = dyn_cast<WaitOp>(op)) {
    auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>();
    awaited.push_back(wait.getFuture());
    waitsForMessage |= !start || start.isPointToPoint();
    return;
  }
  // An event covers the collectives that were started before it, messages included.
  waitsForMessage |= isa<AwaitEventOp>(op);
  auto collective = dyn_cast<CollectiveOpInterface>(op);
  pointToPoint |= collective && collective.isPointToPoint();
  Attribute group = collective ? collective.getGroupAttr() : op->getAttr(CommDialect::kHybridAttrName);
  if (group && !llvm::is_contained(groups, group))
    groups.push_back(group);
}

namespace {

/// One search, with the values that it has visited.
class OriginFinder {
public:
  explicit OriginFinder(const BlockNodes &nodes) : nodes(nodes) {}

  FutureOrigins run(ArrayRef<Value> futures) {
    llvm::for_each(futures, [&](Value future) { push(future); });
    while (!open.empty()) {
      Value future = open.pop_back_val();
      if (auto argument = dyn_cast<BlockArgument>(future))
        visitArgument(argument);
      else
        visitResult(future.getDefiningOp());
    }
    llvm::sort(result.starts);
    result.starts.erase(llvm::unique(result.starts), result.starts.end());
    return std::move(result);
  }

private:
  void push(Value value) {
    if (isa<FutureType>(value.getType()) && seen.insert(value).second)
      open.push_back(value);
  }

  void visitArgument(BlockArgument argument) {
    Operation *parent = argument.getOwner()->getParentOp();
    if (argument.getOwner() != &nodes.getBlock())
      return passOn(parent);
    auto function = dyn_cast_if_present<FunctionOpInterface>(parent);
    if (!function || !argument.getOwner()->isEntryBlock())
      return; // carried by a loop: an iteration ends when its collectives have ended
    if (auto ready = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(), CommDialect::kReadyAttrName))
      result.ready = std::max<Ns>(result.ready, ready.getInt());
  }

  void visitResult(Operation *op) {
    if (!isa<CollectiveOpInterface>(op))
      return passOn(op);
    if (op->getBlock() == &nodes.getBlock())
      result.starts.push_back(nodes.find(op));
  }

  /// The values that an operation of the block, or one nested in it, is given, and those that its regions return.
  void passOn(Operation *op) {
    if (nodes.find(op) == kNone)
      return;
    llvm::for_each(op->getOperands(), [&](Value operand) { push(operand); });
    for (Region &region : op->getRegions())
      for (Block &block : region)
        if (!block.empty() && block.back().hasTrait<OpTrait::IsTerminator>())
          llvm::for_each(block.back().getOperands(), [&](Value operand) { push(operand); });
  }

  const BlockNodes &nodes;
  FutureOrigins result;
  SmallVector<Value> open;
  llvm::SmallPtrSet<Value, 8> seen;
};

} // namespace

FutureOrigins commsched::detail::findOrigins(ArrayRef<Value> futures, const BlockNodes &nodes) {
  return OriginFinder(nodes).run(futures);
}
