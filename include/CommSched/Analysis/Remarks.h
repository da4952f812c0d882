//===- Remarks.h - The common fields of all remarks -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every remark of the project has a kind, numbers whose names give the unit, a limiting factor, and one sentence.
// Remarks.md lists them.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_REMARKS_H
#define COMMSCHED_ANALYSIS_REMARKS_H

#include "mlir/IR/Operation.h"
#include "mlir/IR/Remarks.h"

namespace commsched {

/// The limiting factor of a remark if nothing limits what it describes.
inline constexpr llvm::StringLiteral kNoLimitingFactor = "none";

/// The kind of an operation in remarks: a collective's kind ("all_gather"), "wait", or the operation's name
/// ("linalg.matmul").
std::string remarkKind(mlir::Operation *op);

/// Adds the fields that every remark has: the kind of what it describes, the limiting factor, and one sentence. Numbers
/// are added by the caller.
void describeRemark(mlir::remark::detail::InFlightRemark &remark, llvm::StringRef kind, llvm::StringRef limitingFactor,
                    llvm::StringRef sentence);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_REMARKS_H
