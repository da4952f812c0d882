//===- Effects.h - Operations of which nobody says what they touch ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// An operation without MLIR's interface of memory effects, such as one of a dialect that is not registered, may do
// anything, so nothing passes it. The attribute comm.no_effects says otherwise: as a unit attribute on the operation,
// or as a list of names of dialects and operations on an operation around it, such as the module. StableHLO's
// operations are known by their names, because it is not linked.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_EFFECTS_H
#define COMMSCHED_DIALECT_COMM_EFFECTS_H

#include "mlir/IR/Operation.h"

namespace commsched::comm {

inline constexpr llvm::StringLiteral kNoEffectsAttrName = "comm.no_effects";

/// Returns true if `value` may be the attribute comm.no_effects.
bool isNoEffects(mlir::Attribute value);

/// Returns true if nobody says which memory `op` touches. The attribute is not believed of operations with regions, and
/// of those that take or return memory (memrefs, pointers, futures): these have effects. Operations of StableHLO and
/// CHLO are known by their names: they compute values from values, also in their regions, except for those that
/// exchange data with the host or with other processes, random numbers, and custom calls that say otherwise. O(depth of
/// `op`).
bool hasUndeclaredEffects(mlir::Operation *op);

/// Returns true if result i of an operation of StableHLO or TOSA is a view of operand i: XLA makes reshapes without a
/// copy, and upstream lowers those of TOSA to views. The operation is known by its name alone.
bool isForeignView(mlir::Operation *op);

} // namespace commsched::comm

#endif // COMMSCHED_DIALECT_COMM_EFFECTS_H
