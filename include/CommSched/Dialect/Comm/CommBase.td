//===- CommBase.td - The comm dialect ---------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The dialect itself and the classes that its attributes, types and operations derive from.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_COMMBASE
#define COMMSCHED_DIALECT_COMM_COMMBASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"

def Comm_Dialect : Dialect {
  let name = "comm";
  let cppNamespace = "::commsched::comm";
  let summary = "Asynchronous collectives, with the facts that a scheduler needs to hide them";
  let description = [{
    A collective is two operations. A *start* returns a `!comm.future` at once. A `comm.wait` blocks its stream until the
    data has arrived. Operations between the two can hide the collective. A schedule contains operations of any dialect;
    `comm.compute` represents an operation that has no dialect here.

    ### Neighbours

    ```
     torch.compile, FX graph     StableHLO, hand-written IR, ...         front ends
               |                            |
               +------------+---------------+
                            v
        comm starts and waits + operations of any dialect, on tensors
                            |   comm-schedule and other passes: order, buckets
                            |   comm-realize-buffers: destinations, symmetric memory
                            v
        comm starts and waits on memrefs                                 comm-bufferize, comm-plan-buffers
                            |
                            v
        calls of CommSched/Runtime/Runtime.h                             comm-to-llvm
                            |
               +------------+---------------+
               v            v               v
            threads        MPI             NCCL                          runtime backends
    ```

    A program on tensors can also leave the dialect as it came: the PyTorch front end applies the order and the buckets to
    its own graph.

    ### Life of a future

    - **On tensors**, a start without destinations allocates the storage of the future's values. The inputs and the values
      are in flight until the last wait of the future. The results of the wait share the storage of the values.
    - **On memrefs**, a start always has destinations. The inputs and the destinations are in flight until the last wait.
      The wait names them as operands (`keeping`), so that no pass frees or reuses them earlier. The results of the wait
      are the destinations.
    - **Across functions and blocks**, a future is an ordinary value: an argument or a result of a function, or an argument
      of a block. `comm.ready_ns` on a function's argument gives the time at which its data arrives.

    A future that does not leave its function needs a wait. `comm-verify` reports a future without a wait, a wait that no
    path reaches, and accesses to storage in flight.

    ### Constraints

    The description of each operation, type and attribute lists its constraints with the labels C1 to Cn. The label stands
    at the beginning of the verifier's message (`C2: 'dim' (1) is out of range for 'tensor<4xf32>'`) and in the name of the
    test (`@all_gather_c2_range`). A message without a label comes from the types of operands, results and attributes. A
    size constraint applies to static sizes; a dynamic size (`?`) matches any size.

    ### Discardable attributes

    The dialect defines these discardable attributes:

    | attribute | on | meaning |
    |---|---|---|
    | `comm.cost = #comm.cost<...>` | any operation | flops, bytes moved, workspace bytes, measured nanoseconds |
    | `comm.hybrid = @group` | any operation except starts and waits | the operation also occupies the group's communication lane (fused compute and collective) |
    | `comm.pinned` | any operation | the operation keeps its order relative to the other pinned operations |
    | `comm.unit = N : i64` | any operation | consecutive operations with the same number stay consecutive |
    | `comm.after_unit = N : i64` | operation with `comm.unit` | the operation's unit comes after the nearest preceding unit N |
    | `comm.stream = N : i64` | operation that does work on one stream | the stream that runs it, from 0 to 63; stream 0 without the attribute |
    | `comm.bytes_hint = array<i64: ...>` | any operation | bytes of each result, for dynamic sizes |
    | `comm.split = [array<i64: ...>, ...]` | any operation | the ways to split the operation: one dimension per operand, then one per result; -1 for a whole operand, and for a result that is the sum of what the parts give |
    | `comm.rows = array<i64: first, total>` | any operation | the operation computes a part of the rows of a larger one, and the place matters (docs/guide/Strands.md) |
    | `comm.donated` | argument of a function | the argument's storage may be freed after its last use |
    | `comm.bytes_hint = N : i64` | argument of a function | bytes of the argument, for a dynamic size |
    | `comm.ready_ns = N : i64` | future as argument of a function | time in nanoseconds at which the data arrives (default 0) |
    | `comm.symmetric = array<i1: ...>` | collective | marks the inputs, then the outputs, that shall be in symmetric memory; passes set and apply it |
    | `comm.variant = "..."` | start, not of a one-shot sum | the way to carry out the collective: `"ring-N"` on N thread blocks, `"copy-engine"`, `"symmetric"` or `"symmetric-N"`; without the attribute the library chooses (docs/guide/MachineModel.md) |
    | `comm.numerics = {class = "...", collectives = N : i64, error = X : f64, gathers = M : i64}` | function | the class of changes to results; of sums that are computed in fewer bits, their number and the largest bound for their errors; the number of gathers in 8 bits. `comm-split-strands`, `comm-move-casts` and `comm-quantise-gathers` set it |
    | `comm.schedule_signature = "..."` | function | hash of the sequence of collectives; passes set it |

    ### Streams

    A stream runs its operations in the order of the program. Operations on different streams run at the same time, unless
    an event orders them. Without `comm.stream` everything is on stream 0, so such a program has one order. A number says
    nothing about the kind of work: a start on stream 1 is issued there, and the collective begins when the operations
    before it on stream 1 have ended; it does not hold them up, because it occupies the lane of its group. A `comm.wait`
    makes its stream wait for the collective. For all other dependences between streams there are `comm.record` and
    `comm.await_event`. Views, constants and allocations do no work and are on no stream.

    Every block begins on stream 0: another stream waits for an event of stream 0 before its first operation. Every block
    ends on stream 0: it waits for the operations of the other streams. `comm-verify` reports a dependence between streams
    that no event covers. Control flow and calls are always on stream 0. `comm-multi-stream` chooses streams and events.

    Any other attribute that begins with `comm.` is an error, so that a misspelt attribute does not pass unnoticed.

    Why futures, why a start and a wait, and why a resource of its own: see [docs/contributing/Rationale.md](../contributing/Rationale.md).
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasCanonicalizer = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let discardableAttrs = (ins
    "::commsched::comm::CostAttr":$cost,
    "::mlir::FlatSymbolRefAttr":$hybrid,
    "::mlir::UnitAttr":$pinned,
    "::mlir::IntegerAttr":$unit,
    "::mlir::IntegerAttr":$after_unit,
    "::mlir::IntegerAttr":$stream,
    "::mlir::DenseI64ArrayAttr":$bytes_hint,
    "::mlir::ArrayAttr":$split,
    "::mlir::DenseI64ArrayAttr":$rows,
    "::mlir::DenseBoolArrayAttr":$symmetric,
    "::mlir::StringAttr":$variant,
    "::mlir::DictionaryAttr":$numerics,
    "::mlir::StringAttr":$schedule_signature
  );
  let extraClassDeclaration = [{
    /// Names of the argument attributes.
    static constexpr ::llvm::StringLiteral kDonatedAttrName = "comm.donated";
    static constexpr ::llvm::StringLiteral kBytesHintAttrName = "comm.bytes_hint";
    static constexpr ::llvm::StringLiteral kReadyAttrName = "comm.ready_ns";
    /// Names of the operation attributes.
    static constexpr ::llvm::StringLiteral kCostAttrName = "comm.cost";
    static constexpr ::llvm::StringLiteral kHybridAttrName = "comm.hybrid";
    static constexpr ::llvm::StringLiteral kPinnedAttrName = "comm.pinned";
    static constexpr ::llvm::StringLiteral kUnitAttrName = "comm.unit";
    static constexpr ::llvm::StringLiteral kAfterUnitAttrName = "comm.after_unit";
    static constexpr ::llvm::StringLiteral kStreamAttrName = "comm.stream";
    static constexpr ::llvm::StringLiteral kSplitAttrName = "comm.split";
    static constexpr ::llvm::StringLiteral kRowsAttrName = "comm.rows";
    static constexpr ::llvm::StringLiteral kSymmetricAttrName = "comm.symmetric";
    static constexpr ::llvm::StringLiteral kVariantAttrName = "comm.variant";
    static constexpr ::llvm::StringLiteral kNumericsAttrName = "comm.numerics";
    static constexpr ::llvm::StringLiteral kSignatureAttrName = "comm.schedule_signature";

    /// Streams are numbered from 0 to kMaxStreams - 1 in `comm.stream`: analyses keep a few bytes per operation and
    /// stream. Devices run fewer kernels at once.
    static constexpr int64_t kMaxStreams = 64;

  private:
    void registerAttributes();
    void registerTypes();
    void registerOps();

  public:
  }];
}

class Comm_Type<string name, string typeMnemonic, list<Trait> traits = []> : TypeDef<Comm_Dialect, name, traits> {
  let mnemonic = typeMnemonic;
}

class Comm_Attr<string name, string attrMnemonic, list<Trait> traits = []> : AttrDef<Comm_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

class Comm_Op<string mnemonic, list<Trait> traits = []> : Op<Comm_Dialect, mnemonic, traits>;

#endif // COMMSCHED_DIALECT_COMM_COMMBASE
