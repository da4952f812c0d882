//===- CostModels.h - The cost models of upstream operations ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One function per family of dialects, each in a file of its own.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_ANALYSIS_COSTS_COSTMODELS_H
#define COMMSCHED_LIB_ANALYSIS_COSTS_COSTMODELS_H

#include "CommSched/Analysis/Costs/CostInterface.h"
#include "mlir/IR/DialectRegistry.h"

namespace commsched::detail {

/// Operations that a transcendental function counts. On NVIDIA GPUs of compute capability 8 and 9, a multiprocessor
/// completes 16 special functions per cycle, and 128 fused multiply-adds of two operations each (CUDA C++ Programming
/// Guide, arithmetic instructions).
inline constexpr int64_t kTranscendentalFlops = 16;

/// An external model: a function of the operation gives the work.
template <typename Op, OpWork (*work)(Op, const OperationCosts &)>
struct FunctionModel : CostOpInterface::ExternalModel<FunctionModel<Op, work>, Op> {
  OpWork getWork(mlir::Operation *op, const OperationCosts &costs) const { return work(llvm::cast<Op>(op), costs); }
};

/// Attaches `work` to operation `Op`.
template <typename Op, OpWork (*work)(Op, const OperationCosts &)> void attach(mlir::MLIRContext *context) {
  Op::template attachInterface<FunctionModel<Op, work>>(*context);
}

/// An external model: a function of any operation gives the work.
template <typename Op, OpWork (*work)(mlir::Operation *, const OperationCosts &)>
struct GenericModel : CostOpInterface::ExternalModel<GenericModel<Op, work>, Op> {
  OpWork getWork(mlir::Operation *op, const OperationCosts &costs) const { return work(op, costs); }
};

/// Attaches `work` to all operations `Ops`.
template <OpWork (*work)(mlir::Operation *, const OperationCosts &), typename... Ops>
void attachToAll(mlir::MLIRContext *context) {
  (Ops::template attachInterface<GenericModel<Ops, work>>(*context), ...);
}

/// Arith and math.
void registerArithCostModels(mlir::DialectRegistry &registry);
void registerBufferizationCostModels(mlir::DialectRegistry &registry);
void registerFuncCostModels(mlir::DialectRegistry &registry);
void registerLinalgCostModels(mlir::DialectRegistry &registry);
void registerMemRefCostModels(mlir::DialectRegistry &registry);
void registerScfCostModels(mlir::DialectRegistry &registry);
void registerTensorCostModels(mlir::DialectRegistry &registry);
void registerTosaCostModels(mlir::DialectRegistry &registry);
void registerVectorCostModels(mlir::DialectRegistry &registry);

} // namespace commsched::detail

#endif // COMMSCHED_LIB_ANALYSIS_COSTS_COSTMODELS_H
