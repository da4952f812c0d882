//===- SignatureValues.h - Parameters and gradients of a function -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Which argument a value is, and which result it becomes, through casts and views. Internal to the passes.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_SCHEDULING_INDUCTOR_SIGNATUREVALUES_H
#define COMMSCHED_LIB_TRANSFORMS_SCHEDULING_INDUCTOR_SIGNATUREVALUES_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include <optional>
#include <string>

namespace commsched {

/// How a value may be removed from the argument or the result that it stands for.
enum class SignatureRule {
  /// By any chain of casts and views.
  Chain,
  /// By at most one cast of the element type and no views, as in PyTorch's bucketing.
  OneCast,
};

/// The argument of the function that `value` is; null if it is none. O(operations of the chain).
mlir::BlockArgument argumentOf(mlir::Value value, SignatureRule rule = SignatureRule::Chain);

/// The number of the function's first result that `value` becomes, if nothing else reads it; none if something does.
/// The operands of a loop's yield are no results. O(operations of the chain).
std::optional<unsigned> resultOf(mlir::Value value, SignatureRule rule = SignatureRule::Chain);

/// The place of what a collective gathers or reduces in the signature of its function: the number of the argument that
/// an all-gather gathers, or of the result that the value of another collective becomes. None if there is none, and if
/// there are several values or waits.
std::optional<unsigned> signaturePlaceOf(comm::CollectiveOpInterface start);

/// The names of a collective: those of its location, and those of the argument that an all-gather gathers, each with
/// what the name was given for ("layers.0" in `loc("all_gather_3"("layers.0"))`).
std::vector<std::string> namesOf(comm::CollectiveOpInterface start);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_SCHEDULING_INDUCTOR_SIGNATUREVALUES_H
