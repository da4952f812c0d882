//===- Passes.td - Passes that lead into and out of the dialect -----------*- tablegen -*-===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
//===--------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_CONVERSION_PASSES
#define COMMSCHED_CONVERSION_PASSES

include "mlir/Pass/PassBase.td"

def CommBufferize : Pass<"comm-bufferize", "mlir::ModuleOp"> {
  let summary = "put a program of collectives on buffers";
  let description = [{
    One-shot bufferization with the settings that programs with collectives in flight need: function boundaries
    included, and a copy before every write that tensor semantics asks for, because upstream's in-place analysis does
    not know that a collective reads its inputs until its wait. Destinations, mutated operands and views of the comm
    dialect are storage already and are never copied. Buffers that do not leave their block are released after their
    last use; the runtime keeps what is still in flight.
  }];
  let dependentDialects = ["mlir::bufferization::BufferizationDialect", "mlir::memref::MemRefDialect"];
}

def CommToLLVM : Pass<"comm-to-llvm", "mlir::ModuleOp"> {
  let summary = "lower collectives on buffers to calls of the runtime";
  let description = [{
    Every operation of the comm dialect becomes calls of the C ABI of CommSched/Runtime/Runtime.h; buffers come from
    and go back to the runtime. The module gets a function `commrt_module_begin` that makes the groups and presents the
    schedule; it is called once per context before any other. Everything else is left to upstream's lowerings.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::LLVM::LLVMDialect", "mlir::memref::MemRefDialect"];
}

#endif // COMMSCHED_CONVERSION_PASSES
