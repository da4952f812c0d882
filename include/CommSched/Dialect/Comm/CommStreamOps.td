//===- CommStreamOps.td - Streams and opaque computation --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_COMMSTREAMOPS
#define COMMSCHED_DIALECT_COMM_COMMSTREAMOPS

include "CommSched/Dialect/Comm/CommAttrs.td"
include "CommSched/Dialect/Comm/CommTypes.td"
include "mlir/Dialect/Bufferization/IR/BufferViewFlowOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Comm_RecordOp : Comm_Op<"record", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "record an event on a stream";
  let description = [{
    The event happens when everything issued on the stream before it has ended. With `comm.await_event` it anchors a
    multi-stream schedule.

    Example:
    ```mlir
    %e = comm.record on 1 : !comm.event
    ```

    Constraints:
    - C1: the stream's number is from 0 to 2147483647.
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<2147483647>]>:$stream);
  let results = (outs Comm_EventType:$event);
  let assemblyFormat = "`on` $stream attr-dict `:` qualified(type($event))";
}

def Comm_AwaitEventOp : Comm_Op<"await_event", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "make a stream wait for an event";
  let description = [{
    What is issued on the stream after it starts when the event has happened. The host does not block.

    Example:
    ```mlir
    comm.await_event %e on 0 : !comm.event
    ```

    Constraints:
    - C1: the stream's number is from 0 to 2147483647.
  }];
  let arguments = (ins Comm_EventType:$event, ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<2147483647>]>:$stream);
  let assemblyFormat = "$event `on` $stream attr-dict `:` qualified(type($event))";
}

def Comm_ComputeOp : Comm_Op<"compute", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
                                         DeclareOpInterfaceMethods<StorageOpInterface>,
                                         BufferViewFlowOpInterface]> {
  let summary = "an opaque operation of a framework's graph";
  let description = [{
    Stands for any operation that has no dialect here. What it costs is in `comm.cost`. By default it only reads its
    operands and makes new values. `aliases`, one entry per result, is the number of the operand that the result is a
    view of (or writes in place), or -1; `mutates` lists the operands whose storage is written; `side_effects` makes it
    a barrier for everything that has effects.

    Example:
    ```mlir
    %c = comm.compute "aten.mm"(%a, %b) {comm.cost = #comm.cost<flops = 1024>}
        : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %v = comm.compute "aten.view"(%c) aliases [0] : (tensor<4x16xf32>) -> tensor<64xf32>
    ```

    Constraints:
    - C1: `aliases` has one entry per result: -1, or the number of an operand.
    - C2: `mutates` lists numbers of operands, none twice.
    - C3: the name does not begin with `comm.`; such names are for the compiler's own use.
  }];
  let arguments = (ins StrAttr:$name, Variadic<AnyType>:$inputs, OptionalAttr<DenseI64ArrayAttr>:$aliases,
                       OptionalAttr<DenseI64ArrayAttr>:$mutates, UnitAttr:$side_effects);
  let results = (outs Variadic<AnyType>:$values);
  let assemblyFormat = [{
    $name `(` $inputs `)` (`aliases` $aliases^)? (`mutates` $mutates^)? (`side_effects` $side_effects^)? attr-dict `:`
    functional-type($inputs, $values)
  }];
  let extraClassDeclaration = [{
    void populateDependencies(::mlir::bufferization::RegisterDependenciesFn registerDependencies);
    bool mayBeTerminalBuffer(::mlir::Value value);
  }];
  let hasVerifier = 1;
}

#endif // COMMSCHED_DIALECT_COMM_COMMSTREAMOPS
