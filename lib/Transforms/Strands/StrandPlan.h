//===- StrandPlan.h - Plan for splitting the operations of a block ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The analysis behind comm-split-strands. Dimensions of values that the rules connect form a *token dimension*: the
// rows of all activations of a network, say. Splitting along one of them gives a plan: the operations that are split,
// each with its axis. Everything else stays whole. Private to the passes.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_STRANDS_STRANDPLAN_H
#define COMMSCHED_LIB_TRANSFORMS_STRANDS_STRANDPLAN_H

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Analysis/Split/SplitInterface.h"
#include "CommSched/Support/Units.h"
#include "mlir/IR/Block.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"
#include <string>
#include <vector>

namespace commsched {

/// A dimension that collectives of the block carry: all classes of connected dimensions that have the same place and
/// size at a collective.
struct TokenDimension {
  int32_t id = 0;
  /// Size of the dimension at its first collective.
  int64_t size = 0;
  /// Collectives that carry it, those of them that depend on another collective, and the first of them. What depends on
  /// none, such as the gather of a parameter, can start early anyway.
  int64_t starts = 0, dependentStarts = 0;
  mlir::Operation *firstStart = nullptr;
};

/// The operations to split into `parts` parts.
struct StrandPlan {
  int64_t parts = 1;
  /// Indexed by operation of the block: the index in `axes`, or -1 for an operation that stays whole.
  std::vector<int32_t> axisOf;
  std::vector<SplitAxis> axes;
  /// Indexed by operation of the block: its region, a maximal set of split operations that are connected by split
  /// values; -1 for an operation that stays whole.
  std::vector<int32_t> regionOf;
  int32_t numRegions = 0;
  /// Indexed by region: its class. Regions of one class have the same operations on the same types.
  std::vector<int32_t> classOf;
  int32_t numClasses = 0;
  /// Collectives that are split.
  int64_t numStarts = 0;

  bool isEmpty() const { return axes.empty(); }
};

/// Options of the analysis.
struct SplitSpaceOptions {
  /// Split sums over the dimension, too, whose partial results are added in another order than in the whole. Sums of
  /// integers are split in any case.
  bool reassociation = false;
  /// Only the dimension of this number, in the order of SplitSpace::dimensions(), if it is not negative.
  int64_t dimension = -1;
};

/// Which operations of a dimension a plan splits.
struct PlanExtent {
  /// Of the work before and after each collective, on every path, as much as this many percent of the time of the
  /// collective; everything if negative.
  int64_t window = -1;
  /// If given, only these regions; they are numbered as without it. Not owned.
  const llvm::BitVector *kept = nullptr;
  /// Also sums over the dimension.
  bool sums = true;
};

/// The ways to split one block. Holds for the block as it is; O(operations x operands x dimensions).
class SplitSpace {
public:
  SplitSpace(mlir::Block &block, const OperationCosts &costs, SplitSpaceOptions options = {});

  /// The dimensions that collectives carry, those of most dependent collectives first.
  llvm::ArrayRef<TokenDimension> dimensions() const { return found; }

  /// The plan that splits what can be split along a dimension into `parts`, within `extent`, except operations that no
  /// collective of theirs follows or precedes. Empty if no collective can be split.
  StrandPlan plan(int32_t dimension, int64_t parts, PlanExtent extent = {}) const;

  /// Indexed by operation: what it costs as it is, ns.
  llvm::ArrayRef<Ns> times() const { return timeOf; }

  /// Returns true if a sum may be split.
  bool hasSums() const;

  /// The operations of the block, in their order.
  llvm::ArrayRef<mlir::Operation *> operations() const { return ops; }

private:
  using Place = std::pair<mlir::Value, int64_t>;

  void findAxes(SplitSpaceOptions options);
  int32_t dimensionOfAxis(mlir::Operation *op, const SplitAxis &axis) const;
  void keepParameterGathers();
  void keepWaitsWithStarts();
  void connect();
  void findDimensions();
  /// The TokenDimension::id of a dimension of a value; -1 if no collective carries it.
  int32_t findDimension(mlir::Value value, int64_t dim) const;
  int32_t idOf(Place place);
  int32_t findRoot(int32_t id) const;

  mlir::Block &block;
  std::vector<mlir::Operation *> ops;
  std::vector<Ns> timeOf;
  /// Indexed by operation: the axes.
  std::vector<llvm::SmallVector<SplitAxis>> axesOf;
  llvm::DenseMap<Place, int32_t> ids;
  mutable std::vector<int32_t> parent;
  /// Indexed by class of connected dimensions: the TokenDimension::id.
  llvm::DenseMap<int32_t, int32_t> dimensionOf;
  std::vector<TokenDimension> found;
};

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_STRANDS_STRANDPLAN_H
