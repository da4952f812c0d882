//===- CommDialect.h - The comm dialect -------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Includes everything of the dialect: attributes, types, interfaces and operations.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_DIALECT_COMM_COMMDIALECT_H
#define COMMSCHED_DIALECT_COMM_COMMDIALECT_H

#include "CommSched/Support/CollectiveKind.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/BufferViewFlowOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include <optional>

#include "CommSched/Dialect/Comm/CommAttrInterfaces.h.inc"
#include "CommSched/Dialect/Comm/CommEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "CommSched/Dialect/Comm/CommAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "CommSched/Dialect/Comm/CommTypes.h.inc"

#include "CommSched/Dialect/Comm/CommDialect.h.inc"

#include "CommSched/Dialect/Comm/CommOpInterfaces.h.inc"

namespace commsched::comm {

/// What is in flight: read and written by every start and every wait, so that generic passes neither remove, duplicate
/// nor reorder them. The project's own dependence analysis knows the real rules and does not use it.
struct InFlightResource : public mlir::SideEffects::Resource::Base<InFlightResource> {
  llvm::StringRef getName() final { return "comm.in_flight"; }
};

/// The storage of parameters that `comm.fsdp.copy` and `comm.resize_storage` change behind tensors.
struct ParameterStorageResource : public mlir::SideEffects::Resource::Base<ParameterStorageResource> {
  llvm::StringRef getName() final { return "comm.parameter_storage"; }
};

/// What the generated code of the operations calls.
namespace detail {
using EffectList = llvm::SmallVectorImpl<mlir::SideEffects::EffectInstance<mlir::MemoryEffects::Effect>>;

/// Reads the inputs, writes the destinations, reads and writes what is in flight.
void getStartEffects(llvm::MutableArrayRef<mlir::OpOperand> inputs, llvm::MutableArrayRef<mlir::OpOperand> dests,
                     EffectList &effects);

/// On memrefs: reads `sources` and writes `dests`. On tensors: reads the storage that `comm.fsdp.copy` and other
/// mutations write, so that no two readings of it are merged across a writing.
void addCopyEffects(llvm::MutableArrayRef<mlir::OpOperand> sources, llvm::MutableArrayRef<mlir::OpOperand> dests,
                    EffectList &effects);

/// `result` is new storage: never merged with that of an equal operation, for either may be written later.
void addAllocateEffect(mlir::OpResult result, EffectList &effects);

/// Tells the buffer view flow analysis which results refer to which operands' buffers.
void addStorageDependencies(StorageOpInterface op, const mlir::bufferization::RegisterDependenciesFn &add);

/// Checks what needs the group of a collective: that it exists, and what depends on its size. One symbol lookup.
llvm::LogicalResult verifyGroupUse(CollectiveOpInterface op, mlir::SymbolTableCollection &symbols);

/// Fails where tensors and memrefs are mixed; other types do not matter.
llvm::LogicalResult verifySameContainers(mlir::Operation *op, llvm::StringRef constraint, mlir::TypeRange first,
                                         mlir::TypeRange second);
} // namespace detail

} // namespace commsched::comm

#define GET_OP_CLASSES
#include "CommSched/Dialect/Comm/CommOps.h.inc"

namespace commsched::comm {

/// The group that a collective names, or null with no diagnostic. One symbol lookup.
GroupOp lookupGroup(CollectiveOpInterface collective, mlir::SymbolTableCollection &symbols);

/// Elements of a ranked tensor or memref; none where a size is dynamic or the product is beyond int64.
std::optional<int64_t> getStaticElements(mlir::Type type);

/// Bytes of a ranked tensor or memref: elements x element width, sub-byte types packed; none where a size is dynamic,
/// the element type has no width or the product is beyond int64.
std::optional<int64_t> getStaticBytes(mlir::Type type);

/// The bytes that a collective's cost is a function of, per rank: gathered bytes for (all-)gathers, input bytes for
/// everything else that sends, result bytes for a recv. Dynamic sizes count as `comm.bytes_hint` says, and as 0
/// without; saturates. O(operands).
int64_t getCollectiveBytes(CollectiveOpInterface collective);

} // namespace commsched::comm

#endif // COMMSCHED_DIALECT_COMM_COMMDIALECT_H
