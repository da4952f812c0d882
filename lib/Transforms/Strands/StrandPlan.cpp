//===- StrandPlan.cpp - Plan for splitting the operations of a block --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "StrandPlan.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/MapVector.h"
#include <tuple>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

SplitSpace::SplitSpace(Block &block, const OperationCosts &costs, SplitSpaceOptions options) : block(block) {
  for (Operation &op : block) {
    ops.push_back(&op);
    timeOf.push_back(costs.costOf(&op).time);
  }
  findAxes(options);
  keepParameterGathers();
  keepWaitsWithStarts();
  connect();
  findDimensions();
  if (options.dimension >= 0) {
    bool exists = options.dimension < static_cast<int64_t>(found.size());
    found = exists ? std::vector<TokenDimension>{found[options.dimension]} : std::vector<TokenDimension>();
  }
}

/// The storage that operations of the block write in place. Tensors that take over a destination's storage do not
/// count, because nothing else sees that storage.
static llvm::DenseSet<StorageId> findWrittenStorage(Block &block, const StorageMap &storage) {
  llvm::DenseSet<StorageId> written;
  auto add = [&](Value value) { written.insert_range(storage.of(value)); };
  block.walk([&](Operation *op) {
    if (isa<StorageOpInterface>(op))
      for (OpOperand &operand : op->getOpOperands())
        if (mutatesOperand(operand))
          add(operand.get());
    if (auto start = dyn_cast<CollectiveOpInterface>(op))
      llvm::for_each(start.getCollectiveDests(), add);
  });
  return written;
}

void SplitSpace::findAxes(SplitSpaceOptions options) {
  StorageMap storage(block);
  llvm::DenseSet<StorageId> written = findWrittenStorage(block, storage);
  auto isWritten = [&](Value value) {
    return llvm::any_of(storage.of(value), [&](StorageId id) { return written.contains(id); });
  };
  axesOf.resize(ops.size());
  for (auto [op, axes] : llvm::zip_equal(ops, axesOf)) {
    bool pinned = op->hasAttr(CommDialect::kPinnedAttrName) || op->hasAttr(CommDialect::kRowsAttrName);
    // A pinned operation may draw random numbers, and its parts would draw others.
    if (pinned || isGenerator(op) || llvm::any_of(op->getOperands(), isWritten) ||
        llvm::any_of(op->getResults(), isWritten))
      continue;
    axes = getSplitAxes(op);
    llvm::erase_if(axes, [&, op = op](const SplitAxis &axis) { return !options.reassociation && !isExact(op, axis); });
  }
}

bool SplitSpace::hasSums() const {
  return llvm::any_of(axesOf, [](ArrayRef<SplitAxis> axes) {
    return llvm::any_of(axes, [](const SplitAxis &axis) { return axis.hasPartialResults(); });
  });
}

/// A gather of a parameter can start at any time, so it stays whole: an all-gather that depends on no collective, and
/// on less work than the gather itself takes. If the block has no other collectives, these are split.
void SplitSpace::keepParameterGathers() {
  // Indexed by operation: the work on the longest path to its end, or none if a collective is on a path.
  llvm::DenseMap<Operation *, std::optional<Ns>> workOf;
  std::vector<size_t> gathers;
  int64_t others = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    std::optional<Ns> before = 0;
    for (Value operand : ops[i]->getOperands())
      if (Operation *def = operand.getDefiningOp(); def && before) {
        auto known = workOf.find(def);
        bool depends = isa<CollectiveOpInterface>(def) || known == workOf.end() || !known->second;
        before = depends ? std::nullopt : std::optional<Ns>(std::max(*before, *known->second));
      }
    workOf[ops[i]] = before ? std::optional<Ns>(*before + timeOf[i]) : std::nullopt;
    if (isa<AllGatherOp>(ops[i]) && before && *before < timeOf[i])
      gathers.push_back(i);
    else
      others += isa<CollectiveOpInterface>(ops[i]);
  }
  if (others == 0)
    return;
  for (size_t i : gathers)
    axesOf[i].clear();
}

/// A wait is split as its start is: a start in symmetric memory, for example, stays whole.
void SplitSpace::keepWaitsWithStarts() {
  llvm::DenseMap<Operation *, ArrayRef<SplitAxis>> axesOfStart;
  for (auto [op, axes] : llvm::zip_equal(ops, axesOf))
    if (isa<CollectiveOpInterface>(op))
      axesOfStart[op] = axes;
  for (auto [op, axes] : llvm::zip_equal(ops, axesOf))
    if (auto wait = dyn_cast<WaitOp>(op))
      llvm::erase_if(axes, [&, starts = axesOfStart.lookup(wait.getFuture().getDefiningOp())](const SplitAxis &axis) {
        return llvm::none_of(starts, [&](const SplitAxis &of) { return of.results.front() == axis.results.front(); });
      });
}

//===-----------------------------------------------------------------------------------------===//
// Connected dimensions
//===-----------------------------------------------------------------------------------------===//

int32_t SplitSpace::idOf(Place place) {
  auto [it, inserted] = ids.try_emplace(place, static_cast<int32_t>(parent.size()));
  if (inserted)
    parent.push_back(it->second);
  return it->second;
}

int32_t SplitSpace::findRoot(int32_t id) const {
  while (parent[id] != id)
    id = parent[id] = parent[parent[id]];
  return id;
}

/// Calls `visit` with each value and dimension that `axis` of `op` splits. Generators are made anew for each user, so
/// they connect nothing.
template <typename Visit> static void forEachPlace(Operation *op, const SplitAxis &axis, Visit visit) {
  for (auto [operand, dim] : llvm::zip_equal(op->getOperands(), axis.operands))
    if (dim != kWholeOperand && !isGenerator(operand.getDefiningOp()))
      visit(operand, dim);
  for (auto [result, dim] : llvm::zip_equal(op->getResults(), axis.results))
    if (dim != kPartialResult)
      visit(result, dim);
}

void SplitSpace::connect() {
  for (auto [op, axes] : llvm::zip_equal(ops, axesOf))
    for (const SplitAxis &axis : axes) {
      int32_t first = -1;
      forEachPlace(op, axis, [&](Value value, int64_t dim) {
        int32_t id = findRoot(idOf({value, dim}));
        if (first >= 0)
          parent[id] = findRoot(first);
        else
          first = id;
      });
    }
}

int32_t SplitSpace::findDimension(Value value, int64_t dim) const {
  auto it = ids.find({value, dim});
  if (it == ids.end())
    return -1;
  auto dimension = dimensionOf.find(findRoot(it->second));
  return dimension == dimensionOf.end() ? -1 : dimension->second;
}

/// The TokenDimension::id of what `axis` splits; -1 if no collective carries it.
int32_t SplitSpace::dimensionOfAxis(Operation *op, const SplitAxis &axis) const {
  // All places of an axis are connected.
  std::optional<Place> place;
  forEachPlace(op, axis, [&](Value value, int64_t dim) { place = Place(value, dim); });
  return place ? findDimension(place->first, place->second) : -1;
}

/// Indexed by operation: true if its operands depend on a collective of the block.
static std::vector<bool> findDependents(ArrayRef<Operation *> ops) {
  llvm::DenseSet<Operation *> dependents;
  std::vector<bool> result;
  for (Operation *op : ops) {
    bool depends = llvm::any_of(op->getOperands(), [&](Value operand) {
      Operation *def = operand.getDefiningOp();
      return def && (isa<CollectiveOpInterface>(def) || dependents.contains(def));
    });
    if (depends)
      dependents.insert(op);
    result.push_back(depends);
  }
  return result;
}

void SplitSpace::findDimensions() {
  // Barriers cut the tokens of a network into several classes. Those of one place and size, at the first collective of
  // each class, are tried together.
  llvm::DenseMap<std::tuple<int64_t, int64_t, int64_t>, int32_t> byForm;
  std::vector<bool> dependents = findDependents(ops);
  for (size_t i = 0; i < ops.size(); ++i)
    if (isa<CollectiveOpInterface>(ops[i]))
      for (const SplitAxis &axis : axesOf[i]) {
        RankedTensorType type = getSplitType(ops[i]->getResult(0).getType());
        int64_t dim = axis.results.front();
        auto [known, isNew] = dimensionOf.try_emplace(findRoot(ids.lookup({ops[i]->getResult(0), dim})), 0);
        if (isNew) {
          auto form = std::tuple(type.getRank(), dim, type.getDimSize(dim));
          known->second = byForm.try_emplace(form, static_cast<int32_t>(found.size())).first->second;
          if (known->second == static_cast<int32_t>(found.size()))
            found.push_back({known->second, type.getDimSize(dim), 0, 0, ops[i]});
        }
        TokenDimension &dimension = found[known->second];
        ++dimension.starts;
        dimension.dependentStarts += dependents[i];
      }
  llvm::stable_sort(found, [](const TokenDimension &a, const TokenDimension &b) {
    return std::pair(a.dependentStarts, a.starts) > std::pair(b.dependentStarts, b.starts);
  });
}

//===-----------------------------------------------------------------------------------------===//
// Plans
//===-----------------------------------------------------------------------------------------===//

namespace {

/// Makes one plan.
class Planner {
public:
  Planner(ArrayRef<Operation *> ops, ArrayRef<Ns> times, int64_t parts) : ops(ops), times(times) {
    plan.parts = parts;
    plan.axisOf.assign(ops.size(), -1);
    plan.regionOf.assign(ops.size(), -1);
    for (auto [index, op] : llvm::enumerate(ops))
      indexOf[op] = static_cast<int32_t>(index);
  }

  /// Splits operation `index` along the one of `axes` that takes over most operands as they are split already; the
  /// first of several.
  void choose(size_t index, ArrayRef<const SplitAxis *> axes) {
    const SplitAxis *best = nullptr;
    int64_t most = -1;
    for (const SplitAxis *axis : axes) {
      int64_t taken = 0;
      for (auto [operand, dim] : llvm::zip_equal(ops[index]->getOperands(), axis->operands))
        taken += dim != kWholeOperand && isSplitAlong(operand, dim);
      // A sum of parts pays only if its operands come in parts.
      if (taken > most && !(taken == 0 && axis->hasPartialResults())) {
        most = taken;
        best = axis;
      }
    }
    if (!best)
      return;
    plan.axisOf[index] = static_cast<int32_t>(plan.axes.size());
    plan.axes.push_back(*best);
    for (auto [result, dim] : llvm::zip_equal(ops[index]->getResults(), best->results))
      if (dim != kPartialResult)
        dimOf[result] = dim;
  }

  /// Keeps what a collective follows or precedes through split values, within `extent`, and numbers the regions.
  StrandPlan finish(PlanExtent extent) {
    // Indexed by operation: the work that may still be split behind, and before, the operation.
    std::vector<Ns> behind(ops.size(), -1), before(ops.size(), -1);
    std::vector<std::pair<int32_t, int32_t>> edges;
    auto reach = [&](std::vector<Ns> &left, int32_t from, int32_t to) {
      Ns here = isStart(from) ? reachOf(from, extent.window) : left[from] - times[from];
      left[to] = std::max(left[to], here);
    };
    forEachEdge([&](int32_t from, int32_t to) {
      edges.emplace_back(from, to);
      reach(behind, from, to);
    });
    for (auto [from, to] : llvm::reverse(edges))
      reach(before, to, from);
    for (size_t i = 0; i < ops.size(); ++i)
      if (plan.axisOf[i] >= 0 && behind[i] < 0 && before[i] < 0 && !isStart(i))
        drop(i);
    numberRegions();
    if (extent.kept)
      for (size_t i = 0; i < ops.size(); ++i)
        if (plan.axisOf[i] >= 0 && !extent.kept->test(plan.regionOf[i]))
          drop(i);
    return compact();
  }

private:
  bool isStart(size_t index) const { return isa<CollectiveOpInterface>(ops[index]); }

  /// The work that may be split on each side of a start.
  Ns reachOf(size_t start, int64_t window) const {
    return window < 0 ? INT64_MAX / 2 : static_cast<Ns>(static_cast<__int128>(times[start]) * window / 100);
  }

  bool isSplitAlong(Value value, int64_t dim) const {
    auto it = dimOf.find(value);
    return it != dimOf.end() && it->second == dim;
  }

  void drop(size_t index) {
    plan.axisOf[index] = plan.regionOf[index] = -1;
    for (Value result : ops[index]->getResults())
      dimOf.erase(result);
  }

  /// Visits each pair of split operations of which the second takes over a part of the first one's results, in the
  /// order of the second.
  template <typename Visit> void forEachEdge(Visit visit) const {
    for (size_t i = 0; i < ops.size(); ++i) {
      if (plan.axisOf[i] < 0)
        continue;
      const SplitAxis &axis = plan.axes[plan.axisOf[i]];
      for (auto [operand, dim] : llvm::zip_equal(ops[i]->getOperands(), axis.operands))
        if (dim != kWholeOperand && isSplitAlong(operand, dim))
          visit(indexOf.lookup(operand.getDefiningOp()), static_cast<int32_t>(i));
    }
  }

  void numberRegions() {
    llvm::EquivalenceClasses<int32_t> classes;
    for (size_t i = 0; i < ops.size(); ++i)
      if (plan.axisOf[i] >= 0)
        classes.insert(static_cast<int32_t>(i));
    forEachEdge([&](int32_t from, int32_t to) { classes.unionSets(from, to); });
    llvm::DenseMap<int32_t, int32_t> numbers;
    for (size_t i = 0; i < ops.size(); ++i)
      if (plan.axisOf[i] >= 0) {
        int32_t leader = classes.getLeaderValue(static_cast<int32_t>(i));
        plan.regionOf[i] = numbers.try_emplace(leader, static_cast<int32_t>(numbers.size())).first->second;
      }
    plan.numRegions = static_cast<int32_t>(numbers.size());
    classifyRegions();
  }

  /// Regions are of one class if their operations have the same names, types and axes, in the same order.
  void classifyRegions() {
    std::vector<llvm::hash_code> hashes(plan.numRegions, llvm::hash_code(0));
    for (size_t i = 0; i < ops.size(); ++i) {
      if (plan.axisOf[i] < 0)
        continue;
      llvm::hash_code &hash = hashes[plan.regionOf[i]];
      hash = llvm::hash_combine(hash, ops[i]->getName().getStringRef(), times[i]);
      if (auto compute = dyn_cast<ComputeOp>(ops[i]))
        hash = llvm::hash_combine(hash, compute.getName());
      for (int64_t dim : plan.axes[plan.axisOf[i]].results)
        hash = llvm::hash_combine(hash, dim);
    }
    llvm::DenseMap<size_t, int32_t> classes;
    for (llvm::hash_code hash : hashes)
      plan.classOf.push_back(classes.try_emplace(static_cast<size_t>(hash) >> 1, classes.size()).first->second);
    plan.numClasses = static_cast<int32_t>(classes.size());
  }

  /// Leaves out the axes of operations that were dropped.
  StrandPlan compact() {
    std::vector<SplitAxis> axes;
    for (size_t i = 0; i < ops.size(); ++i)
      if (plan.axisOf[i] >= 0) {
        axes.push_back(std::move(plan.axes[plan.axisOf[i]]));
        plan.axisOf[i] = static_cast<int32_t>(axes.size()) - 1;
        plan.numStarts += isStart(i);
      }
    plan.axes = std::move(axes);
    return std::move(plan);
  }

  ArrayRef<Operation *> ops;
  ArrayRef<Ns> times;
  StrandPlan plan;
  llvm::DenseMap<Operation *, int32_t> indexOf;
  /// Indexed by value: the dimension along which it is split.
  llvm::DenseMap<Value, int64_t> dimOf;
};

} // namespace

StrandPlan SplitSpace::plan(int32_t dimension, int64_t parts, PlanExtent extent) const {
  Planner planner(ops, timeOf, parts);
  for (size_t i = 0; i < ops.size(); ++i) {
    SmallVector<const SplitAxis *, 4> axes;
    for (const SplitAxis &axis : axesOf[i])
      if (axis.dividesInto(parts) && (extent.sums || !axis.hasPartialResults()) &&
          dimensionOfAxis(ops[i], axis) == dimension)
        axes.push_back(&axis);
    planner.choose(i, axes);
  }
  return planner.finish(extent);
}
