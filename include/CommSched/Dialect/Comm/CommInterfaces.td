//===- CommInterfaces.td - Collectives, storage, replica groups -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_COMMINTERFACES
#define COMMSCHED_DIALECT_COMM_COMMINTERFACES

include "mlir/IR/OpBase.td"

def ReplicaGroupsInterface : AttrInterface<"ReplicaGroupsInterface"> {
  let cppNamespace = "::commsched::comm";
  let description = "A partition of the ranks 0..N-1 into groups of equal size.";
  let methods = [
    InterfaceMethod<"Number of groups.", "int64_t", "getNumGroups">,
    InterfaceMethod<"Ranks of each group.", "int64_t", "getGroupSize">,
    InterfaceMethod<"The rank at a place of a group. O(number of axes).", "int64_t", "getRank",
                    (ins "int64_t":$group, "int64_t":$index)>,
  ];
  let extraSharedClassDeclaration = [{
    /// Ranks of all groups together.
    int64_t getWorldSize() const { return $_attr.getNumGroups() * $_attr.getGroupSize(); }
  }];
}

def CollectiveOpInterface : OpInterface<"CollectiveOpInterface"> {
  let cppNamespace = "::commsched::comm";
  let description = [{
    The start of a collective. It reads `inputs`, writes `dests` (or new storage, one tensor per element of the future)
    and returns a future at once. Inputs and outputs are in use until the last wait of the future.
  }];
  let methods = [
    InterfaceMethod<"What it does.", "::commsched::CollectiveKind", "getCollectiveKind">,
    InterfaceMethod<"The symbol of its `comm.group`.", "::mlir::FlatSymbolRefAttr", "getGroupAttr">,
    InterfaceMethod<"What this rank sends.", "::mlir::OperandRange", "getCollectiveInputs">,
    InterfaceMethod<"Where the results go: empty, or one per element of the future.", "::mlir::OperandRange",
                    "getCollectiveDests">,
    InterfaceMethod<"The future.", "::mlir::Value", "getCollectiveFuture">,
    InterfaceMethod<"How values are combined; none for kinds that only move data.",
                    "std::optional<::commsched::comm::ReductionKind>", "getCollectiveReduction">,
  ];
  let extraSharedClassDeclaration = [{
    /// Whether it is a send or a receive (or a permute: pairs of both).
    bool isPointToPoint() {
      ::commsched::CollectiveKind kind = $_op.getCollectiveKind();
      return kind == ::commsched::CollectiveKind::Send || kind == ::commsched::CollectiveKind::Recv ||
             kind == ::commsched::CollectiveKind::Permute;
    }
  }];
}

def StorageOpInterface : OpInterface<"StorageOpInterface"> {
  let cppNamespace = "::commsched::comm";
  let description = [{
    How an operation treats the storage of its operands where types and memory effects do not say it (tensors).
    Operands and results are counted over the whole operation.
  }];
  let methods = [
    InterfaceMethod<"The operand whose storage result `result` has (a view of it, or its storage written in place); "
                    "none for new storage.", "std::optional<unsigned>", "getAliasedOperand", (ins "unsigned":$result)>,
    InterfaceMethod<"Whether the storage of operand `operand` is written.", "bool", "mutatesOperand",
                    (ins "unsigned":$operand)>,
  ];
}

#endif // COMMSCHED_DIALECT_COMM_COMMINTERFACES
