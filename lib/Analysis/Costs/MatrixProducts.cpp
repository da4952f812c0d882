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
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// What the name of an operation says of its result.
enum class ProductName : uint8_t { None, Matrix, Attention, Other };

} // namespace

static ProductName classify(StringRef name) {
  // PyTorch's operators with a flop formula, and the names of the same operations in other frameworks.
  using N = ProductName;
  static const llvm::StringMap<ProductName> known = {{"mm", N::Matrix},
                                                     {"bmm", N::Matrix},
                                                     {"addmm", N::Matrix},
                                                     {"addbmm", N::Other},
                                                     {"baddbmm", N::Matrix},
                                                     {"_scaled_mm", N::Matrix},
                                                     {"_int_mm", N::Matrix},
                                                     {"_grouped_mm", N::Other},
                                                     {"_scaled_grouped_mm", N::Other},
                                                     {"_weight_int8pack_mm", N::Matrix},
                                                     {"_weight_int4pack_mm", N::Matrix},
                                                     {"matmul", N::Matrix},
                                                     {"batch_matmul", N::Matrix},
                                                     {"linear", N::Matrix},
                                                     {"gemm", N::Matrix},
                                                     {"batched_gemm", N::Matrix},
                                                     {"grouped_gemm", N::Other},
                                                     {"einsum", N::Other},
                                                     {"tensordot", N::Other},
                                                     {"dot", N::Matrix},
                                                     {"dot_general", N::Matrix},
                                                     {"contract", N::Other},
                                                     {"conv", N::Other},
                                                     {"conv1d", N::Other},
                                                     {"conv2d", N::Other},
                                                     {"conv3d", N::Other},
                                                     {"convolution", N::Other},
                                                     {"_convolution", N::Other},
                                                     {"cudnn_convolution", N::Other},
                                                     {"attention", N::Attention},
                                                     {"flash_attention", N::Attention},
                                                     {"flex_attention", N::Attention},
                                                     {"scaled_dot_product_attention", N::Attention},
                                                     {"_scaled_dot_product_flash_attention", N::Attention},
                                                     {"_scaled_dot_product_flash_attention_for_cpu", N::Attention},
                                                     {"_scaled_dot_product_efficient_attention", N::Attention},
                                                     {"_scaled_dot_product_cudnn_attention", N::Attention},
                                                     {"_scaled_dot_product_fused_attention_overrideable", N::Attention},
                                                     {"_flash_attention_forward", N::Attention},
                                                     {"_flash_attention", N::Attention},
                                                     {"_efficient_attention_forward", N::Attention},
                                                     {"_efficient_attention", N::Attention},
                                                     {"_cudnn_attention_forward", N::Attention},
                                                     {"_cudnn_attention", N::Attention}};
  SmallVector<StringRef> parts;
  for (StringRef outer : llvm::split(name, '.'))
    outer.split(parts, ':', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef part : parts) {
    part.consume_back("_backward");
    if (auto found = known.find(part); found != known.end())
      return found->second;
    // The number that distinguishes equal nodes of a graph is not part of the name.
    StringRef stem = part.rtrim("0123456789");
    if (auto found = known.find(stem.rtrim('_')); stem != part && found != known.end())
      return found->second;
  }
  return N::None;
}

bool commsched::isMatrixProductName(StringRef name) { return classify(name) != ProductName::None; }

ProductShape commsched::getProductShape(Operation *op) {
  auto compute = dyn_cast<ComputeOp>(op);
  ProductName name = classify(compute ? compute.getName() : op->getName().getStringRef());
  if (name != ProductName::Matrix && name != ProductName::Attention)
    return {};
  auto type = op->getNumResults() > 0 ? dyn_cast<ShapedType>(op->getResult(0).getType()) : ShapedType();
  if (!type || !type.hasStaticShape() || type.getRank() < 2 || type.getNumElements() == 0)
    return {};
  ArrayRef<int64_t> shape = type.getShape();
  int64_t outer = ShapedType::getNumElements(shape.drop_back(2));
  bool isShared = name == ProductName::Matrix && llvm::any_of(op->getOperandTypes(), [](Type operand) {
                    auto matrix = dyn_cast<ShapedType>(operand);
                    return matrix && matrix.hasRank() && matrix.getRank() == 2;
                  });
  int64_t rows = shape[shape.size() - 2], columns = shape.back();
  return isShared ? ProductShape{1, outer * rows, columns} : ProductShape{outer, rows, columns};
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
