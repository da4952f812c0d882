//===- CommCollectiveOps.td - Groups, starts and waits ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A collective is a start and a wait. Every start has the same form: inputs, optional destinations, a group, and a future
// of the values that the rank receives. Constraints that several starts share have one text, which each description
// repeats under the same label.
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
    Collectives name a group by its symbol. Each rank takes part in the replica group that contains it. Roots and peers are
    places within that replica group, not ranks.

    Example:
    ```mlir
    comm.group @dp #comm.iota<[8, 8] from [8, 8] transpose [1, 0]>
    comm.group @tp #comm.ranks<[[0, 1], [2, 3]]>
    ```

    Symbol DCE keeps a private group while an attribute (of a collective, `comm.hybrid`) or a type (`#comm.symmetric`) in its
    symbol table names it.

    Constraints:
    - C1: `replica_groups` is `#comm.ranks` or `#comm.iota`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$sym_visibility, AnyAttr:$replica_groups);
  let assemblyFormat = "(custom<Visibility>($sym_visibility)^)? $sym_name $replica_groups attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The partition.
    ReplicaGroupsInterface getGroups() { return ::llvm::cast<ReplicaGroupsInterface>(getReplicaGroups()); }
    /// Ranks of each group.
    int64_t getGroupSize() { return getGroups().getGroupSize(); }
    /// Returns true if no type names the group, so that symbol DCE may delete it once no attribute does. O(operations of
    /// the symbol table).
    bool canDiscardOnUseEmpty();
  }];
}

def Comm_RankOp : Comm_Op<"rank", [Pure]> {
  let summary = "the rank that runs the program";
  let description = [{
    Returns this rank's number among all ranks, from 0 to N-1: the number that `comm.group` uses. It never changes while the
    program runs. All ranks have to start the same collectives of a group in the same order, whatever is computed from it.

    Example:
    ```mlir
    %rank = comm.rank : index
    ```

    Constraints:
    - C1: The result is an index.
  }];
  let results = (outs Index:$rank);
  let assemblyFormat = "attr-dict `:` type($rank)";
}

//===--------------------------------------------------------------------------------------===//
// Starts
//===--------------------------------------------------------------------------------------===//

/// A start. `args` are its attributes. `prefix` and `suffix` are their assembly before the inputs and after the group.
/// `reduction` is a C++ expression of type std::optional<ReductionKind>: how the start combines values.
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

/// Constraints that several starts share.
defvar startC1 = [{
    - C1: There is at least one input, and the future has one value per input. If destinations are given, there is one per
      value.}];
defvar startC2 = [{
    - C2: `dim` is a dimension of every input.}];
defvar gatherC3 = [{
    - C3: Value i has the shape of input i with dimension `dim` multiplied by the group's size.}];
defvar scatterC3 = [{
    - C3: Value i has the shape of input i with dimension `dim` divided by the group's size, without remainder.}];
defvar sameShapeC3 = [{
    - C3: Value i has the shape of input i.}];
defvar startC4 = [{
    - C4: Value i has the element type of input i.}];
defvar startC5 = [{
    - C5: Destination i has the type of value i. On memrefs there are destinations. Tensors and memrefs are not mixed.}];
defvar startC6 = [{
    - C6: `group` names a `comm.group`.}];
defvar reductionC7 = [{
    - C7: `scale` is given exactly for `scaled_sum`. The elements are floating-point numbers, integers (not for `avg` and
      `scaled_sum`), complex numbers (not for `product`, `min` and `max`), or `i1` (only for `min`, which is "and", and
      `max`, which is "or").}];
defvar rootC7 = [{
    - C7: `root` is a place in the group.}];
defvar peerC7 = [{
    - C7: `peer` is a place in the group, and `tag` is not negative.}];

defvar reductionArgs = (ins Comm_ReductionAttr:$reduction, OptionalAttr<F64Attr>:$scale);
defvar reductionFormat = "`` $reduction (`scale` $scale^)?";

def Comm_AllGatherOp : Comm_StartOp<"all_gather", "AllGather", (ins DefaultValuedAttr<I64Attr, "0">:$dim), "",
                                    "(`dim` $dim^)?"> {
  let summary = "start to concatenate the ranks' inputs on every rank";
  let description = !strconcat([{
    Value i is the concatenation of the ranks' inputs i along `dim`, in group order. The collective completes at its wait.

    Example:
    ```mlir
    %f = comm.all_gather %shard on @dp : (tensor<4x8xf32>) -> !comm.future<tensor<16x8xf32>>
    %full = comm.wait %f : !comm.future<tensor<16x8xf32>>
    ```

    Constraints:}], startC1, startC2, gatherC3, startC4, startC5, startC6, "\n");
}

def Comm_ReduceScatterOp : Comm_StartOp<"reduce_scatter", "ReduceScatter",
    !con(reductionArgs, (ins DefaultValuedAttr<I64Attr, "0">:$dim)), reductionFormat, "(`dim` $dim^)?", "getReduction()"> {
  let summary = "start to reduce the ranks' inputs and scatter the result";
  let description = !strconcat([{
    Value i is this rank's piece, along `dim`, of the reduction of the ranks' inputs i. The collective completes at its wait.

    Example:
    ```mlir
    %f = comm.reduce_scatter avg %grad on @dp : (tensor<16x8xf32>) -> !comm.future<tensor<4x8xf32>>
    ```

    Constraints:}], startC1, startC2, scatterC3, startC4, startC5, startC6, reductionC7, "\n");
}

def Comm_AllReduceOp : Comm_StartOp<"all_reduce", "AllReduce", !con(reductionArgs, (ins UnitAttr:$one_shot)),
                                    reductionFormat, "(`one_shot` $one_shot^)?", "getReduction()"> {
  let summary = "start to reduce the ranks' inputs onto every rank";
  let description = !strconcat([{
    Value i is the reduction of the ranks' inputs i. The collective completes at its wait.

    With `one_shot`, every rank reads all inputs itself, in one round. This suits small sums in symmetric memory. The wait
    then guarantees that the sum is complete, and that all ranks have read this rank's input, so that later operations may
    write the input.

    Example:
    ```mlir
    %f = comm.all_reduce sum %x on @tp : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
    %g = comm.all_reduce scaled_sum scale 2.500000e-01 %y into %y on @tp : (memref<8xf32>) -> !comm.future<memref<8xf32>>
    ```

    Constraints:}], startC1, sameShapeC3, startC4, startC5, startC6, reductionC7, [{
    - C8: With `one_shot`, the reduction is `sum`.
    - C9: With `one_shot`, no destination is an input.
  }]);
}

def Comm_AllToAllOp : Comm_StartOp<"all_to_all", "AllToAll",
    (ins Variadic<Index>:$input_splits, Variadic<Index>:$output_splits,
         DefaultValuedAttr<I64Attr, "0">:$split_dim, DefaultValuedAttr<I64Attr, "0">:$concat_dim,
         OptionalAttr<DenseI64ArrayAttr>:$static_input_splits, OptionalAttr<DenseI64ArrayAttr>:$static_output_splits), "",
    [{(`split` $split_dim^)? (`concat` $concat_dim^)?
      (`input_splits` custom<DynamicIndexList>($input_splits, $static_input_splits)^)?
      (`output_splits` custom<DynamicIndexList>($output_splits, $static_output_splits)^)?}], "std::nullopt", [{
    /// Returns true if splits give the sizes of the pieces.
    bool hasSplits() { return getStaticInputSplits().has_value(); }
    /// Indexed by place in the group: rows sent to, and received from, that rank. Constants are attributes. Empty without
    /// splits.
    ::llvm::SmallVector<::mlir::OpFoldResult> getMixedInputSplits();
    ::llvm::SmallVector<::mlir::OpFoldResult> getMixedOutputSplits();
  }]> {
  let summary = "start to exchange pieces between all ranks";
  let description = !strconcat([{
    Input i is split along `split_dim` into one piece per rank. Rank p receives piece p of every rank and concatenates the
    pieces along `concat_dim`, in group order. Without splits, the pieces have equal sizes. With splits, `input_splits` and
    `output_splits` give the sizes of the pieces sent and received. A split is a constant or an index value, and may differ
    between ranks: rank p's input split for rank q must equal rank q's output split for rank p. The runtime checks this, and
    that the splits add up to the dimensions. The collective completes at its wait.

    Example with splits, for a group of two ranks. Rank 0 has rows a0 to a3, rank 1 has rows b0 to b3:

    | place | input | input splits | output splits | value |
    |---|---|---|---|---|
    | 0 | a0 a1 a2 a3 | [1, 3] | [1, 2] | a0 b0 b1 |
    | 1 | b0 b1 b2 b3 | [2, 2] | [3, 2] | a1 a2 a3 b2 b3 |

    In the code below, `%g` is the exchange of place 0. `%h` takes its splits at run time.

    Example:
    ```mlir
    %f = comm.all_to_all %x on @ep split 1 : (tensor<4x8xf32>) -> !comm.future<tensor<16x2xf32>>
    %g = comm.all_to_all %y on @tp input_splits [1, 3] output_splits [1, 2] : (tensor<4x8xf32>) -> !comm.future<tensor<3x8xf32>>
    %h = comm.all_to_all %y on @tp input_splits [%a, 3] output_splits [%b, %c] : (tensor<4x8xf32>) -> !comm.future<tensor<?x8xf32>>
    ```

    Constraints:}], startC1, [{
    - C2: `split_dim` and `concat_dim` are dimensions of every input.
    - C3: Without splits, value i has the shape of input i with `split_dim` divided, without remainder, and `concat_dim`
      multiplied by the group's size. With splits, value i differs from input i at most in `split_dim`.}],
    startC4, startC5, startC6, [{
    - C7: Either both lists of splits are given or neither. A list has one non-negative entry per rank. With splits,
      `split_dim` equals `concat_dim`.
    - C8: The input splits add up to the size of the input's `split_dim`, and the output splits to that of the value. The
      verifier checks this if all splits of a list and the size are constants.
  }]);
}

def Comm_BroadcastOp : Comm_StartOp<"broadcast", "Broadcast", (ins I64Attr:$root), "", "`root` $root"> {
  let summary = "start to copy the root's inputs to every rank";
  let description = !strconcat([{
    Value i is input i of the rank at place `root` of the group. The collective completes at its wait.

    Example:
    ```mlir
    %f = comm.broadcast %x on @dp root 0 : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
    ```

    Constraints:}], startC1, sameShapeC3, startC4, startC5, startC6, rootC7, "\n");
}

def Comm_ReduceOp : Comm_StartOp<"reduce", "Reduce", !con(reductionArgs, (ins I64Attr:$root)), reductionFormat,
                                 "`root` $root", "getReduction()"> {
  let summary = "start to reduce the ranks' inputs onto the root";
  let description = !strconcat([{
    At place `root` of the group, value i is the reduction of the ranks' inputs i. On the other ranks it is undefined. The
    collective completes at its wait.

    Example:
    ```mlir
    %f = comm.reduce max %x on @dp root 1 : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
    ```

    Constraints:}], startC1, sameShapeC3, startC4, startC5, startC6, reductionC7, [{
    - C8: `root` is a place in the group.
  }]);
}

def Comm_GatherOp : Comm_StartOp<"gather", "Gather", (ins DefaultValuedAttr<I64Attr, "0">:$dim, I64Attr:$root), "",
                                 "`root` $root (`dim` $dim^)?"> {
  let summary = "start to concatenate the ranks' inputs on the root";
  let description = !strconcat([{
    Value i is the concatenation of the ranks' inputs i along `dim`, in group order. It is defined only at place `root` of
    the group. The collective completes at its wait.

    Example:
    ```mlir
    %f = comm.gather %x on @dp root 0 : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
    ```

    Constraints:}], startC1, startC2, gatherC3, startC4, startC5, startC6, rootC7, "\n");
}

def Comm_ScatterOp : Comm_StartOp<"scatter", "Scatter", (ins DefaultValuedAttr<I64Attr, "0">:$dim, I64Attr:$root), "",
                                  "`root` $root (`dim` $dim^)?"> {
  let summary = "start to scatter the root's inputs over the ranks";
  let description = !strconcat([{
    Value i is this rank's piece, along `dim`, of the root's input i. The collective completes at its wait.

    Example:
    ```mlir
    %f = comm.scatter %x on @dp root 0 : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
    ```

    Constraints:}], startC1, startC2, scatterC3, startC4, startC5, startC6, rootC7, "\n");
}

def Comm_PermuteOp : Comm_StartOp<"permute", "Permute", (ins DenseI64ArrayAttr:$pairs), "", "`pairs` $pairs"> {
  let summary = "start to send along source-target pairs";
  let description = !strconcat([{
    `pairs` lists places in the group: source, target, source, target, and so on. The value of a target is the input of its
    source. The value of a rank that is not a target is zero. The collective completes at its wait.

    In the example, for a group of four ranks with inputs a, b, c and d:

    | place | input | value |
    |---|---|---|
    | 0 | a | 0 |
    | 1 | b | a |
    | 2 | c | b |
    | 3 | d | c |

    Example:
    ```mlir
    %f = comm.permute %x on @pp pairs [0, 1, 1, 2, 2, 3] : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
    ```

    Constraints:}], startC1, sameShapeC3, startC4, startC5, startC6, [{
    - C7: `pairs` has an even number of entries, and each is a place in the group.
    - C8: A place is a source at most once, and a target at most once.
  }]);
}

def Comm_SendOp : Comm_StartOp<"send", "Send", (ins I64Attr:$peer, DefaultValuedAttr<I64Attr, "0">:$tag), "",
                               "`peer` $peer (`tag` $tag^)?"> {
  let summary = "start to send to one rank";
  let description = !strconcat([{
    Sends the inputs to the rank at place `peer` of the group. A `comm.recv` with the same tag receives them there. The
    future is empty. Its wait guarantees that later operations may write the inputs.

    Example:
    ```mlir
    %f = comm.send %x on @pp peer 1 : (tensor<16xf32>) -> !comm.future<>
    ```

    Constraints:
    - C1: There are no destinations, and the future is empty.
    - C5: Tensors and memrefs are not mixed.}], startC6, peerC7, "\n");
}

def Comm_RecvOp : Comm_StartOp<"recv", "Recv", (ins I64Attr:$peer, DefaultValuedAttr<I64Attr, "0">:$tag), "",
                               "`peer` $peer (`tag` $tag^)?"> {
  let summary = "start to receive from one rank";
  let description = !strconcat([{
    Receives the values of the future from the rank at place `peer` of the group. The receive completes at its wait.

    Example:
    ```mlir
    %f = comm.recv on @pp peer 0 : () -> !comm.future<tensor<16xf32>>
    ```

    Constraints:
    - C1: There are no inputs, and the future has at least one value. If destinations are given, there is one per value.}],
    startC5, startC6, peerC7, "\n");
}

def Comm_BarrierOp : Comm_StartOp<"barrier", "Barrier", (ins)> {
  let summary = "start to synchronize all ranks of the group";
  let description = !strconcat([{
    The future is empty. Its wait returns after every rank of the group has started the barrier.

    Example:
    ```mlir
    %f = comm.barrier on @dp : () -> !comm.future<>
    ```

    Constraints:
    - C1: There are no inputs and no destinations, and the future is empty.}], startC6, "\n");
}

//===--------------------------------------------------------------------------------------===//
// Wait
//===--------------------------------------------------------------------------------------===//

def Comm_WaitOp : Comm_Op<"wait", [DeclareOpInterfaceMethods<InferTypeOpInterface>,
                                   DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
                                   DeclareOpInterfaceMethods<StorageOpInterface>,
                                   DeclareOpInterfaceMethods<BufferViewFlowOpInterface>]> {
  let summary = "wait for a collective and return its values";
  let description = [{
    Blocks its stream until the collective has ended, and returns the future's values. A future may have several waits; all
    return the same values, and canonicalization folds those in one block. On memrefs, the buffers in flight are operands
    (`keeping`), so that no pass frees or reuses them before the wait. The results are then the destinations.

    Example:
    ```mlir
    %full = comm.wait %f : !comm.future<tensor<16x8xf32>>
    %out = comm.wait %g keeping (%in, %dest : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
    ```

    Constraints:
    - C1: The operand is a future, and the results have the types of its values.
  }];
  let arguments = (ins Comm_FutureType:$future, Variadic<AnyMemRef>:$inflight);
  let results = (outs Variadic<Comm_Data>:$values);
  let assemblyFormat = "$future (`keeping` ` ` `(` $inflight^ `:` type($inflight) `)`)? attr-dict `:` qualified(type($future))";
}

#endif // COMMSCHED_DIALECT_COMM_COMMCOLLECTIVEOPS
