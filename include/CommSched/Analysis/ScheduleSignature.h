//===- ScheduleSignature.h - Signature of the sequence of collectives -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Ranks that issue collectives in different orders hang. The signature is a hash of a function's sequence of
// collectives. The passes set it, and the runtime compares it before the first collective. Sends and receives need not
// be on all ranks and are left out: the runtime compares them by itself.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_SCHEDULESIGNATURE_H
#define COMMSCHED_ANALYSIS_SCHEDULESIGNATURE_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include <string>
#include <vector>

namespace commsched {

/// The line of one operation in describeCollectives(); empty if it is no collective, or a send or receive.
std::string describeCollective(mlir::Operation *op);

/// One line per collective of `root`, in program order and including nested regions: kind, group, element type and
/// bytes of each value ("all_gather @dp bf16 8388608"). Without sends and receives.
std::vector<std::string> describeCollectives(mlir::Operation *root);

/// The hash of these lines: the first 16 hexadecimal digits of their SHA-256. O(collectives).
std::string scheduleSignature(mlir::Operation *root);

/// Sets `comm.schedule_signature` on `root`, if it is a function, or on the functions in it. Functions without
/// collectives lose the attribute. O(operations).
void stampSignature(mlir::Operation *root);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_SCHEDULESIGNATURE_H
