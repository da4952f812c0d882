//===- Passes.td - Passes that lead into and out of the dialect -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_CONVERSION_PASSES
#define COMMSCHED_CONVERSION_PASSES

include "mlir/Pass/PassBase.td"

def CommBufferize : Pass<"comm-bufferize", "mlir::ModuleOp"> {
  let summary = "put a program of collectives on buffers";
  let description = [{
    One-shot bufferization, function boundaries included, with upstream's in-place analysis: a tensor operation that could
    write its destination where it lies does so. The analysis is told what futures hide from it: a collective uses its
    inputs and destinations until its wait, and the results of the wait are the destinations. So what is in flight is
    never overwritten: a write that would do so goes to a buffer of its own. Arguments of public functions are not written,
    unless they are `comm.donated`. Destinations, mutated operands and views of the comm dialect are storage already and are
    never copied.

    Where a future leaves its block, is an argument, or a tensor comes from a buffer that others may write
    (`bufferization.to_tensor` without `restrict`), the analysis cannot be used; a copy then goes before every write of a
    tensor in the module, and a remark says why.

    Buffers that do not leave their block are freed after their last use, which is never before a wait that is certain to
    run: waits on buffers keep (`keeping`) what is in flight. Where no wait is certain, as all stand under conditions or in
    loops that may not run, the pass adds one at the end of the block that starts the collective. Buffers whose future leaves its block are left to the runtime. What else
    leaves its block is for upstream's `buffer-deallocation-pipeline`, which `comm-lower-to-runtime` runs next and which
    leaves what is freed already alone.
  }];
  let options = [
    Option<"copyBeforeWrite", "copy-before-write", "bool", "false",
           "no in-place analysis: a copy goes before every write of a tensor">,
  ];
  let dependentDialects = ["mlir::bufferization::BufferizationDialect", "mlir::memref::MemRefDialect"];
}

def CommPlanBuffers : Pass<"comm-plan-buffers"> {
  let summary = "give buffers fixed places in one arena per block and memory space";
  let description = [{
    Buffers of static size that are freed by one operation of their own block (as `comm-bufferize` leaves them) become views
    of one allocation, at offsets that the plan of `Scheduling/BufferPlan.h` gives: those that live together lie apart, others
    share space. A buffer that may still be in flight where it is freed is left alone: the runtime keeps it until the
    collective has ended.
    Plain memory and the symmetric memory of each group have an arena of their own. The arena of the body of an `scf.for`,
    `scf.while` or `scf.if` is allocated outside of it and is a buffer of the block around it: every iteration finds its
    buffers at the same place. The plan depends on the module alone, so all ranks find the same offsets. On a module, the arena
    of a function's symmetric memory is a global (`memref.global`) and stays from call to call, unless the function may be
    called again before it has returned.

    Every plan is checked by a verifier that shares no code with the planner. Remarks say how large each arena is and how
    much is live at most.
  }];
  let options = [
    Option<"alignmentBytes", "alignment-bytes", "int64_t", "256",
           "offsets are multiples of this power of two; cudaMalloc aligns to 256">,
  ];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::memref::MemRefDialect",
                           "mlir::bufferization::BufferizationDialect"];
}

def CommToLLVM : Pass<"comm-to-llvm", "mlir::ModuleOp"> {
  let summary = "lower collectives on buffers to calls of the runtime";
  let description = [{
    Every operation of the comm dialect becomes calls of the C ABI of CommSched/Runtime/Runtime.h; buffers come from
    and go back to the runtime. What leaves a loop's iteration or the function without a known last use is given back at
    its end. The module gets a function `commrt_module_begin` that makes the groups and presents the
    schedule; it is called once per context before any other. Everything else is left to upstream's lowerings.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::LLVM::LLVMDialect", "mlir::memref::MemRefDialect"];
}

def CommCheckStatus : Pass<"comm-check-status", "mlir::ModuleOp"> {
  let summary = "leave compiled code at the first error of the runtime";
  let description = [{
    For functions of the LLVM dialect, last in the lowering: after each call of the runtime that can fail, and of each
    function that makes one, a branch leaves the function if there was an error. What it returns is then zero; the error
    is in the context, with the source location of the collective that failed.
  }];
  let dependentDialects = ["mlir::LLVM::LLVMDialect"];
}

#endif // COMMSCHED_CONVERSION_PASSES
