//===- MemoryRanges.h - The bytes that a value names ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Private to comm-verify: which value another one is a view of, which bytes of it, and how an operation accesses them.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_VERIFY_MEMORYRANGES_H
#define COMMSCHED_LIB_TRANSFORMS_VERIFY_MEMORYRANGES_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include <optional>

namespace commsched {

/// Bytes of a memref within `base`, which is not a view.
struct ByteRange {
  mlir::Value base;
  int64_t begin = 0, end = 0;
};

/// The value of which another one is a view: the source of a view, or the destination that a wait returns. Null if
/// there is none. O(1).
mlir::Value findSource(mlir::Value value);

/// The value of which another one is a view of a view; itself if it is none. O(views).
mlir::Value findRoot(mlir::Value value);

/// The bytes of a memref of constant sizes, or of a `memref.view` or `memref.subview` of one; none if an offset or a
/// size is not a constant. A buffer plan makes views of one arena, and strands make parts of one buffer. O(views).
std::optional<ByteRange> findRange(mlir::Value memref);

/// Returns true if two values certainly have no byte in common. False means that they may overlap. O(views).
bool areApart(mlir::Value a, mlir::Value b);

/// How an operation accesses the memory of an operand.
struct MemoryAccess {
  bool reads = false, writes = false;
};

/// The access of an operation to the storage of an operand. Operations in its regions have their own. An operation with
/// unknown effects counts as none.
MemoryAccess getAccess(mlir::OpOperand &operand);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_VERIFY_MEMORYRANGES_H
