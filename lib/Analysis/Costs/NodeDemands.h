//===- NodeDemands.h - Demands of operations on a device's resources --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Finds the demands of operations for the loader: which of them are matrix products, and how much memory they move.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_ANALYSIS_COSTS_NODEDEMANDS_H
#define COMMSCHED_LIB_ANALYSIS_COSTS_NODEDEMANDS_H

#include "CommSched/Analysis/Costs/MatrixProducts.h"
#include "CommSched/Machine/ContentionModel.h"

namespace commsched::detail {

/// Demands of the operations of one block.
class NodeDemands {
public:
  /// Keeps references to `costs` and its models.
  explicit NodeDemands(const OperationCosts &costs)
      : costs(costs), model(costs.contention()), products(costs), contends(model.any()) {}

  /// Whether the machine has resources that activities share.
  bool any() const { return contends; }

  /// A kernel that takes `time` ns. O(nested operations).
  Demand ofKernel(mlir::Operation *op, Ns time);
  /// A kernel of a bucket.
  Demand ofCopy() const { return model.ofCopy(); }
  /// A collective over `bytes` that takes `time` ns, carried out as its `comm.variant` says.
  Demand ofCollective(comm::CollectiveOpInterface start, Bytes bytes, Ns time) const {
    if (const CollectiveVariant *variant = costs.variantOf(start))
      return ofVariant(*variant, start, bytes, time);
    return model.ofCollective(start.getCollectiveKind(), bytes, costs.shapeOf(start), time);
  }
  /// The same, carried out by a variant of its kind.
  Demand ofVariant(const CollectiveVariant &variant, comm::CollectiveOpInterface start, Bytes bytes, Ns time) const {
    return model.ofVariant(variant, bytes, costs.shapeOf(start), time);
  }

private:
  const OperationCosts &costs;
  const ContentionModel &model;
  MatrixProducts products;
  bool contends;
};

/// The copies of buckets: the bytes that they read and write; none for other operations.
std::optional<std::pair<Bytes, Bytes>> getCopiedBytes(mlir::Operation *op);

} // namespace commsched::detail

#endif // COMMSCHED_LIB_ANALYSIS_COSTS_NODEDEMANDS_H
