//===- CostInterface.td - Interface for the cost of an operation ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The cost model applies a roofline to the numbers of an operation that implements this interface. CommSched attaches
// the interface to operations of upstream dialects (registerCostModels); other projects implement it on theirs.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_COSTINTERFACE
#define COMMSCHED_ANALYSIS_COSTINTERFACE

include "mlir/IR/OpBase.td"

def CostOpInterface : OpInterface<"CostOpInterface"> {
  let cppNamespace = "::commsched";
  let description = [{
    How much an operation computes and moves. What a machine makes of it is the cost model's business.
  }];
  let methods = [
    InterfaceMethod<"Operations, bytes and workspace of one execution. Operations with regions or callees ask `costs` "
                    "for the work inside.",
                    "::commsched::OpWork", "getWork", (ins "const ::commsched::OperationCosts &":$costs)>,
  ];
}

#endif // COMMSCHED_ANALYSIS_COSTINTERFACE
