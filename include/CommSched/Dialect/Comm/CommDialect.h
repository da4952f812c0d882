//===- CommDialect.h - The comm dialect -------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Includes all of the dialect: attributes, types, interfaces and operations.
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

/// The collectives in flight. Every start and every wait reads and writes this resource, so that generic passes neither
/// remove, duplicate nor reorder them. The project's dependence analysis knows the exact rules and ignores the
/// resource.
struct InFlightResource : public mlir::SideEffects::Resource::Base<InFlightResource> {
  llvm::StringRef getName() final { return "comm.in_flight"; }
};

/// The storage of parameters that `comm.fsdp.copy` and `comm.resize_storage` change behind tensors.
struct ParameterStorageResource : public mlir::SideEffects::Resource::Base<ParameterStorageResource> {
  llvm::StringRef getName() final { return "comm.parameter_storage"; }
};

/// Helpers that the generated code of the operations calls.
namespace detail {
using EffectList = llvm::SmallVectorImpl<mlir::SideEffects::EffectInstance<mlir::MemoryEffects::Effect>>;

/// Adds the effects of a start: it reads the inputs, writes the destinations, and reads and writes InFlightResource.
void getStartEffects(llvm::MutableArrayRef<mlir::OpOperand> inputs, llvm::MutableArrayRef<mlir::OpOperand> dests,
                     EffectList &effects);

/// Adds the effects of a copy. On memrefs it reads `sources` and writes `dests`. On tensors it reads
/// ParameterStorageResource, which `comm.fsdp.copy` and other mutations write, so that no pass merges a read before a
/// mutation with a read after it.
void addCopyEffects(llvm::MutableArrayRef<mlir::OpOperand> sources, llvm::MutableArrayRef<mlir::OpOperand> dests,
                    EffectList &effects);

/// Adds the allocation of `result`. No pass then merges it with the result of an equal operation, which matters because
/// a later operation may write either one.
void addAllocateEffect(mlir::OpResult result, EffectList &effects);

/// Registers which results refer to which operands' buffers with the buffer view flow analysis.
void addStorageDependencies(StorageOpInterface op, const mlir::bufferization::RegisterDependenciesFn &add);

/// Checks that a collective's group exists, and the constraints on the group's size. One symbol lookup.
llvm::LogicalResult verifyGroupUse(CollectiveOpInterface op, mlir::SymbolTableCollection &symbols);

/// Fails if the types contain both tensors and memrefs. Ignores other types.
llvm::LogicalResult verifySameContainers(mlir::Operation *op, llvm::StringRef constraint, mlir::TypeRange first,
                                         mlir::TypeRange second);
} // namespace detail

} // namespace commsched::comm

#define GET_OP_CLASSES
#include "CommSched/Dialect/Comm/CommOps.h.inc"

namespace commsched::comm {

/// The group that a collective names, or null without a diagnostic. One symbol lookup.
GroupOp lookupGroup(CollectiveOpInterface collective, mlir::SymbolTableCollection &symbols);

/// Returns true if one stream can run `op`, so that `comm.stream` is allowed on it. Terminators, symbols and the
/// anchors of streams have no stream of their own. Control flow and calls are on stream 0; what they contain has its
/// own streams.
bool runsOnOneStream(mlir::Operation *op);

/// Elements of a ranked tensor or memref; none if a size is dynamic or the product exceeds int64_t.
std::optional<int64_t> getStaticElements(mlir::Type type);

/// Bytes of a ranked tensor or memref: elements x element width, with sub-byte types packed. None if a size is dynamic,
/// the element type has no width, or the product exceeds int64_t.
std::optional<int64_t> getStaticBytes(mlir::Type type);

/// The bytes per rank that determine a collective's cost: the gathered bytes of an all-gather or gather, the result
/// bytes of a recv, the input bytes of all others. A dynamic size counts as its `comm.bytes_hint`, or as 0 without a
/// hint. The sum saturates. O(operands).
int64_t getCollectiveBytes(CollectiveOpInterface collective);

} // namespace commsched::comm

#endif // COMMSCHED_DIALECT_COMM_COMMDIALECT_H
