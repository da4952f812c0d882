//===- MatrixProducts.cpp - Recognition of matrix products ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/MatrixProducts.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

bool commsched::isMatrixProductName(StringRef name) {
  // PyTorch's operators with a flop formula, and the names of the same operations in other frameworks.
  static const llvm::StringSet<> known = {"mm",
                                          "bmm",
                                          "addmm",
                                          "addbmm",
                                          "baddbmm",
                                          "_scaled_mm",
                                          "_int_mm",
                                          "_grouped_mm",
                                          "_scaled_grouped_mm",
                                          "_weight_int8pack_mm",
                                          "_weight_int4pack_mm",
                                          "matmul",
                                          "batch_matmul",
                                          "linear",
                                          "gemm",
                                          "batched_gemm",
                                          "grouped_gemm",
                                          "einsum",
                                          "tensordot",
                                          "dot",
                                          "dot_general",
                                          "contract",
                                          "conv",
                                          "conv1d",
                                          "conv2d",
                                          "conv3d",
                                          "convolution",
                                          "_convolution",
                                          "cudnn_convolution",
                                          "attention",
                                          "flash_attention",
                                          "flex_attention",
                                          "scaled_dot_product_attention",
                                          "_scaled_dot_product_flash_attention",
                                          "_scaled_dot_product_flash_attention_for_cpu",
                                          "_scaled_dot_product_efficient_attention",
                                          "_scaled_dot_product_cudnn_attention",
                                          "_scaled_dot_product_fused_attention_overrideable",
                                          "_flash_attention_forward",
                                          "_flash_attention",
                                          "_efficient_attention_forward",
                                          "_efficient_attention",
                                          "_cudnn_attention_forward",
                                          "_cudnn_attention"};
  SmallVector<StringRef> parts;
  for (StringRef outer : llvm::split(name, '.'))
    outer.split(parts, ':', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  return llvm::any_of(parts, [](StringRef part) {
    // The number that distinguishes equal nodes of a graph is not part of the name.
    part.consume_back("_backward");
    if (known.contains(part))
      return true;
    StringRef stem = part.rtrim("0123456789");
    return stem != part && known.contains(stem.rtrim('_'));
  });
}

bool MatrixProducts::isProduct(Operation *op) const {
  auto compute = dyn_cast<ComputeOp>(op);
  if (!compute && isa_and_present<CommDialect>(op->getDialect()))
    return false;
  if (isMatrixProductName(compute ? compute.getName() : op->getName().getStringRef()))
    return true;
  // Control flow and calls count as matrix products if they contain one.
  if (isa<RegionBranchOpInterface, CallOpInterface>(op))
    return false;
  if (auto costed = dyn_cast<CostOpInterface>(op))
    return costed.getWork(costs).units == ComputeUnits::Matrix;
  auto cost = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
  return cost && cost.getFlops().value_or(0) > 0;
}

bool MatrixProducts::calleeContains(CallOpInterface call) {
  auto callee = dyn_cast_if_present<CallableOpInterface>(call.resolveCallableInTable(&symbols));
  if (!callee || !callee.getCallableRegion())
    return false;
  auto [it, inserted] = callees.try_emplace(callee, false);
  if (!inserted)
    return it->second;
  bool found = callee.getCallableRegion()
                   ->walk<WalkOrder::PreOrder>(
                       [&](Operation *op) { return contains(op) ? WalkResult::interrupt() : WalkResult::skip(); })
                   .wasInterrupted();
  return callees[callee] = found; // The map may have grown meanwhile.
}

bool MatrixProducts::contains(Operation *op) {
  return op
      ->walk<WalkOrder::PreOrder>([&](Operation *inner) {
        auto call = dyn_cast<CallOpInterface>(inner);
        return isProduct(inner) || (call && calleeContains(call)) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}
