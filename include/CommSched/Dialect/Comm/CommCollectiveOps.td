//===- CommCollectiveOps.td - Groups, starts and waits ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A collective is a start and a wait. Every start has the same form: inputs, optional destinations, a group, and a
// future of what the rank receives.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_COMMCOLLECTIVEOPS
#define COMMSCHED_DIALECT_COMM_COMMCOLLECTIVEOPS

include "CommSched/Dialect/Comm/CommAttrs.td"
include "CommSched/Dialect/Comm/CommTypes.td"
include "mlir/Dialect/Bufferization/IR/BufferViewFlowOpInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"

//===--------------------------------------------------------------------------------------===//
// Groups
//===--------------------------------------------------------------------------------------===//

def Comm_GroupOp : Comm_Op<"group", [Symbol]> {
  let summary = "a communicator: a partition of the ranks into replica groups";
  let description = [{
    Collectives name a group by its symbol. Each rank takes part in the one group of the partition that holds it; roots
    and peers are places within that group, not ranks.

    Example:
    ```mlir
    comm.group @dp #comm.iota<[8, 8] from [8, 8] transpose [1, 0]>
    comm.group @tp #comm.ranks<[[0, 1], [2, 3]]>
    ```

    A private group lives as long as an attribute (of a collective, `comm.hybrid`) or a type (`#comm.symmetric`) of its
    symbol table names it.

    Constraints:
    - C1: the attribute is one of the replica-group attributes.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$sym_visibility, AnyAttr:$replica_groups);
  let assemblyFormat = "(custom<Visibility>($sym_visibility)^)? $sym_name $replica_groups attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The partition.
    ReplicaGroupsInterface getGroups() { return ::llvm::cast<ReplicaGroupsInterface>(getReplicaGroups()); }
    /// Ranks of each group.
    int64_t getGroupSize() { return getGroups().getGroupSize(); }
    /// Whether symbol DCE may delete it once no attribute names it: no type does either. O(operations) of the symbol table.
    bool canDiscardOnUseEmpty();
  }];
}

//===--------------------------------------------------------------------------------------===//
// Starts
//===--------------------------------------------------------------------------------------===//

/// A start: `args` are its attributes, `prefix` and `suffix` what is printed of them before the inputs and after the
/// group, `reduction` how it combines values (C++ of type std::optional<ReductionKind>).
class Comm_StartOp<string mnemonic, string kind, dag args = (ins), string prefix = "", string suffix = "",
                   string reduction = "std::nullopt", string extraDeclaration = "">
    : Comm_Op<mnemonic, [AttrSizedOperandSegments, CollectiveOpInterface,
                         DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
                         DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let arguments = !con((ins Variadic<Comm_Data>:$inputs, Variadic<Comm_Data>:$dests, FlatSymbolRefAttr:$group), args);
  let results = (outs Comm_FutureType:$future);
  let assemblyFormat = prefix # " ($inputs^)? (`into` $dests^)? `on` $group " # suffix #
                       " attr-dict `:` custom<StartTypes>(ref($dests), type($inputs), type($dests), type($future))";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::commsched::CollectiveKind getCollectiveKind() { return ::commsched::CollectiveKind::}] # kind # [{; }
    ::mlir::OperandRange getCollectiveInputs() { return getInputs(); }
    ::mlir::OperandRange getCollectiveDests() { return getDests(); }
    ::mlir::Value getCollectiveFuture() { return getFuture(); }
    std::optional<ReductionKind> getCollectiveReduction() { return }] # reduction # [{; }
  }] # extraDeclaration;
  let extraClassDefinition = [{
    void $cppClass::getEffects(
        ::llvm::SmallVectorImpl<::mlir::SideEffects::EffectInstance<::mlir::MemoryEffects::Effect>> &effects) {
      ::commsched::comm::detail::getStartEffects(getInputsMutable(), getDestsMutable(), effects);
    }
    ::llvm::LogicalResult $cppClass::verifySymbolUses(::mlir::SymbolTableCollection &symbols) {
      return ::commsched::comm::detail::verifyGroupUse(*this, symbols);
    }
  }];
}

defvar reductionArgs = (ins Comm_ReductionAttr:$reduction, OptionalAttr<F64Attr>:$scale);
defvar reductionFormat = "`` $reduction (`scale` $scale^)?";

def Comm_AllGatherOp : Comm_StartOp<"all_gather", "AllGather", (ins DefaultValuedAttr<I64Attr, "0">:$dim), "",
                                    "(`dim` $dim^)?"> {
  let summary = "start to concatenate the ranks' inputs on every rank";
  let description = [{
    Result i is the concatenation, in group order and along `dim`, of the ranks' inputs i. Completes at its wait.

    Example:
    ```mlir
    %f = comm.all_gather %shard on @dp : (tensor<4x8xf32>) -> !comm.future<tensor<16x8xf32>>
    %full = comm.wait %f : !comm.future<tensor<16x8xf32>>
    ```

    Constraints:
    - C1: as many inputs as values in the future, and as destinations where there are any.
    - C2: `dim` is a dimension of every input.
    - C3: result i is input i with `dim` multiplied by the group's size (static sizes).
    - C4: matching element types.
    - C5: destinations have the future's types; on memrefs they are given; tensors and memrefs do not mix.
    - C6: the group exists.
  }];
}

def Comm_ReduceScatterOp : Comm_StartOp<"reduce_scatter", "ReduceScatter",
    !con(reductionArgs, (ins DefaultValuedAttr<I64Attr, "0">:$dim)), reductionFormat, "(`dim` $dim^)?", "getReduction()"> {
  let summary = "start to reduce the ranks' inputs and scatter the result";
  let description = [{
    Result i is this rank's piece, along `dim`, of the reduction of the ranks' inputs i. Completes at its wait.

    Example:
    ```mlir
    %f = comm.reduce_scatter avg %grad on @dp : (tensor<16x8xf32>) -> !comm.future<tensor<4x8xf32>>
    ```

    Constraints: C1, C2, C4, C5, C6 of `comm.all_gather`, and
    - C3: result i is input i with `dim` divided by the group's size, without remainder (static sizes).
    - C7: `scale` is given exactly for `scaled_sum`. Elements are integers (`avg` and `scaled_sum` excepted), of
      floating point, complex (not for `product`, `min` and `max`), or `i1` (for `min` and `max`: and, or).
  }];
}

def Comm_AllReduceOp : Comm_StartOp<"all_reduce", "AllReduce", !con(reductionArgs, (ins UnitAttr:$one_shot)),
                                    reductionFormat, "(`one_shot` $one_shot^)?", "getReduction()"> {
  let summary = "start to reduce the ranks' inputs onto every rank";
  let description = [{
    Result i is the reduction of the ranks' inputs i. Completes at its wait.

    `one_shot`: every rank reads all inputs itself, in one round (small sums in symmetric memory). It is started and
    waited for like any other collective. Its wait says that the sum is there, and that all ranks have read this rank's
    input, so that it may be written again.

    Example:
    ```mlir
    %f = comm.all_reduce sum %x on @tp : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
    %g = comm.all_reduce scaled_sum scale 2.500000e-01 %y into %y on @tp : (memref<8xf32>) -> !comm.future<memref<8xf32>>
    ```

    Constraints: C1, C4, C5, C6 of `comm.all_gather`, C7 of `comm.reduce_scatter`, and
    - C3: result i has the shape of input i.
    - C8: `one_shot` is for `sum` only.
    - C9: `one_shot` does not write an input.
  }];
}

def Comm_AllToAllOp : Comm_StartOp<"all_to_all", "AllToAll",
    (ins Variadic<Index>:$input_splits, Variadic<Index>:$output_splits,
         DefaultValuedAttr<I64Attr, "0">:$split_dim, DefaultValuedAttr<I64Attr, "0">:$concat_dim,
         OptionalAttr<DenseI64ArrayAttr>:$static_input_splits, OptionalAttr<DenseI64ArrayAttr>:$static_output_splits), "",
    [{(`split` $split_dim^)? (`concat` $concat_dim^)?
      (`input_splits` custom<DynamicIndexList>($input_splits, $static_input_splits)^)?
      (`output_splits` custom<DynamicIndexList>($output_splits, $static_output_splits)^)?}], "std::nullopt", [{
    /// Whether the pieces have sizes of their own.
    bool hasSplits() { return getStaticInputSplits().has_value(); }
    /// Rows that go to, and come from, each rank of the group: attributes where they are constants. Empty without splits.
    ::llvm::SmallVector<::mlir::OpFoldResult> getMixedInputSplits();
    ::llvm::SmallVector<::mlir::OpFoldResult> getMixedOutputSplits();
  }]> {
  let summary = "start to exchange pieces between all ranks";
  let description = [{
    Input i is split along `split_dim` into one piece per rank; piece p goes to rank p, and the pieces received are
    concatenated along `concat_dim`. The pieces are equal, or as long as `input_splits` and `output_splits` say. A split
    is a constant or an index value, which may differ between ranks: rank p's input split for rank q has to be rank q's
    output split for rank p. The runtime checks this, and that the splits add up to the dimensions. Completes at its
    wait.

    Example:
    ```mlir
    %f = comm.all_to_all %x on @ep split 1 : (tensor<4x8xf32>) -> !comm.future<tensor<16x2xf32>>
    %g = comm.all_to_all %y on @tp input_splits [1, 3] output_splits [2, 2] : (tensor<4x8xf32>) -> !comm.future<tensor<4x8xf32>>
    %h = comm.all_to_all %y on @tp input_splits [%a, 3] output_splits [%b, %c] : (tensor<4x8xf32>) -> !comm.future<tensor<?x8xf32>>
    ```

    Constraints: C1, C4, C5, C6 of `comm.all_gather`, and
    - C2: `split_dim` and `concat_dim` are dimensions of every input.
    - C3: without splits, `split_dim` divides by the group's size, and result i is input i with `split_dim` divided and
      `concat_dim` multiplied by it (static sizes). With splits, result i is input i in all other dimensions.
    - C7: splits are both given or both not, have one non-negative entry per rank, and are for split_dim = concat_dim.
    - C8: the input splits add up to the input's dimension, the output splits to the result's. The verifier checks it
      where all splits of a list and the dimension are constants.
  }];
}

def Comm_BroadcastOp : Comm_StartOp<"broadcast", "Broadcast", (ins I64Attr:$root), "", "`root` $root"> {
  let summary = "start to copy the root's inputs to every rank";
  let description = [{
    Result i is input i of the group's rank `root`. Completes at its wait.

    Example:
    ```mlir
    %f = comm.broadcast %x on @dp root 0 : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
    ```

    Constraints: C1, C4, C5, C6 of `comm.all_gather`, C3 of `comm.all_reduce`, and
    - C7: `root` is a place in the group.
  }];
}

def Comm_ReduceOp : Comm_StartOp<"reduce", "Reduce", !con(reductionArgs, (ins I64Attr:$root)), reductionFormat,
                                 "`root` $root", "getReduction()"> {
  let summary = "start to reduce the ranks' inputs onto the root";
  let description = [{
    On the group's rank `root`, result i is the reduction of the ranks' inputs i; elsewhere it is undefined. Completes
    at its wait.

    Example:
    ```mlir
    %f = comm.reduce max %x on @dp root 1 : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
    ```

    Constraints: those of `comm.all_reduce` but C8, and
    - C8: `root` is a place in the group.
  }];
}

def Comm_GatherOp : Comm_StartOp<"gather", "Gather", (ins DefaultValuedAttr<I64Attr, "0">:$dim, I64Attr:$root), "",
                                 "`root` $root (`dim` $dim^)?"> {
  let summary = "start to concatenate the ranks' inputs on the root";
  let description = [{
    Like `comm.all_gather`, but the result is defined on the group's rank `root` alone. Completes at its wait.

    Example:
    ```mlir
    %f = comm.gather %x on @dp root 0 : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
    ```

    Constraints: those of `comm.all_gather`, and
    - C7: `root` is a place in the group.
  }];
}

def Comm_ScatterOp : Comm_StartOp<"scatter", "Scatter", (ins DefaultValuedAttr<I64Attr, "0">:$dim, I64Attr:$root), "",
                                  "`root` $root (`dim` $dim^)?"> {
  let summary = "start to scatter the root's inputs over the ranks";
  let description = [{
    Result i is this rank's piece, along `dim`, of the root's input i. Completes at its wait.

    Example:
    ```mlir
    %f = comm.scatter %x on @dp root 0 : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
    ```

    Constraints: C1, C2, C4, C5, C6 of `comm.all_gather`, C3 of `comm.reduce_scatter`, and
    - C7: `root` is a place in the group.
  }];
}

def Comm_PermuteOp : Comm_StartOp<"permute", "Permute", (ins DenseI64ArrayAttr:$pairs), "", "`pairs` $pairs"> {
  let summary = "start to send along source-target pairs";
  let description = [{
    `pairs` lists source, target, source, target, ...: places in the group. A rank that is no target receives zeros.
    Completes at its wait.

    Example:
    ```mlir
    %f = comm.permute %x on @pp pairs [0, 1, 1, 2, 2, 3] : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
    ```

    Constraints: C1, C4, C5, C6 of `comm.all_gather`, C3 of `comm.all_reduce`, and
    - C7: an even number of places, each in the group.
    - C8: no place is twice a source or twice a target.
  }];
}

def Comm_SendOp : Comm_StartOp<"send", "Send", (ins I64Attr:$peer, DefaultValuedAttr<I64Attr, "0">:$tag), "",
                               "`peer` $peer (`tag` $tag^)?"> {
  let summary = "start to send to one rank";
  let description = [{
    Sends the inputs to the group's rank `peer`, where a `comm.recv` with the same tag takes them. The future is empty:
    its wait says that the inputs may be written again.

    Example:
    ```mlir
    %f = comm.send %x on @pp peer 1 : (tensor<16xf32>) -> !comm.future<>
    ```

    Constraints: C6 of `comm.all_gather`, and
    - C1: no destinations and an empty future.
    - C5: tensors and memrefs do not mix.
    - C7: `peer` is a place in the group, `tag` is not negative.
  }];
}

def Comm_RecvOp : Comm_StartOp<"recv", "Recv", (ins I64Attr:$peer, DefaultValuedAttr<I64Attr, "0">:$tag), "",
                               "`peer` $peer (`tag` $tag^)?"> {
  let summary = "start to receive from one rank";
  let description = [{
    Receives the values of the future from the group's rank `peer`. Completes at its wait.

    Example:
    ```mlir
    %f = comm.recv on @pp peer 0 : () -> !comm.future<tensor<16xf32>>
    ```

    Constraints: C5 and C6 of `comm.all_gather`, and
    - C1: no inputs, and at least one value in the future.
    - C7: `peer` is a place in the group, `tag` is not negative.
  }];
}

def Comm_BarrierOp : Comm_StartOp<"barrier", "Barrier", (ins)> {
  let summary = "start to wait for all ranks of the group";
  let description = [{
    The wait of its (empty) future returns after every rank of the group has started the barrier.

    Example:
    ```mlir
    %f = comm.barrier on @dp : () -> !comm.future<>
    ```

    Constraints: C6 of `comm.all_gather`, and
    - C1: no inputs, no destinations and an empty future.
  }];
}

//===--------------------------------------------------------------------------------------===//
// Wait
//===--------------------------------------------------------------------------------------===//

def Comm_WaitOp : Comm_Op<"wait", [DeclareOpInterfaceMethods<InferTypeOpInterface>,
                                   DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
                                   DeclareOpInterfaceMethods<StorageOpInterface>,
                                   DeclareOpInterfaceMethods<BufferViewFlowOpInterface>]> {
  let summary = "wait for a collective and take its results";
  let description = [{
    Blocks its stream until the collective has ended, and gives the future's values. Repeated waits of one future are
    legal, give the same values, and fold within a block. On memrefs the buffers in flight are operands (`keeping`), so
    that nothing frees or reuses them before the wait; the results are the destinations.

    Example:
    ```mlir
    %full = comm.wait %f : !comm.future<tensor<16x8xf32>>
    %out = comm.wait %g keeping (%in, %dest : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
    ```

    Constraints:
    - C1: the results have the future's types.
  }];
  let arguments = (ins Comm_FutureType:$future, Variadic<AnyMemRef>:$inflight);
  let results = (outs Variadic<Comm_Data>:$values);
  let assemblyFormat = "$future (`keeping` ` ` `(` $inflight^ `:` type($inflight) `)`)? attr-dict `:` qualified(type($future))";
}

#endif // COMMSCHED_DIALECT_COMM_COMMCOLLECTIVEOPS
