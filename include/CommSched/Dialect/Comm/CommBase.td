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
  let summary = "Asynchronous collectives, and what a scheduler has to know to hide them";
  let description = [{
    A collective is two operations: a *start*, which returns a `!comm.future` at once, and a `comm.wait`, which blocks
    its stream until the data is there. Whatever stands between the two can hide the collective. Any operation of any
    dialect takes part in a schedule; `comm.compute` stands for operations that have no dialect.

    Discardable attributes that the dialect defines:

    | attribute | on | meaning |
    |---|---|---|
    | `comm.cost = #comm.cost<...>` | any operation | flops, bytes moved, workspace bytes, measured nanoseconds |
    | `comm.hybrid = @group` | any operation | also occupies the group's communication lane (fused compute and collective) |
    | `comm.pinned` | any operation | keeps its order relative to the other pinned operations |
    | `comm.unit = N : i64` | any operation | consecutive operations with the same number stay consecutive |
    | `comm.after_unit = N : i64` | operation with `comm.unit` | its unit comes after the nearest unit N in front of it |
    | `comm.bytes_hint = array<i64: ...>` | any operation | bytes of each result, for dynamic sizes |
    | `comm.donated` | argument of a function | freed after its last use |
    | `comm.bytes_hint = N : i64` | argument of a function | its bytes, for a dynamic size |
    | `comm.ready_ns = N : i64` | argument of a function | when an in-flight future's data is there (default 0) |
    | `comm.symmetric = array<i1: ...>` | collective | which inputs, then outputs, are to be in symmetric memory; set and carried out by passes |
    | `comm.schedule_signature = "..."` | function | hash of the sequence of collectives, stamped by the passes |

    Any other `comm.` attribute is an error, so that a misspelt one is not silently without effect.
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
    "::mlir::DenseI64ArrayAttr":$bytes_hint,
    "::mlir::DenseBoolArrayAttr":$symmetric,
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
    static constexpr ::llvm::StringLiteral kSymmetricAttrName = "comm.symmetric";
    static constexpr ::llvm::StringLiteral kSignatureAttrName = "comm.schedule_signature";

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
