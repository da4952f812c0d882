//===- StrandWriter.cpp - Write the strands of a plan into a block ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "StrandWriter.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Machine/Rounding.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// Elements before dimension `dim` of `type`, of which there is one if a part along `dim` is contiguous.
int64_t countBefore(RankedTensorType type, int64_t dim) {
  return ShapedType::getNumElements(type.getShape().take_front(dim));
}

class StrandWriter {
public:
  StrandWriter(Block &block, const StrandPlan &plan, const OperationCosts &costs)
      : plan(plan), costs(costs), builder(block.getParentOp()->getContext()) {
    for (Operation &op : block)
      ops.push_back(&op);
  }

  WrittenStrands run() {
    written.parts = plan.parts;
    for (size_t i = 0; i < ops.size(); ++i)
      if (plan.axisOf[i] >= 0) {
        original = static_cast<int32_t>(i);
        writeParts(ops[i], plan.axes[plan.axisOf[i]]);
        ++position;
      }
    // What is left of the uses are those of whole operations.
    for (auto [index, op] : llvm::enumerate(ops)) {
      if (plan.axisOf[index] < 0)
        continue;
      for (Value result : op->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !isReplaced(user); }))
          result.replaceUsesWithIf(join(result), [&](OpOperand &use) { return !isReplaced(use.getOwner()); });
    }
    for (Operation *op : llvm::reverse(ops))
      if (isReplaced(op)) {
        eraseUnusedViews(op);
        op->erase();
      }
    return std::move(written);
  }

private:
  /// Erases the parts of a view of which only the whole is used.
  void eraseUnusedViews(Operation *op) {
    if (op->getNumResults() != 1 || !isa<ComputeOp>(op) || !getAliasedValue(op->getResult(0)))
      return;
    for (Value part : parts.lookup(op->getResult(0)))
      if (part.use_empty()) {
        written.places.erase(part.getDefiningOp());
        written.originOf.erase(part.getDefiningOp());
        part.getDefiningOp()->erase();
      }
  }

  bool isReplaced(Operation *op) const { return replaced.contains(op); }

  void writeParts(Operation *op, const SplitAxis &axis) {
    SmallVector<Type> types;
    for (auto [result, dim] : llvm::zip_equal(op->getResults(), axis.results)) {
      types.push_back(dim == kPartialResult ? result.getType() : getPartType(result.getType(), dim, plan.parts));
      if (dim != kPartialResult)
        dimOf[result] = dim;
      else
        ++written.sums;
    }
    for (strand = 0; strand < plan.parts; ++strand) {
      SmallVector<Value> operands;
      builder.setInsertionPoint(op);
      for (auto [operand, dim] : llvm::zip_equal(op->getOperands(), axis.operands))
        operands.push_back(dim == kWholeOperand ? getWhole(operand) : getPart(op, operand, dim));
      builder.setInsertionPoint(op);
      setAccumulators(op, axis, operands);
      Operation *part = createStrand(builder, op, axis, operands, types);
      if (keepsStrides(part) && llvm::any_of(operands, [&](Value value) { return strided.contains(value); }))
        strided.insert_range(part->getResults());
      if (axis.positional)
        setRows(part, op->getResult(0), axis.results[0]);
      scaleCost(op, part, axis);
      note(part);
      written.originOf[part] = original;
      for (auto [result, made, dim] : llvm::zip_equal(op->getResults(), part->getResults(), axis.results))
        if (dim == kPartialResult)
          accumulate(result, made);
        else
          parts[result].push_back(made);
    }
    replaced.insert(op);
  }

  void setRows(Operation *part, Value whole, int64_t dim) {
    int64_t total = getSplitType(whole.getType()).getDimSize(dim);
    part->setAttr(CommDialect::kRowsAttrName, builder.getDenseI64ArrayAttr({strand * (total / plan.parts), total}));
  }

  void note(Operation *op) { written.places[op] = {position, strand}; }

  //===---------------------------------------------------------------------------------------===//
  // Sums
  //===---------------------------------------------------------------------------------------===//

  /// The destinations of sums in destination-passing style: what the parts before this one have summed up.
  void setAccumulators(Operation *op, const SplitAxis &axis, MutableArrayRef<Value> operands) const {
    auto style = dyn_cast<DestinationStyleOpInterface>(op);
    if (!style || strand == 0)
      return;
    for (auto [result, dim] : llvm::zip_equal(op->getResults(), axis.results))
      if (dim == kPartialResult)
        operands[style.getTiedOpOperand(result)->getOperandNumber()] = joins.lookup(result);
  }

  /// Adds what a part gives to the sum of the parts before it, in the storage of that sum.
  void accumulate(OpResult result, Value made) {
    Value &sum = joins[result];
    sum = sum && !isa<DestinationStyleOpInterface>(result.getOwner()) ? add(sum, made) : made;
  }

  Value add(Value sum, Value part) {
    auto type = cast<RankedTensorType>(sum.getType());
    AffineMap map = builder.getMultiDimIdentityMap(type.getRank());
    SmallVector<utils::IteratorType> loops(type.getRank(), utils::IteratorType::parallel);
    auto body = [](OpBuilder &inner, Location loc, ValueRange elements) {
      Value added = isa<FloatType>(elements[0].getType())
                        ? arith::AddFOp::create(inner, loc, elements[1], elements[0]).getResult()
                        : arith::AddIOp::create(inner, loc, elements[1], elements[0]).getResult();
      linalg::YieldOp::create(inner, loc, added);
    };
    auto op = linalg::GenericOp::create(builder, part.getLoc(), TypeRange(type), ValueRange(part), ValueRange(sum),
                                        ArrayRef<AffineMap>{map, map}, loops, body);
    note(op);
    return op.getResult(0);
  }

  //===---------------------------------------------------------------------------------------===//
  // Slices and joins
  //===---------------------------------------------------------------------------------------===//

  Value getWhole(Value value) { return parts.contains(value) || joins.contains(value) ? join(value) : value; }

  /// The part of `value` along `dim` for the current strand of `user`.
  Value getPart(Operation *user, Value value, int64_t dim) {
    Value part;
    if (auto it = parts.find(value); it != parts.end() && dimOf.lookup(value) == dim) {
      part = it->second[strand];
    } else {
      Value whole = getWhole(value);
      SmallVector<Value> &known = slices[{whole, dim}];
      known.resize(plan.parts);
      if (!known[strand]) {
        builder.setInsertionPoint(user);
        known[strand] = slice(whole, dim);
      }
      part = known[strand];
    }
    return strided.contains(part) && needsContiguous(user) ? contiguous(user, part) : part;
  }

  /// Returns true if `op` is a view whose result has the strides of its operand, permuted or repeated.
  static bool keepsStrides(Operation *op) {
    auto compute = dyn_cast<ComputeOp>(op);
    if (!compute || op->getNumResults() == 0 || !getAliasedValue(op->getResult(0)))
      return false;
    StringRef name = compute.getName();
    name.consume_front("aten.") || name.consume_front("prims.");
    static constexpr StringRef kNames[] = {"alias", "detach",           "expand",  "permute", "select",    "slice",
                                           "split", "split_with_sizes", "squeeze", "t",       "transpose", "unsqueeze"};
    return llvm::is_contained(kNames, name.split('.').first);
  }

  /// Returns true if `user` takes contiguous memory only: a collective, and a view that cuts or joins dimensions.
  /// Kernels read with any strides.
  static bool needsContiguous(Operation *user) {
    if (isa<CollectiveOpInterface, tensor::CollapseShapeOp, tensor::ExpandShapeOp>(user))
      return true;
    bool isView = isa<ComputeOp>(user) && user->getNumResults() > 0 && getAliasedValue(user->getResult(0));
    return isView && !keepsStrides(user);
  }

  Value slice(Value whole, int64_t dim) {
    auto type = cast<RankedTensorType>(whole.getType());
    auto partType = cast<RankedTensorType>(getPartType(type, dim, plan.parts));
    if (isGenerator(whole.getDefiningOp()))
      return generate(whole.getDefiningOp(), partType);
    ++written.slices;
    Value part = extract(whole, dim, partType);
    if (countBefore(type, dim) != 1)
      strided.insert(part);
    return part;
  }

  /// A copy of `part` for `user` and for others like it.
  Value contiguous(Operation *user, Value part) {
    Value &copy = copies[part];
    if (copy)
      return copy;
    builder.setInsertionPoint(user);
    ++written.copies;
    copy = ComputeOp::create(builder, part.getLoc(), TypeRange(part.getType()), builder.getStringAttr("copy"),
                             ValueRange(part), DenseI64ArrayAttr(), DenseI64ArrayAttr(), UnitAttr())
               ->getResult(0);
    copy.getDefiningOp()->setAttr(CommDialect::kCostAttrName,
                                  CostAttr::get(builder.getContext(), std::nullopt, 2 * bytesOf(part), std::nullopt,
                                                std::nullopt, std::nullopt, std::nullopt));
    note(copy.getDefiningOp());
    return copy;
  }

  SmallVector<OpFoldResult> offsetsOf(RankedTensorType type, int64_t dim, int64_t offset) {
    SmallVector<OpFoldResult> offsets(type.getRank(), builder.getIndexAttr(0));
    offsets[dim] = builder.getIndexAttr(offset);
    return offsets;
  }

  SmallVector<OpFoldResult> sizesOf(RankedTensorType type) {
    SmallVector<OpFoldResult> sizes;
    for (int64_t size : type.getShape())
      sizes.push_back(builder.getIndexAttr(size));
    return sizes;
  }

  Value extract(Value whole, int64_t dim, RankedTensorType type) {
    SmallVector<OpFoldResult> strides(type.getRank(), builder.getIndexAttr(1));
    auto op =
        tensor::ExtractSliceOp::create(builder, whole.getLoc(), type, whole,
                                       offsetsOf(type, dim, strand * type.getDimSize(dim)), sizesOf(type), strides);
    note(op);
    return op;
  }

  /// Makes a part of what a generator makes.
  Value generate(Operation *generator, RankedTensorType type) {
    Location loc = generator->getLoc();
    Operation *made = nullptr;
    if (auto constant = dyn_cast<arith::ConstantOp>(generator)) {
      auto value = cast<DenseElementsAttr>(constant.getValue());
      made = arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, value.getSplatValue<Attribute>()));
    } else if (auto fill = dyn_cast<linalg::FillOp>(generator)) {
      Value init = generate(fill.getDpsInits()[0].getDefiningOp(), type);
      made = linalg::FillOp::create(builder, loc, fill.getInputs(), ValueRange(init));
    } else {
      made = tensor::EmptyOp::create(builder, loc, type.getShape(), type.getElementType());
    }
    note(made);
    return made->getResult(0);
  }

  /// The whole of a value of which there are strands. A view is a view of the whole of its source.
  Value join(Value value) {
    if (Value joined = joins.lookup(value))
      return joined;
    auto result = cast<OpResult>(value);
    Value source = getAliasedValue(result);
    if (!source || isa<WaitOp, DestinationStyleOpInterface>(result.getOwner()))
      return joins[value] = joinParts(value);
    Operation *op = result.getOwner();
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(getWhole(operand));
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfterValue(parts[value].back());
    Operation *whole = builder.clone(*op);
    whole->setOperands(operands);
    for (auto [old, made] : llvm::zip_equal(op->getResults(), whole->getResults()))
      joins[old] = made;
    return joins[value];
  }

  /// Returns true if each operation that computes a part can write it directly into its place in the whole. Kernels
  /// write with any strides; a collective writes contiguous memory.
  bool writesInPlace(Value value, int64_t dim) const {
    auto result = cast<OpResult>(value);
    if (isa<WaitOp>(result.getOwner()))
      return countBefore(cast<RankedTensorType>(value.getType()), dim) == 1;
    return isa<ComputeOp, DestinationStyleOpInterface>(result.getOwner());
  }

  /// Puts the strands of `value` into one buffer, directly after the last of them.
  Value joinParts(Value value) {
    int64_t dim = dimOf.lookup(value);
    bool inPlace = writesInPlace(value, dim);
    ++(inPlace ? written.inPlace : written.joins);
    auto type = cast<RankedTensorType>(value.getType());
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfterValue(parts[value].back());
    Value whole = tensor::EmptyOp::create(builder, value.getLoc(), type.getShape(), type.getElementType());
    for (auto [index, part] : llvm::enumerate(parts[value])) {
      auto partType = cast<RankedTensorType>(part.getType());
      SmallVector<OpFoldResult> strides(type.getRank(), builder.getIndexAttr(1));
      auto insert = tensor::InsertSliceOp::create(
          builder, value.getLoc(), part, whole,
          offsetsOf(type, dim, static_cast<int64_t>(index) * partType.getDimSize(dim)), sizesOf(partType), strides);
      if (inPlace)
        insert->setAttr(kInPlaceAttrName, builder.getUnitAttr());
      whole = insert;
    }
    return whole;
  }

  //===---------------------------------------------------------------------------------------===//
  // Costs
  //===---------------------------------------------------------------------------------------===//

  /// Bytes that a part moves, of `bytes` of the whole. Operands that are whole are read by every part if the number
  /// for the whole includes them; if it does not, the operation reads a selection that is in proportion. Partial
  /// results are as large as the whole.
  int64_t bytesOfPart(Operation *op, const SplitAxis &axis, int64_t bytes) const {
    int64_t split = 0, whole = 0, partial = 0;
    for (auto [result, dim] : llvm::zip_equal(op->getResults(), axis.results))
      (dim == kPartialResult ? partial : split) += bytesOf(result);
    for (auto [operand, dim] : llvm::zip_equal(op->getOperands(), axis.operands))
      (dim == kWholeOperand ? whole : split) += bytesOf(operand);
    int64_t shared = std::min(bytes, partial + (bytes - split - partial >= whole ? whole : 0));
    return shared + llvm::divideCeil(bytes - shared, plan.parts);
  }

  void scaleCost(Operation *op, Operation *part, const SplitAxis &axis) {
    auto cost = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
    auto scaled = [&](std::optional<int64_t> amount) -> std::optional<int64_t> {
      return amount ? std::optional<int64_t>(llvm::divideCeil(*amount, plan.parts)) : std::nullopt;
    };
    std::optional<int64_t> flops, bytes, workspace;
    if (cost) {
      flops = scaled(cost.getFlops());
      if (cost.getBytes())
        bytes = bytesOfPart(op, axis, *cost.getBytes());
      workspace = cost.getWorkspace();
    }
    auto set = [&](std::optional<int64_t> time) {
      part->setAttr(CommDialect::kCostAttrName,
                    CostAttr::get(op->getContext(), flops, bytes, workspace, time, std::nullopt, std::nullopt));
    };
    if (cost)
      set(std::nullopt);
    // The model's ratio of part to whole, for a measured time.
    if (std::optional<Ns> time = measuredTime(op, part)) {
      __int128 partTime = costs.modelledTimeOf(part), wholeTime = std::max<Ns>(1, costs.modelledTimeOf(op));
      set(std::min(static_cast<int64_t>((*time * partTime + wholeTime - 1) / wholeTime), *time));
    }
  }

  /// The time that was measured of the whole, if none was of the part: from `comm.cost`, or from the machine's table.
  std::optional<Ns> measuredTime(Operation *op, Operation *part) const {
    auto cost = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
    if (cost && cost.getTime())
      return cost.getTime();
    if (!costs.model().hasMeasuredOps())
      return std::nullopt;
    OpCost whole = costs.costOf(op);
    bool isScaled = whole.source == OpCostSource::Table && costs.costOf(part).source != OpCostSource::Table;
    return isScaled ? std::optional<Ns>(whole.time) : std::nullopt;
  }

  const StrandPlan &plan;
  const OperationCosts &costs;
  OpBuilder builder;
  std::vector<Operation *> ops;
  WrittenStrands written;
  llvm::DenseSet<Operation *> replaced;
  /// Indexed by value of the original block: its parts, the dimension, and the parts joined again.
  llvm::DenseMap<Value, SmallVector<Value>> parts;
  llvm::DenseMap<Value, int64_t> dimOf;
  llvm::DenseMap<Value, Value> joins;
  /// Indexed by whole value and dimension: its slices, null if not made.
  llvm::DenseMap<std::pair<Value, int64_t>, SmallVector<Value>> slices;
  /// Parts that are not contiguous, and contiguous copies of some.
  llvm::DenseSet<Value> strided;
  llvm::DenseMap<Value, Value> copies;
  int32_t position = 0, original = 0;
  int32_t strand = 0;
};

} // namespace

WrittenStrands commsched::writeStrands(Block &block, const StrandPlan &plan, const OperationCosts &costs) {
  return StrandWriter(block, plan, costs).run();
}

/// Sorts the nodes by `keys`, the given order among equal ones. A key is at least that of every predecessor.
static Order orderByKeys(const Problem &problem, ArrayRef<int64_t> keys) {
  Order order = identityOrder(problem);
  llvm::stable_sort(order, [&](NodeId a, NodeId b) { return keys[a] < keys[b]; });
  return order;
}

/// Strand by strand through the phases, which collectives separate: a wait begins the next phase of its strand. Then a
/// collective of one strand flies while the other strands compute what precedes theirs.
static Order phasedOrder(const LoadedBlock &loaded, const WrittenStrands &written) {
  const Problem &problem = loaded.problem;
  // Indexed by node: the phase times the number of strands, plus the strand.
  std::vector<int64_t> keys(problem.size());
  int64_t now = 0;
  for (NodeId node = 0; node < problem.size(); ++node) {
    int64_t key = 0;
    for (NodeId before : problem.preds[node])
      key = std::max(key, keys[before]);
    auto place = written.places.find(loaded.nodes[node]);
    if (place == written.places.end()) {
      keys[node] = std::max(key, now);
      continue;
    }
    NodeId start = problem.nodes[node].start;
    if (start != kNone)
      key = std::max(key, keys[start] + written.parts);
    int64_t strand = std::max(place->second.strand, 0);
    key += (strand - key % written.parts + written.parts) % written.parts;
    keys[node] = key;
    now = key - strand;
  }
  return orderByKeys(problem, keys);
}

Order commsched::staggeredOrder(const LoadedBlock &loaded, const WrittenStrands &written, int64_t stagger) {
  if (stagger == kPhases)
    return phasedOrder(loaded, written);
  const Problem &problem = loaded.problem;
  std::vector<int64_t> keys(problem.size());
  int64_t position = 0;
  for (NodeId node = 0; node < problem.size(); ++node) {
    auto place = written.places.find(loaded.nodes[node]);
    if (place != written.places.end())
      position = place->second.position;
    keys[node] = place == written.places.end() ? position : position + place->second.strand * stagger;
    for (NodeId before : problem.preds[node])
      keys[node] = std::max(keys[node], keys[before]);
  }
  return orderByKeys(problem, keys);
}
