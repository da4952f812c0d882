//===- CostInterface.h - Interface for the cost of an operation -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// An operation with this interface tells the cost model how much it computes and moves. lib/Analysis/Costs has the
// models of upstream operations, one file per dialect.
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

/// The work of one execution of an operation.
struct OpWork {
  /// Operations on `element`s, executed by `units`. A fused multiply-add counts as two.
  int64_t flops = 0;
  ElementType element = ElementType::F32;
  ComputeUnits units = ComputeUnits::Vector;
  /// The shape of the one matrix product that the work consists of, if it is one of known shape.
  ProductShape product;
  /// Bytes moved between memory and the processor.
  Bytes bytesRead = 0, bytesWritten = 0;
  /// Bytes that are live only while the operation runs.
  Bytes workspace = 0;
  /// True if the results are views of operands, so that nothing runs.
  bool isView = false;
  /// True for a part of the surrounding kernel: scalars, and loops over them. Within a region it pays no launch of its
  /// own.
  bool inlined = false;
  /// Time of the parts that are kernels of their own, ns. It is added to the roofline of the rest.
  Ns time = 0;
  /// True if everything inside is known: all trip counts, and a model for each operation.
  bool known = true;

  static OpWork view() {
    OpWork work;
    work.isView = true;
    return work;
  }
  /// A kernel that moves `bytes` and computes nothing significant.
  static OpWork copy(Bytes read, Bytes written) {
    OpWork work;
    work.bytesRead = read;
    work.bytesWritten = written;
    return work;
  }
  Bytes bytes() const;
};

/// The element type of a shaped or scalar type, in the terms of machine profiles.
ElementType elementTypeOf(mlir::Type type);

/// Bytes of a tensor or memref: from its type, or else from its `comm.bytes_hint`, or else 0. O(1).
Bytes bytesOf(mlir::Value value);
/// Bytes of all tensors and memrefs among `values`.
Bytes bytesOf(mlir::ValueRange values);

/// Elements of a shaped type, 1 for a scalar; 0 if a dimension is dynamic.
int64_t elementsOf(mlir::Type type);

/// Operations per element of an arithmetic operation (arith, math); 0 for casts, constants and index arithmetic.
int64_t flopsPerElement(mlir::Operation *op);

/// Attaches the cost models of arith, bufferization, func, linalg, math, memref, scf, tensor, TOSA and vector
/// operations. A model attaches when its dialect is loaded.
void registerCostModels(mlir::DialectRegistry &registry);

} // namespace commsched

#include "CommSched/Analysis/CostInterface.h.inc"

#endif // COMMSCHED_ANALYSIS_COSTS_COSTINTERFACE_H
