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
    The event happens when all operations issued on the stream before it have ended, collectives that were started there
    included. Together with `comm.await_event` it fixes the order of operations on several streams (`comm.stream`). An event
    also covers what its stream has awaited before.

    Example:
    ```mlir
    %e = comm.record on 1 : !comm.event
    ```

    Constraints:
    - C1: The number of the stream is from 0 to 2147483647.
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<2147483647>]>:$stream);
  let results = (outs Comm_EventType:$event);
  let assemblyFormat = "`on` $stream attr-dict `:` qualified(type($event))";
}

def Comm_AwaitEventOp : Comm_Op<"await_event", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "make a stream wait for an event";
  let description = [{
    Operations issued on the stream after this one start after the event has happened. The host does not block if streams
    are a device's. On CPU backends, where operations run at their place in the program, it waits for the collectives that
    the event covers.

    Example:
    ```mlir
    comm.await_event %e on 0 : !comm.event
    ```

    Constraints:
    - C1: The number of the stream is from 0 to 2147483647.
  }];
  let arguments = (ins Comm_EventType:$event, ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<2147483647>]>:$stream);
  let assemblyFormat = "$event `on` $stream attr-dict `:` qualified(type($event))";
}

def Comm_SwitchStreamOp : Comm_Op<"switch_stream", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "make a stream the one that the following operations run on";
  let description = [{
    The operations that follow in the block run on this stream, until the next such operation. A block begins on stream 0 and
    ends there. `comm-switch-streams` writes the streams of operations (`comm.stream`) down in this form. In it a rewrite of
    an operation, which may drop attributes that it does not know, leaves the operation on its stream. No memory access moves
    across.

    Example:
    ```mlir
    comm.switch_stream to 2
    ```

    Constraints:
    - C1: The number of the stream is from 0 to 2147483647.
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<2147483647>]>:$stream);
  let assemblyFormat = "`to` $stream attr-dict";
}

def Comm_ComputeOp : Comm_Op<"compute", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
                                         DeclareOpInterfaceMethods<StorageOpInterface>,
                                         BufferViewFlowOpInterface]> {
  let summary = "an opaque operation of a framework's graph";
  let description = [{
    Represents an operation that has no dialect here. `comm.cost` gives its cost. By default the operation only reads its
    operands and makes new values. Three attributes change this:

    - `aliases` has one entry per result: the number of the operand of which the result is a view, or which it writes in
      place; -1 for new storage.
    - `mutates` lists the operands whose storage the operation writes. A tensor among them is a place: only operations with
      memory effects may make and read it (docs/contributing/Rationale.md, "Values and places"), and `comm-verify` reports others.
    - `side_effects` makes the operation a barrier for all operations with effects.

    Example:
    ```mlir
    %c = comm.compute "aten.mm"(%a, %b) {comm.cost = #comm.cost<flops = 1024>}
        : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %v = comm.compute "aten.view"(%c) aliases [0] : (tensor<4x16xf32>) -> tensor<64xf32>
    ```

    Constraints:
    - C1: `aliases` has one entry per result: -1, or the number of an operand.
    - C2: `mutates` lists numbers of operands, each at most once.
    - C3: The name does not begin with `comm.`. Such names are reserved for the compiler.
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
