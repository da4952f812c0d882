//===- CommAttrs.td - Groups, costs, reductions, symmetric memory -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_COMMATTRS
#define COMMSCHED_DIALECT_COMM_COMMATTRS

include "CommSched/Dialect/Comm/CommBase.td"
include "CommSched/Dialect/Comm/CommInterfaces.td"
include "mlir/IR/EnumAttr.td"

def Comm_ReductionKind : I32Enum<"ReductionKind", "reduction kind", [
    I32EnumCase<"sum", 0>, I32EnumCase<"product", 1>, I32EnumCase<"min", 2>, I32EnumCase<"max", 3>,
    I32EnumCase<"avg", 4>, I32EnumCase<"scaled_sum", 5>]> {
  let cppNamespace = "::commsched::comm";
}

def Comm_ReductionAttr : EnumAttr<Comm_Dialect, Comm_ReductionKind, "reduction"> {
  let assemblyFormat = "$value";
}

def Comm_RanksAttr : Comm_Attr<"Ranks", "ranks", [DeclareAttrInterfaceMethods<ReplicaGroupsInterface>]> {
  let summary = "Replica groups as an explicit list";
  let description = [{
    Example: `#comm.ranks<[[0, 1], [2, 3]]>`.

    Constraints:
    - C1: There is at least one group, and no group is empty.
    - C2: All groups have the same size.
    - C3: The groups partition the ranks 0 to N-1: each rank appears exactly once.
  }];
  let parameters = (ins ArrayRefParameter<"int64_t", "the ranks, group after group">:$ranks, "int64_t":$groupSize);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Comm_IotaAttr : Comm_Attr<"Iota", "iota", [DeclareAttrInterfaceMethods<ReplicaGroupsInterface>]> {
  let summary = "Replica groups as a reshaped, transposed iota";
  let description = [{
    The ranks 0 to N-1 fill an array of shape `dims` row by row. `perm` permutes the axes of the array. The result, read
    row by row as `groups x size`, gives the groups. The text has one line for any number of ranks.

    Example: `#comm.iota<[8, 64] from [64, 8] transpose [1, 0]>` (8 groups of 64 ranks, with a stride of 8 between the
    ranks of a group); `#comm.iota<[1, 100000]>` (one group of all ranks).

    Constraints:
    - C1: `groups`, `size` and `dims` are positive. `groups` times `size` equals the product of `dims` and is below 2^31.
    - C2: `perm` is a permutation of the axes of `dims`.
  }];
  let parameters = (ins "int64_t":$groups, "int64_t":$size, ArrayRefParameter<"int64_t">:$dims,
                        ArrayRefParameter<"int64_t">:$perm);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Comm_CostAttr : Comm_Attr<"Cost", "cost"> {
  let summary = "Cost of an operation";
  let description = [{
    The discardable attribute `comm.cost` of any operation. The cost model derives a missing number from the operation's
    interfaces, the machine profile, or the operands and results. A measured `time` (ns) overrides the other numbers.
    `time_lo` and `time_hi` are its error bar, for reports; schedules do not depend on them.

    Example: `#comm.cost<flops = 2097152, bytes = 49152>`, `#comm.cost<time = 1500, workspace = 4096>`,
    `#comm.cost<time = 1500, time_lo = 1450, time_hi = 1620>`.

    Constraints:
    - C1: All numbers are non-negative.
    - C2: The error bar has both ends and contains `time`.
  }];
  let parameters = (ins
    OptionalParameter<"std::optional<int64_t>", "floating-point operations">:$flops,
    OptionalParameter<"std::optional<int64_t>", "bytes read and written">:$bytes,
    OptionalParameter<"std::optional<int64_t>", "bytes live only while the operation runs">:$workspace,
    OptionalParameter<"std::optional<int64_t>", "measured duration, ns">:$time,
    OptionalParameter<"std::optional<int64_t>", "lower end of the error bar of `time`, ns">:$time_lo,
    OptionalParameter<"std::optional<int64_t>", "upper end of the error bar of `time`, ns">:$time_hi);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Comm_SymmetricAttr : Comm_Attr<"Symmetric", "symmetric"> {
  let summary = "Memory space of registered, symmetric communication buffers";
  let description = [{
    A buffer of this space has the same offset on all ranks of the group and is registered for communication.

    Example: `memref<1024xf32, #comm.symmetric<@dp>>`.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$group);
  let assemblyFormat = "`<` $group `>`";
}

#endif // COMMSCHED_DIALECT_COMM_COMMATTRS
