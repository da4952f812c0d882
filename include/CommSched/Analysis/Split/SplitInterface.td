//===- SplitInterface.td - Interface for splitting an operation -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// An operation that implements this interface says along which dimensions its work divides. CommSched attaches the
// interface to operations of upstream dialects (registerSplitModels); other projects implement it on theirs.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_SPLIT_SPLITINTERFACE
#define COMMSCHED_ANALYSIS_SPLIT_SPLITINTERFACE

include "mlir/IR/OpBase.td"

def SplittableOpInterface : OpInterface<"SplittableOpInterface"> {
  let cppNamespace = "::commsched";
  let description = [{
    Along which dimensions an operation divides into parts that give the parts of its results, bit for bit, or partial
    results whose sum is a result. An operation without the interface is never divided.
  }];
  let methods = [
    InterfaceMethod<"The dimensions along which the operation divides. Empty if it does not.",
                    "::llvm::SmallVector<::commsched::SplitAxis>", "getSplitAxes">,
    InterfaceMethod<"Makes the part that computes `types` from `operands`, which are parts along `axis`, or whole.",
                    "::mlir::Operation *", "createStrand",
                    (ins "::mlir::OpBuilder &":$builder, "const ::commsched::SplitAxis &":$axis,
                         "::mlir::ValueRange":$operands, "::mlir::TypeRange":$types), [{}], [{
                      return ::commsched::cloneAsStrand(builder, $_op, operands, types);
                    }]>,
  ];
}

#endif // COMMSCHED_ANALYSIS_SPLIT_SPLITINTERFACE
