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
  let description = "A partition of the ranks 0 to N-1 into groups of equal size.";
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
    The start of a collective. A start reads `inputs`, writes `dests`, and returns a future at once. Without destinations
    it writes new storage: one tensor per value of the future. Inputs and outputs are in use until the last wait of the
    future.
  }];
  let methods = [
    InterfaceMethod<"The kind of the collective.", "::commsched::CollectiveKind", "getCollectiveKind">,
    InterfaceMethod<"The symbol of its `comm.group`.", "::mlir::FlatSymbolRefAttr", "getGroupAttr">,
    InterfaceMethod<"The operands that this rank sends.", "::mlir::OperandRange", "getCollectiveInputs">,
    InterfaceMethod<"The destinations: none, or one per value of the future.", "::mlir::OperandRange",
                    "getCollectiveDests">,
    InterfaceMethod<"The future.", "::mlir::Value", "getCollectiveFuture">,
    InterfaceMethod<"The reduction that combines the values; none for kinds that only move data.",
                    "std::optional<::commsched::comm::ReductionKind>", "getCollectiveReduction">,
  ];
  let extraSharedClassDeclaration = [{
    /// Returns true for a send, a receive, and a permute (pairs of both).
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
    Describes how an operation on tensors uses the storage of its operands, which types and memory effects do not tell.
    Operands and results are numbered over the whole operation.
  }];
  let methods = [
    InterfaceMethod<"The operand whose storage result `result` shares (as a view, or written in place); "
                    "none if the result has new storage.", "std::optional<unsigned>", "getAliasedOperand", (ins "unsigned":$result)>,
    InterfaceMethod<"Returns true if the operation writes the storage of operand `operand`.", "bool", "mutatesOperand",
                    (ins "unsigned":$operand)>,
  ];
}

#endif // COMMSCHED_DIALECT_COMM_COMMINTERFACES
