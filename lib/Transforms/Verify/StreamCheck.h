//===- StreamCheck.h - Are all dependences between streams covered? ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The part of comm-verify that concerns streams.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_VERIFY_STREAMCHECK_H
#define COMMSCHED_LIB_TRANSFORMS_VERIFY_STREAMCHECK_H

#include "mlir/IR/Block.h"

namespace commsched {

/// Emits one error for each dependence of the block that crosses from one stream to another without an event or a wait
/// that covers it; a dependence that a reported one implies is not reported again. O((N + E) x streams).
llvm::LogicalResult checkStreams(mlir::Block &block);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_VERIFY_STREAMCHECK_H
