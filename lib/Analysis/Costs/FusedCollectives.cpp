//===- FusedCollectives.cpp - Collectives inside of other operations --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A table of PyTorch's fused operators.
//
//===------------------------------------------------------------------------------------------===//

#include "FusedCollectives.h"
#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace commsched;

std::optional<commsched::detail::FusedCollective> commsched::detail::getFusedCollective(Operation *op) {
  StringRef name = getTableName(op);
  if (!name.consume_front("symm_mem."))
    return std::nullopt;
  name = name.take_until([](char c) { return c == '.'; }); // without the overload
  auto kind =
      llvm::StringSwitch<std::optional<CollectiveKind>>(name)
          .Cases({"fused_all_gather_matmul", "fused_all_gather_scaled_matmul"}, CollectiveKind::AllGather)
          .Cases({"fused_matmul_reduce_scatter", "fused_scaled_matmul_reduce_scatter"}, CollectiveKind::ReduceScatter)
          .Default(std::nullopt);
  if (!kind || op->getNumOperands() == 0 || op->getNumResults() == 0)
    return std::nullopt;
  // The first operand is this rank's part of the factor that is gathered; the result is its part of the sum.
  return FusedCollective{*kind, *kind == CollectiveKind::AllGather ? op->getOperand(0) : Value(op->getResult(0))};
}
