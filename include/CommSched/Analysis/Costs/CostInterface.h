//===- CostInterface.h - What an operation does, for costing it -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The interface by which an operation tells the cost model how much it computes and moves, and the models of upstream
// operations: one file per dialect in lib/Analysis.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_COSTS_COSTINTERFACE_H
#define COMMSCHED_ANALYSIS_COSTS_COSTINTERFACE_H

#include "CommSched/Machine/CostModel.h"
#include "mlir/IR/OpDefinition.h"

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace commsched {

class OperationCosts;

/// What one execution of an operation does.
struct OpWork {
  /// Operations on `element`s, by `units`. A fused multiply-add is two.
  int64_t flops = 0;
  ElementType element = ElementType::F32;
  ComputeUnits units = ComputeUnits::Vector;
  /// Bytes that it moves between memory and the processor.
  Bytes bytesRead = 0, bytesWritten = 0;
  /// Bytes that are live only while it runs.
  Bytes workspace = 0;
  /// The results are views of operands: nothing runs.
  bool isView = false;
  /// Part of the kernel around it: scalars, and the loops over them. It pays no launch of its own within a region.
  bool inlined = false;
  /// What parts that are kernels of their own take, ns: added to the roofline of the rest.
  Ns time = 0;
  /// Whether everything inside is known: trip counts, operations without a model.
  bool known = true;

  static OpWork view() {
    OpWork work;
    work.isView = true;
    return work;
  }
  /// A kernel that moves this much and computes nothing worth counting.
  static OpWork copy(Bytes read, Bytes written) {
    OpWork work;
    work.bytesRead = read;
    work.bytesWritten = written;
    return work;
  }
  Bytes bytes() const;
};

/// The element type of a shaped or scalar type as profiles tell them apart.
ElementType elementTypeOf(mlir::Type type);

/// Bytes of a tensor or memref: of its type, else of its `comm.bytes_hint`, else 0. O(1).
Bytes bytesOf(mlir::Value value);
/// Bytes of all tensors and memrefs among `values`.
Bytes bytesOf(mlir::ValueRange values);

/// Elements of a shaped type, 1 of a scalar; 0 where a dimension is dynamic.
int64_t elementsOf(mlir::Type type);

/// Operations per element of an arithmetic operation (arith, math): 0 of casts, constants and index arithmetic.
int64_t flopsPerElement(mlir::Operation *op);

/// Attaches the cost models of arith, bufferization, func, linalg, math, memref, scf, tensor and vector operations.
/// They attach when a dialect is loaded.
void registerCostModels(mlir::DialectRegistry &registry);

} // namespace commsched

#include "CommSched/Analysis/CostInterface.h.inc"

#endif // COMMSCHED_ANALYSIS_COSTS_COSTINTERFACE_H
