//===- CommSizes.h - Bytes of values, as far as types and hints tell --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The bytes of values of dynamic size. getStaticBytes and getCollectiveBytes are in CommDialect.h.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_COMMSIZES_H
#define COMMSCHED_DIALECT_COMM_COMMSIZES_H

#include "CommSched/Dialect/Comm/CommDialect.h"

namespace commsched::comm {

/// Bytes of a tensor or memref: those of its type, or what a `comm.bytes_hint` tells of it. A hint tells of the value
/// itself and of what is made of it by views (at most as large), casts, elementwise operations, writes of a
/// destination, and collectives (times or by the group's size). None where nothing tells. O(operations in between), at
/// most 64, and a symbol lookup for each collective in between.
std::optional<int64_t> getKnownBytes(mlir::Value value);

/// The same for value `index` of a start's future. A hint on the start is for all values of its future together: the
/// first one gets it, the others are 0.
std::optional<int64_t> getKnownFutureBytes(CollectiveOpInterface start, unsigned index);

/// Whether getCollectiveBytes knows all sizes that it adds up.
bool hasKnownBytes(CollectiveOpInterface collective);

/// Whether a `comm.compute` of this name converts the element type: the casts of the frameworks whose graphs are
/// imported.
bool isCastName(llvm::StringRef name);

} // namespace commsched::comm

#endif // COMMSCHED_DIALECT_COMM_COMMSIZES_H
