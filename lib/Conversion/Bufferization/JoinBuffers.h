//===- JoinBuffers.h - Compute parts of a buffer in their places ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Strands are joined by insertions into one buffer (Strands.md, "Slices and joins"), which bufferize to copies.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_CONVERSION_BUFFERIZATION_JOINBUFFERS_H
#define COMMSCHED_LIB_CONVERSION_BUFFERIZATION_JOINBUFFERS_H

#include "mlir/IR/BuiltinOps.h"

namespace commsched {

/// Replaces buffers that are copied into a part of a larger new buffer by views of that part, if nothing else uses the
/// larger buffer before, and nothing can tell the two apart afterwards. The larger buffer is allocated where the first
/// of its parts was. Leaves blocks with streams as they are. Linear in the operations, with at most kMostJoinedParts
/// parts for each buffer.
void computePartsInPlace(mlir::ModuleOp module);

/// Larger joins are copied, because every two parts are compared. There are at most 8 strands.
inline constexpr size_t kMostJoinedParts = 16;

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_BUFFERIZATION_JOINBUFFERS_H
