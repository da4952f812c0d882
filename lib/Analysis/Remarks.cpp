//===- Remarks.cpp - The common fields of all remarks -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See Remarks.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Dialect/Comm/CommDialect.h"

using namespace mlir;
using namespace commsched;

std::string commsched::remarkKind(Operation *op) {
  if (auto start = dyn_cast<comm::CollectiveOpInterface>(op))
    return stringify(start.getCollectiveKind()).str();
  if (isa<comm::WaitOp>(op))
    return "wait";
  return op->getName().getStringRef().str();
}

void commsched::describeRemark(remark::detail::InFlightRemark &remark, StringRef kind, StringRef limitingFactor,
                               StringRef sentence) {
  remark << remark::metric("Kind", kind) << remark::metric("LimitingFactor", limitingFactor) << sentence;
}
