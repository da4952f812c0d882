//===- CommFsdpOps.td - Copy-in, copy-out and parameter storage -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Fully sharded data parallelism packs small tensors into one buffer before a collective and unpacks it after. These
// operations name the packing, so that it can be scheduled, merged and costed.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_COMMFSDPOPS
#define COMMSCHED_DIALECT_COMM_COMMFSDPOPS

include "CommSched/Dialect/Comm/CommAttrs.td"
include "CommSched/Dialect/Comm/CommTypes.td"
include "mlir/Dialect/Bufferization/IR/BufferViewFlowOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"

defvar bufferViewFlowDeclaration = [{
    void populateDependencies(::mlir::bufferization::RegisterDependenciesFn registerDependencies);
    bool mayBeTerminalBuffer(::mlir::Value value);
  }];

class Comm_FsdpOp<string mnemonic, list<Trait> traits = []>
    : Comm_Op<"fsdp." # mnemonic, [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
                                   DeclareOpInterfaceMethods<StorageOpInterface>,
                                   BufferViewFlowOpInterface] # traits> {
  let extraClassDeclaration = bufferViewFlowDeclaration;
  let extraClassDefinition = [{
    void $cppClass::populateDependencies(::mlir::bufferization::RegisterDependenciesFn registerDependencies) {
      ::commsched::comm::detail::addStorageDependencies(*this, registerDependencies);
    }
    bool $cppClass::mayBeTerminalBuffer(::mlir::Value value) {
      return !getAliasedOperand(::llvm::cast<::mlir::OpResult>(value).getResultNumber());
    }
  }];
}

def Comm_FsdpAllGatherCopyInOp : Comm_FsdpOp<"all_gather_copy_in", [AttrSizedOperandSegments,
                                             DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "pack shards into this rank's slice of a gather buffer";
  let description = [{
    Allocates a flat buffer for all ranks (or takes `into`), packs the inputs, flattened, converted to the buffer's
    element type and one after the other, into this rank's slice, and gives the slice (a view of the buffer) and the
    buffer: what an in-place `comm.all_gather %slice into %buffer` needs.

    With `as`, the buffer holds bytes: input k is converted to element type `as[k]` and packed byte for byte. Pieces are
    not padded, so a kernel has to expect addresses that do not fit the element type.

    Example:
    ```mlir
    %slice, %buffer = comm.fsdp.all_gather_copy_in %a, %b on @dp
        : (tensor<2x2xf32>, tensor<6xf32>) -> (tensor<10xbf16>, tensor<40xbf16>)
    %bytes, %all = comm.fsdp.all_gather_copy_in %a, %b on @dp as [bf16, f32]
        : (tensor<2x2xf32>, tensor<6xf32>) -> (tensor<32xi8>, tensor<128xi8>)
    ```

    Constraints:
    - C1: at least one input; slice and buffer are one-dimensional with the same element type.
    - C2: the slice holds the elements of all inputs together, or with `as` their bytes (static sizes).
    - C3: the buffer holds the group's size times the slice (static sizes).
    - C4: a destination has the buffer's type; on memrefs it is given; tensors and memrefs do not mix.
    - C5: the group exists.
    - C6: `as` has one type for each input, an integer or float of whole bytes; slice and buffer are of i8 then.
  }];
  let arguments = (ins Variadic<Comm_Data>:$inputs, Optional<Comm_Data>:$dest, FlatSymbolRefAttr:$group,
                       OptionalAttr<TypeArrayAttr>:$as);
  let results = (outs Comm_Data:$slice, Comm_Data:$buffer);
  let assemblyFormat = [{
    $inputs (`into` $dest^ `:` type($dest))? `on` $group (`as` $as^)? attr-dict `:` `(` type($inputs) `)` `->`
    `(` type($slice) `,` type($buffer) `)`
  }];
  let hasVerifier = 1;
}

def Comm_FsdpSplitWithSizesCopyOp : Comm_FsdpOp<"split_with_sizes_copy"> {
  let summary = "unpack a gathered buffer into tensors of their own";
  let description = [{
    The copy-out of a bucketed all-gather. The flat source holds, rank after rank, pieces of `sizes` elements; result k
    is the pieces number `members[k]` of all ranks, one after the other, reshaped to the result's type. `members` is
    all pieces in order where it is not given; a bucket may be unpacked piece by piece. A source of i8 holds bytes: `sizes`
    count them, and results of any element type take theirs.

    Example:
    ```mlir
    %a, %b = comm.fsdp.split_with_sizes_copy %full sizes [4, 6] : (tensor<40xbf16>) -> (tensor<8x2xbf16>, tensor<24xbf16>)
    %c = comm.fsdp.split_with_sizes_copy %full sizes [4, 6] members [1] : (tensor<40xbf16>) -> tensor<24xbf16>
    %d, %e = comm.fsdp.split_with_sizes_copy %bytes sizes [8, 24] : (tensor<128xi8>) -> (tensor<8x2xbf16>, tensor<24xf32>)
    ```

    Constraints:
    - C1: the source is one-dimensional; sizes are not negative; the source's size is a multiple of their sum.
    - C2: one result per member; members are distinct pieces.
    - C3: result k has as many elements as its pieces (static sizes) and the source's element type; from a source of i8,
      as many bytes and any element type of whole bytes.
    - C4: destinations are one per result and of its type; on memrefs they are given; tensors and memrefs do not mix.
  }];
  let arguments = (ins Comm_Data:$source, Variadic<Comm_Data>:$dests, DenseI64ArrayAttr:$sizes,
                       OptionalAttr<DenseI64ArrayAttr>:$members);
  let results = (outs Variadic<Comm_Data>:$pieces);
  let assemblyFormat = [{
    $source (`into` $dests^ `:` type($dests))? `sizes` $sizes (`members` $members^)? attr-dict `:`
    functional-type($source, $pieces)
  }];
  let hasVerifier = 1;
}

def Comm_FsdpSplitWithSizesOp : Comm_FsdpOp<"split_with_sizes"> {
  let summary = "view a packed buffer as its pieces";
  let description = [{
    Result k is elements [sizes[0] + ... + sizes[k-1], + sizes[k]) of the flat source, reshaped to the result's type. A
    view: nothing is copied, the results share the source's storage. What a bucketed reduce-scatter or all-reduce ends
    with.

    Example:
    ```mlir
    %a, %b = comm.fsdp.split_with_sizes %flat sizes [4, 6] : (tensor<10xf32>) -> (tensor<2x2xf32>, tensor<6xf32>)
    ```

    Constraints:
    - C1: the source is one-dimensional; sizes are not negative and add up to its size (static sizes).
    - C2: one result per size, with that many elements (static sizes) and the source's element type; tensors and memrefs
      do not mix.
  }];
  let arguments = (ins Comm_Data:$source, DenseI64ArrayAttr:$sizes);
  let results = (outs Variadic<Comm_Data>:$pieces);
  let assemblyFormat = "$source `sizes` $sizes attr-dict `:` functional-type($source, $pieces)";
  let hasVerifier = 1;
}

def Comm_FsdpChunkCatOp : Comm_FsdpOp<"chunk_cat", [AttrSizedOperandSegments]> {
  let summary = "pack tensors, chunk by chunk, into one buffer";
  let description = [{
    The copy-in of a bucketed reduce-scatter. Every input is cut along dimension 0 into `chunks` equal pieces (the last
    ones padded with zeros where it does not divide), and piece c of all inputs, flattened and converted to the result's
    element type, one after the other, make up row c of the result. With one chunk it is the concatenation of the
    flattened inputs.

    Example:
    ```mlir
    %cat = comm.fsdp.chunk_cat %g0, %g1 chunks 4 : (tensor<8x2xbf16>, tensor<24xbf16>) -> tensor<40xf32>
    ```

    Constraints:
    - C1: at least one input; chunks is positive; the result is one-dimensional.
    - C2: the result has the elements of all padded inputs (static sizes).
    - C3: a destination has the result's type; on memrefs it is given; tensors and memrefs do not mix.
  }];
  let arguments = (ins Variadic<Comm_Data>:$inputs, Optional<Comm_Data>:$dest, I64Attr:$chunks);
  let results = (outs Comm_Data:$result);
  let assemblyFormat = [{
    $inputs (`into` $dest^ `:` type($dest))? `chunks` $chunks attr-dict `:` `(` type($inputs) `)` `->` type($result)
  }];
  let hasVerifier = 1;
}

def Comm_FsdpCopyOp : Comm_FsdpOp<"copy"> {
  let summary = "write a tensor into a parameter's storage";
  let description = [{
    Overwrites the storage of `dest` with `source`. `dest` is a parameter (or any value whose storage matters): later
    uses of it, in program order, see the new contents.

    Example:
    ```mlir
    comm.fsdp.copy %full into %param : tensor<16x8xf32> into tensor<16x8xf32>
    ```

    Constraints:
    - C1: equal shapes and element types (dynamic sizes match any); tensors and memrefs do not mix.
  }];
  let arguments = (ins Comm_Data:$source, Comm_Data:$dest);
  let assemblyFormat = "$source `into` $dest attr-dict `:` type($source) `into` type($dest)";
  let hasVerifier = 1;
}

def Comm_ResizeStorageOp : Comm_Op<"resize_storage", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
                                                      DeclareOpInterfaceMethods<StorageOpInterface>]> {
  let summary = "resize the storage of a parameter";
  let description = [{
    Gives the storage of `value` the given number of bytes: all of them before a copy of the unsharded parameter into
    it, 0 after its last use.

    Example:
    ```mlir
    comm.resize_storage %param to 512 : tensor<16x8xf32>
    ```

    Constraints:
    - C1: the size is not negative.
  }];
  let arguments = (ins Comm_Data:$value, I64Attr:$bytes);
  let assemblyFormat = "$value `to` $bytes attr-dict `:` type($value)";
  let hasVerifier = 1;
}

#endif // COMMSCHED_DIALECT_COMM_COMMFSDPOPS
