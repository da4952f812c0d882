//===- CommFsdpOps.td - Copy-in, copy-out and parameter storage -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Fully sharded data parallelism packs small tensors into one buffer before a collective and unpacks the buffer after it.
// These operations represent the packing, so that passes can schedule it, merge it and estimate its cost.
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
    Packs the inputs into this rank's slice of a flat buffer for all ranks. The buffer is new, or the destination `into`.
    The inputs are flattened, converted to the buffer's element type, and packed in order. The results are the slice (a
    view of the buffer) and the buffer, as an in-place `comm.all_gather %slice into %buffer` needs them.

    With `as`, the buffer holds bytes: input k is converted to element type `as[k]` and packed byte for byte. Pieces are
    not padded, so a kernel must accept addresses that are not aligned to the element type.

    Example:
    ```mlir
    %slice, %buffer = comm.fsdp.all_gather_copy_in %a, %b on @dp
        : (tensor<2x2xf32>, tensor<6xf32>) -> (tensor<10xbf16>, tensor<40xbf16>)
    %bytes, %all = comm.fsdp.all_gather_copy_in %a, %b on @dp as [bf16, f32]
        : (tensor<2x2xf32>, tensor<6xf32>) -> (tensor<32xi8>, tensor<128xi8>)
    ```

    Constraints:
    - C1: There is at least one input. Slice and buffer are one-dimensional and have the same element type.
    - C2: The slice has as many elements as all inputs together. With `as`, it has as many elements as the inputs have
      bytes.
    - C3: The size of the buffer is the group's size times the size of the slice.
    - C4: The destination has the type of the buffer. On memrefs there is a destination. Tensors and memrefs are not mixed.
    - C5: `group` names a `comm.group`.
    - C6: `as` has one type per input: an integer or float of whole bytes. Slice and buffer then have elements of `i8`.
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
    The copy-out of a bucketed all-gather. The flat source holds the pieces of rank 0, then the pieces of rank 1, and so on;
    piece k has `sizes[k]` elements. Result k is piece number `members[k]` of every rank, in order of ranks, reshaped to the
    result's type. Without `members`, the results are all pieces in order; with it, a bucket may be unpacked piece by piece.
    A source of `i8` holds bytes: `sizes` counts bytes, and the results have any element types.

    Example:
    ```mlir
    %a, %b = comm.fsdp.split_with_sizes_copy %full sizes [4, 6] : (tensor<40xbf16>) -> (tensor<8x2xbf16>, tensor<24xbf16>)
    %c = comm.fsdp.split_with_sizes_copy %full sizes [4, 6] members [1] : (tensor<40xbf16>) -> tensor<24xbf16>
    %d, %e = comm.fsdp.split_with_sizes_copy %bytes sizes [8, 24] : (tensor<128xi8>) -> (tensor<8x2xbf16>, tensor<24xf32>)
    ```

    Constraints:
    - C1: The source is one-dimensional. The sizes are not negative. The source's size is a multiple of their sum.
    - C2: There is one result per member. The members are distinct numbers of pieces.
    - C3: Result k has as many elements as its pieces, and the element type of the source. If the source has elements of
      `i8`, result k has as many bytes as its pieces, and any element type of whole bytes.
    - C4: If destinations are given, there is one per result, of the same type. On memrefs there are destinations. Tensors
      and memrefs are not mixed.
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
    Result k consists of sizes[k] elements of the flat source, beginning at element sizes[0] + ... + sizes[k-1], reshaped
    to the result's type. The results are views: they share the source's storage, and no data is copied. A bucketed
    reduce-scatter or all-reduce ends with this operation.

    Example:
    ```mlir
    %a, %b = comm.fsdp.split_with_sizes %flat sizes [4, 6] : (tensor<10xf32>) -> (tensor<2x2xf32>, tensor<6xf32>)
    ```

    Constraints:
    - C1: The source is one-dimensional. The sizes are not negative and add up to the source's size.
    - C2: There is one result per size. Result k has sizes[k] elements of the source's element type. Tensors and memrefs
      are not mixed.
  }];
  let arguments = (ins Comm_Data:$source, DenseI64ArrayAttr:$sizes);
  let results = (outs Variadic<Comm_Data>:$pieces);
  let assemblyFormat = "$source `sizes` $sizes attr-dict `:` functional-type($source, $pieces)";
  let hasVerifier = 1;
}

def Comm_FsdpChunkCatOp : Comm_FsdpOp<"chunk_cat", [AttrSizedOperandSegments]> {
  let summary = "pack tensors, chunk by chunk, into one buffer";
  let description = [{
    The copy-in of a bucketed reduce-scatter. Every input is cut along dimension 0 into `chunks` equal pieces. If the
    dimension is not a multiple of `chunks`, zeros pad the last pieces. Row c of the result consists of piece c of every
    input, in order, flattened and converted to the result's element type. With one chunk, the result is the concatenation
    of the flattened inputs.

    Example:
    ```mlir
    %cat = comm.fsdp.chunk_cat %g0, %g1 chunks 4 : (tensor<8x2xbf16>, tensor<24xbf16>) -> tensor<40xf32>
    ```

    Constraints:
    - C1: There is at least one input. `chunks` is positive. The result is one-dimensional.
    - C2: The result has as many elements as all padded inputs together.
    - C3: The destination has the type of the result. On memrefs there is a destination. Tensors and memrefs are not mixed.
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
    Overwrites the storage of `dest` with `source`. `dest` is a parameter, or another value whose storage later operations
    read. Uses of `dest` after this operation, in program order, see the new contents.

    Example:
    ```mlir
    comm.fsdp.copy %full into %param : tensor<16x8xf32> into tensor<16x8xf32>
    ```

    Constraints:
    - C1: Source and destination have the same shape and element type. Tensors and memrefs are not mixed.
  }];
  let arguments = (ins Comm_Data:$source, Comm_Data:$dest);
  let assemblyFormat = "$source `into` $dest attr-dict `:` type($source) `into` type($dest)";
  let hasVerifier = 1;
}

def Comm_ResizeStorageOp : Comm_Op<"resize_storage", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
                                                      DeclareOpInterfaceMethods<StorageOpInterface>]> {
  let summary = "resize the storage of a parameter";
  let description = [{
    Sets the size of the storage of `value` to the given number of bytes. A program sets the full size before it copies the
    unsharded parameter into the storage, and 0 after the last use.

    Example:
    ```mlir
    comm.resize_storage %param to 512 : tensor<16x8xf32>
    ```

    Constraints:
    - C1: The size is not negative.
  }];
  let arguments = (ins Comm_Data:$value, I64Attr:$bytes);
  let assemblyFormat = "$value `to` $bytes attr-dict `:` type($value)";
  let hasVerifier = 1;
}

#endif // COMMSCHED_DIALECT_COMM_COMMFSDPOPS
