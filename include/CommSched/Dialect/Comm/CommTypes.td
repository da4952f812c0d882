//===- CommTypes.td - Futures and events ------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_COMMTYPES
#define COMMSCHED_DIALECT_COMM_COMMTYPES

include "CommSched/Dialect/Comm/CommBase.td"

def Comm_FutureType : Comm_Type<"Future", "future"> {
  let summary = "future of a collective's results";
  let description = [{
    A start returns a future, and `comm.wait` returns the future's values. A future may be an argument of a block, or an
    argument or a result of a function: one function may start a collective and another may wait for it.

    Example: `!comm.future<tensor<16x8xf32>>`, and `!comm.future<>` for a collective without data (a barrier, a send).

    Constraints:
    - C1: Every value is a ranked tensor or a ranked memref.
  }];
  let parameters = (ins ArrayRefParameter<"::mlir::Type", "types of the values">:$types);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Comm_EventType : Comm_Type<"Event", "event"> {
  let summary = "event of a stream";
}

/// The type of data that a collective sends and receives.
def Comm_Data : AnyTypeOf<[AnyRankedTensor, AnyMemRef], "ranked tensor or memref">;

#endif // COMMSCHED_DIALECT_COMM_COMMTYPES
