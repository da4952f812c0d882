//===- CommOps.td - All operations of the dialect ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_COMMOPS
#define COMMSCHED_DIALECT_COMM_COMMOPS

include "CommSched/Dialect/Comm/CommCollectiveOps.td"
include "CommSched/Dialect/Comm/CommFsdpOps.td"
include "CommSched/Dialect/Comm/CommStreamOps.td"

#endif // COMMSCHED_DIALECT_COMM_COMMOPS
