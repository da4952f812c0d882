//===- CommSizes.h - Bytes of values, from types and hints ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Bytes of values of dynamic size. getStaticBytes and getCollectiveBytes are in CommDialect.h.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_COMMSIZES_H
#define COMMSCHED_DIALECT_COMM_COMMSIZES_H

#include "CommSched/Dialect/Comm/CommDialect.h"

namespace commsched::comm {

/// Bytes of a tensor or memref: from its type, or else from a `comm.bytes_hint`. A hint gives the bytes of its value,
/// and of the values made from it by views (at most as large), casts, elementwise operations, writes of a destination,
/// and collectives (multiplied or divided by the group's size). None if neither gives the bytes. Follows at most 64
/// operations, with a symbol lookup per collective on the way.
std::optional<int64_t> getKnownBytes(mlir::Value value);

/// Bytes of value `index` of a start's future. A hint on the start counts all values of the future together: the first
/// value gets the hint, the others get 0.
std::optional<int64_t> getKnownFutureBytes(CollectiveOpInterface start, unsigned index);

/// Returns true if all sizes that getCollectiveBytes adds up are known.
bool hasKnownBytes(CollectiveOpInterface collective);

/// Returns true if a `comm.compute` of this name converts the element type. The names are those of the casts in
/// imported graphs.
bool isCastName(llvm::StringRef name);

} // namespace commsched::comm

#endif // COMMSCHED_DIALECT_COMM_COMMSIZES_H
