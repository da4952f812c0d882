//===- OperationCosts.cpp - Cost of an operation on a machine ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Analysis/Costs/MatrixProducts.h"
#include "CommSched/Analysis/Costs/OperationForm.h"
#include "CommSched/Analysis/Environment.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Dialect/Comm/CommSizes.h"
#include "CommSched/Machine/Rounding.h"
#include "FusedCollectives.h"
#include "NodeDemands.h"
#include "StablehloCosts.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

//===-----------------------------------------------------------------------------------------===//
// Collectives
//===-----------------------------------------------------------------------------------------===//

/// The shape of the slowest group of a partition: the one on most units of the outermost level, then on most nodes,
/// with the fewest ranks to share the rails of a node. O(ranks x log ranks).
static GroupShape shapeOfGroups(ReplicaGroupsInterface groups, const MachineModel &machine) {
  auto slowness = [](const GroupShape &shape) {
    return std::tuple(shape.units[1], shape.units[0], shape.nodes, -shape.ranksPerNode);
  };
  GroupShape worst;
  SmallVector<int64_t> ranks(groups.getGroupSize());
  for (int64_t group = 0; group < groups.getNumGroups(); ++group) {
    for (auto [index, rank] : llvm::enumerate(ranks))
      rank = groups.getRank(group, static_cast<int64_t>(index));
    GroupShape shape = shapeOfRanks(ranks, machine);
    if (group == 0 || slowness(shape) > slowness(worst))
      worst = shape;
  }
  return worst;
}

GroupShape OperationCosts::shapeOf(CollectiveOpInterface start) const { return shapeOf(lookupGroup(start, symbols)); }

GroupShape OperationCosts::shapeOf(GroupOp group) const {
  if (!group)
    return {};
  auto [it, inserted] = shapes.try_emplace(group);
  if (inserted)
    it->second = shapeOfGroups(group.getGroups(), machine());
  return it->second;
}

Attribute OperationCosts::laneKeyOf(FlatSymbolRefAttr group, Operation *from) const {
  if (machine().lanes == LaneSharing::One)
    return UnitAttr::get(group.getContext());
  if (machine().lanes == LaneSharing::PerGroup)
    return group;
  GroupShape shape = shapeOf(symbols.lookupNearestSymbolFrom<GroupOp>(from, group));
  return shape.ranks > 1 ? Attribute(BoolAttr::get(group.getContext(), shape.nodes > 1)) : group;
}

ElementType OperationCosts::elementOf(CollectiveOpInterface start) const {
  ArrayRef<Type> values = cast<FutureType>(start.getCollectiveFuture().getType()).getTypes();
  if (!start.getCollectiveInputs().empty())
    return elementTypeOf(start.getCollectiveInputs().front().getType());
  return values.empty() ? ElementType::Other : elementTypeOf(values.front());
}

std::shared_ptr<const CollectiveCurve> OperationCosts::curveOf(CollectiveOpInterface start) const {
  return costs.curve(start.getCollectiveKind(), shapeOf(start), elementOf(start), start.getGroupAttr().getValue());
}

VariantCurve OperationCosts::curveOf(CollectiveOpInterface start, const CollectiveVariant &variant) const {
  return costs.curve(variant, shapeOf(start), elementOf(start), start.getGroupAttr().getValue());
}

const CollectiveVariant *OperationCosts::variantOf(CollectiveOpInterface start) const {
  auto text = start->getAttrOfType<StringAttr>(CommDialect::kVariantAttrName);
  std::optional<VariantName> name = text ? VariantName::parse(text.getValue()) : std::nullopt;
  return name ? costs.findVariant(start.getCollectiveKind(), *name) : nullptr;
}

//===-----------------------------------------------------------------------------------------===//
// Kernels
//===-----------------------------------------------------------------------------------------===//

/// Operations that cost nothing: views, constants, allocations, terminators, bookkeeping on scalars.
static bool isFree(Operation *op) {
  if (isa<WaitOp, RecordOp, AwaitEventOp, ResizeStorageOp, tensor::EmptyOp, tensor::DimOp, memref::AllocOp,
          memref::AllocaOp, memref::DeallocOp, memref::GetGlobalOp, memref::DimOp, bufferization::DeallocOp>(op) ||
      op->hasTrait<OpTrait::IsTerminator>() || matchPattern(op, m_Constant()))
    return true;
  if (op->getNumRegions() > 0)
    return false;
  auto isStored = [](Value value) { return isa<TensorType, BaseMemRefType>(value.getType()); };
  if (llvm::none_of(op->getOperands(), isStored) && llvm::none_of(op->getResults(), isStored))
    return !isa<ComputeOp>(op);
  bool mutates = llvm::any_of(op->getOpOperands(), [](OpOperand &operand) { return mutatesOperand(operand); });
  return !mutates && op->getNumResults() > 0 &&
         llvm::all_of(op->getResults(), [](OpResult result) { return static_cast<bool>(getAliasedValue(result)); });
}

/// The copies of FSDP, of which the scheduler's buckets consist.
std::optional<std::pair<Bytes, Bytes>> commsched::detail::getCopiedBytes(Operation *op) {
  if (auto copyIn = dyn_cast<FsdpAllGatherCopyInOp>(op))
    return std::pair(bytesOf(copyIn.getInputs()), bytesOf(copyIn.getSlice()));
  if (auto split = dyn_cast<FsdpSplitWithSizesCopyOp>(op))
    return std::pair(bytesOf(split.getPieces()), bytesOf(split.getPieces()));
  if (auto cat = dyn_cast<FsdpChunkCatOp>(op))
    return std::pair(bytesOf(cat.getInputs()), bytesOf(cat.getResult()));
  if (auto copy = dyn_cast<FsdpCopyOp>(op))
    return std::pair(bytesOf(copy.getSource()), bytesOf(copy.getDest()));
  return std::nullopt;
}

StringRef commsched::getTableName(Operation *op) {
  if (auto compute = dyn_cast<ComputeOp>(op))
    return compute.getName();
  return op->getName().getStringRef();
}

std::vector<std::string> commsched::getTableShapes(TypeRange types) {
  std::vector<std::string> shapes;
  for (Type type : types) {
    auto shaped = dyn_cast<ShapedType>(type);
    if (!shaped || !shaped.hasRank())
      continue;
    std::string text;
    llvm::raw_string_ostream os(text);
    for (int64_t dim : shaped.getShape())
      ShapedType::isDynamic(dim) ? os << "?x" : os << dim << 'x';
    os << shaped.getElementType();
    shapes.push_back(std::move(text));
  }
  return shapes;
}

std::vector<std::string> commsched::getTableShapes(Operation *op) { return getTableShapes(op->getOperandTypes()); }

/// Work of known time.
static OpWork timed(Ns time) {
  OpWork work;
  work.time = std::min(kMaxNs, time);
  work.inlined = true;
  return work;
}

/// The types of tensors with dimensions: a trace does not tell a tensor without any from a number.
static void dropScalars(std::vector<std::string> &shapes) {
  llvm::erase_if(shapes,
                 [](const std::string &shape) { return !llvm::isDigit(shape.front()) && shape.front() != '?'; });
}

/// Leaves the dimensions alone: "64x256".
static void dropElementTypes(std::vector<std::string> &shapes) {
  for (std::string &shape : shapes)
    shape.resize(shape.find_last_of("0123456789?", shape.find_first_not_of("0123456789?x")) + 1);
}

const OpTime *OperationCosts::findTraced(Operation *op, StringRef name, std::vector<std::string> shapes) const {
  auto [packet, overload] = name.rsplit('.');
  if (!isa<ComputeOp>(op) || !packet.contains('.') || isFree(op))
    return nullptr;
  dropScalars(shapes);
  if (shapes.empty())
    return nullptr;
  std::vector<std::string> withResults = shapes, results = getTableShapes(op->getResultTypes());
  dropScalars(results);
  withResults.insert(withResults.end(), results.begin(), results.end());
  for (bool typed : {true, false})
    for (std::vector<std::string> *spelled : {&shapes, &withResults}) {
      if (!typed)
        dropElementTypes(*spelled);
      if (const OpTime *entry = costs.findOp(packet, *spelled))
        return entry;
    }
  return nullptr;
}

const OpTime *OperationCosts::findEntry(Operation *op) const {
  if (!costs.hasMeasuredOps())
    return nullptr;
  StringRef name = getTableName(op);
  std::vector<std::string> shapes = getTableShapes(op);
  if (costs.hasForms(name)) {
    auto [form, isNew] = forms.try_emplace(op);
    if (isNew)
      form->second = getTableForm(op);
    if (const OpTime *entry = costs.findOp(name, shapes, form->second))
      return entry;
  }
  const OpTime *entry = costs.findOp(name, shapes);
  return entry ? entry : findTraced(op, name, std::move(shapes));
}

OpWork OperationCosts::learn(Operation *op, OpCostSource &source) const {
  source = OpCostSource::Roofline;
  if (auto costed = dyn_cast<CostOpInterface>(op))
    return costed.getWork(*this);
  if (std::optional<std::pair<Bytes, Bytes>> copied = getCopiedBytes(op))
    return timed(costs.costOfCopy(copied->first, copied->second));
  if (auto call = dyn_cast<CallOpInterface>(op))
    return workOfCall(call);
  if (isFree(op)) {
    source = OpCostSource::Free;
    return OpWork::view();
  }
  if (std::optional<OpWork> work = getStablehloWork(op))
    return *work;
  if (std::optional<Ns> time = costs.hasMeasuredOps() ? costs.measuredOp(getTableName(op)) : std::nullopt) {
    source = OpCostSource::Table;
    return timed(*time);
  }
  OpWork work =
      op->getNumRegions() > 0 ? workOfRegions(op) : OpWork::copy(bytesOf(op->getOperands()), bytesOf(op->getResults()));
  work.known = false;
  return work;
}

std::optional<Ns> OperationCosts::askEmbedder(Operation *op) const {
  const Environment *environment = Environment::of(op->getContext());
  if (!environment || !environment->estimate)
    return std::nullopt;
  std::optional<Ns> time = environment->estimate(op);
  return time ? std::optional<Ns>(std::clamp<Ns>(*time, 0, kMaxNs)) : std::nullopt;
}

/// The end of the error bar of a given time that `scenario` names.
static Ns givenTime(Operation *op, CostAttr attr, CostScenario scenario) {
  Ns time = *attr.getTime();
  return atEnd(isa<CollectiveOpInterface>(op) ? scenario.collectives : scenario.operations, time,
               attr.getTimeLo().value_or(time), attr.getTimeHi().value_or(time));
}

bool OperationCosts::isOneShot(Operation *start) const { return start->hasAttr("one_shot") && !machine().nccl; }

OpWork OperationCosts::workOfCollective(CollectiveOpInterface start) const {
  auto parts = static_cast<int64_t>(start.getCollectiveInputs().size());
  Bytes bytes = getCollectiveBytes(start);
  const CollectiveVariant *variant = variantOf(start);
  OpWork work = timed(isOneShot(start) ? costs.costOfOneShot(bytes, shapeOf(start))
                      : variant        ? curveOf(start, *variant)(bytes, parts)
                                       : (*curveOf(start))(bytes, parts));
  work.known = hasKnownBytes(start) && (variant || !start->hasAttr(CommDialect::kVariantAttrName));
  return work;
}

OpWork OperationCosts::learnWithAttribute(Operation *op, OpCostSource &source) const {
  OpWork work = learn(op, source);
  auto attr = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
  if (!attr || (!attr.getFlops() && !attr.getBytes()))
    return work;
  // The attribute replaces the numbers of other sources. Without a model, its operations count as those of a matrix
  // product.
  if (!isa<CostOpInterface>(op)) {
    work = OpWork::copy(bytesOf(op->getOperands()), bytesOf(op->getResults()));
    work.units = ComputeUnits::Matrix;
    work.element = op->getNumOperands() > 0 ? elementTypeOf(op->getOperand(0).getType()) : ElementType::Other;
    if (costs.machine().tiles && attr.getFlops())
      work.product = getProductShape(op);
  }
  work.flops = attr.getFlops().value_or(work.flops);
  if (attr.getBytes()) {
    work.bytesRead = *attr.getBytes();
    work.bytesWritten = 0;
  }
  work.inlined = work.isView = false;
  work.known = true;
  source = OpCostSource::Roofline;
  return work;
}

OpWork OperationCosts::withFusedCollective(Operation *op, OpWork work) const {
  auto group = op->getAttrOfType<FlatSymbolRefAttr>(CommDialect::kHybridAttrName);
  // The collectives in regions are loaded with them.
  if (!group || op->getNumRegions() > 0)
    return work;
  std::optional<FusedCollective> fused = getFusedCollective(op);
  std::optional<Bytes> piece = fused ? getStaticBytes(fused->piece.getType()) : std::nullopt;
  if (!piece) {
    work.known = false;
    return work;
  }
  GroupShape shape = shapeOf(symbols.lookupNearestSymbolFrom<GroupOp>(op, group));
  Bytes bytes = static_cast<Bytes>(std::min<Wide>(static_cast<Wide>(*piece) * shape.ranks, kLargestAmount));
  Ns collective =
      costs.costOfCollective(fused->kind, bytes, shape, elementTypeOf(fused->piece.getType()), group.getValue());
  OpWork both = timed(std::max(timeOf(work), collective));
  both.workspace = work.workspace;
  both.known = work.known;
  return both;
}

OpWork OperationCosts::resolve(Operation *op, OpCostSource &source) const {
  auto attr = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
  OpWork work;
  if (attr && attr.getTime()) {
    source = OpCostSource::Measured;
    work = timed(givenTime(op, attr, costs.scenario()));
  } else if (std::optional<Ns> estimate = askEmbedder(op)) {
    source = OpCostSource::Measured;
    work = timed(*estimate);
  } else if (auto start = dyn_cast<CollectiveOpInterface>(op)) {
    source = OpCostSource::Collective;
    work = workOfCollective(start);
  } else if (const OpTime *entry = findEntry(op)) {
    source = OpCostSource::Table;
    work = timed(costs.timeOf(*entry));
  } else {
    work = learnWithAttribute(op, source);
    // A measured time is that of the whole operation.
    if (source != OpCostSource::Table)
      work = withFusedCollective(op, work);
  }
  if (attr)
    work.workspace = attr.getWorkspace().value_or(work.workspace);
  if (!work.known)
    source = OpCostSource::Guess;
  else if (work.isView)
    source = OpCostSource::Free;
  return work;
}

Ns OperationCosts::timeOf(const OpWork &work) const {
  return addNs(work.time, costs.costOfKernel(work.flops, work.bytes(), work.element, work.units, work.product));
}

Ns OperationCosts::timeOf(Operation *op, const OpWork &work) const {
  if (work.isView)
    return 0;
  // Scalars outside of every kernel run on the host. Loops and calls over them form a kernel.
  bool scalar = work.inlined && op->getNumRegions() == 0 && !isa<CallOpInterface>(op);
  return scalar ? work.time : timeOf(work);
}

Ns OperationCosts::modelledTimeOf(Operation *op) const {
  OpCostSource source;
  auto start = dyn_cast<CollectiveOpInterface>(op);
  return timeOf(op, start ? workOfCollective(start) : withFusedCollective(op, learnWithAttribute(op, source)));
}

OpCost OperationCosts::costOf(Operation *op) const {
  OpCost cost;
  OpWork work = resolve(op, cost.source);
  cost.workspace = work.workspace;
  cost.time = timeOf(op, work);
  bool scalar = work.inlined && op->getNumRegions() == 0 && !isa<CallOpInterface>(op);
  if (cost.time == 0 && scalar && cost.source == OpCostSource::Roofline)
    cost.source = OpCostSource::Free;
  return cost;
}

std::optional<CostEstimate> OperationCosts::estimateOf(Operation *op) const {
  OpCost cost = costOf(op);
  auto start = dyn_cast<CollectiveOpInterface>(op);
  if (cost.source == OpCostSource::Free || (start && shapeOf(start).ranks <= 1))
    return std::nullopt;
  CostEstimate result{cost.time, cost.time, cost.time, CostOrigin::Analytic, 0, {}};
  if (cost.source == OpCostSource::Guess) {
    result.origin = CostOrigin::Guessed;
  } else if (cost.source == OpCostSource::Measured) {
    result.origin = CostOrigin::Given;
    if (auto attr = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName); attr && attr.getTimeLo())
      std::tie(result.lo, result.hi) = std::pair(*attr.getTimeLo(), *attr.getTimeHi());
  } else if (cost.source == OpCostSource::Collective && !isOneShot(op)) {
    Bytes bytes = getCollectiveBytes(start);
    auto parts = static_cast<int64_t>(start.getCollectiveInputs().size());
    const CollectiveVariant *variant = variantOf(start);
    result = variant ? curveOf(start, *variant).estimate(bytes, parts) : curveOf(start)->estimate(bytes, parts);
  } else if (cost.source == OpCostSource::Table) {
    const OpTime *entry = findEntry(op);
    entry = entry ? entry : costs.findOp(getTableName(op));
    result.origin = CostOrigin::Measured;
    result.samples = entry->n;
    if (entry->hasErrorBar())
      std::tie(result.lo, result.hi) = std::pair(entry->lo, entry->hi);
  }
  return result;
}

//===-----------------------------------------------------------------------------------------===//
// Regions and calls
//===-----------------------------------------------------------------------------------------===//

namespace {

/// Adds up the operations of a block in order: kernels on one clock, collectives on one clock per group, and scalar
/// work, which has no position in time.
class BlockClock {
public:
  explicit BlockClock(const OperationCosts &costs) : costs(costs) { sum.inlined = true; }

  void start(CollectiveOpInterface op, Ns cost) {
    Ns &lane = lanes[costs.laneKeyOf(op.getGroupAttr(), op)];
    lane = ends[op.getCollectiveFuture()] = addNs(std::max(now, lane), cost);
    now = addNs(now, costs.machine().issue);
  }

  void wait(Value future) { now = std::max(now, ends.lookup(future)); }

  void compute(const OpWork &work) {
    if (work.isView)
      return;
    now = addNs(now, work.time);
    sum.workspace = std::max(sum.workspace, work.workspace);
    sum.known &= work.known;
    if (!work.inlined) {
      now = addNs(now, costs.model().costOfKernel(work.flops, work.bytes(), work.element, work.units, work.product));
      return;
    }
    // The units with the most work represent the block.
    if (work.flops > mostFlops) {
      mostFlops = work.flops;
      sum.element = work.element;
      sum.units = work.units;
    }
    sum.flops = addAmounts(sum.flops, work.flops);
    sum.bytesRead = addAmounts(sum.bytesRead, work.bytesRead);
    sum.bytesWritten = addAmounts(sum.bytesWritten, work.bytesWritten);
  }

  OpWork finish() {
    sum.time = now;
    for (const auto &lane : lanes)
      sum.time = std::max(sum.time, lane.second);
    return sum;
  }

private:
  const OperationCosts &costs;
  OpWork sum;
  int64_t mostFlops = 0;
  Ns now = 0;
  llvm::SmallMapVector<Attribute, Ns, 4> lanes;
  llvm::DenseMap<Value, Ns> ends;
};

/// The trip count of a loop, if it is known.
std::optional<int64_t> getTripCount(LoopLikeOpInterface loop) {
  std::optional<SmallVector<OpFoldResult>> lower = loop.getLoopLowerBounds(), upper = loop.getLoopUpperBounds(),
                                           steps = loop.getLoopSteps();
  if (!lower || !upper || !steps)
    return std::nullopt;
  int64_t trips = 1;
  for (auto [low, high, step] : llvm::zip_equal(*lower, *upper, *steps)) {
    std::optional<int64_t> from = getConstantIntValue(low), to = getConstantIntValue(high),
                           by = getConstantIntValue(step);
    if (!from || !to || !by || *by <= 0)
      return std::nullopt;
    trips = multiplyAmounts(trips, *to <= *from ? 0 : llvm::divideCeilSigned(*to - *from, *by));
  }
  return trips;
}

} // namespace

OpWork OperationCosts::workOfRegion(Region &region) const {
  BlockClock clock(*this);
  for (Block &block : region)
    for (Operation &op : block) {
      OpCostSource source;
      if (auto start = dyn_cast<CollectiveOpInterface>(op))
        clock.start(start, resolve(&op, source).time);
      else if (auto wait = dyn_cast<WaitOp>(op))
        clock.wait(wait.getFuture());
      else
        clock.compute(resolve(&op, source));
    }
  return clock.finish();
}

OpWork OperationCosts::workOfLongestRegion(Operation *op) const {
  OpWork longest;
  longest.inlined = true;
  bool known = true;
  for (Region &region : op->getRegions()) {
    OpWork work = workOfRegion(region);
    known &= work.known;
    if (timeOf(work) > timeOf(longest))
      longest = work;
  }
  longest.known = known;
  return longest;
}

OpWork OperationCosts::workOfRegions(Operation *op) const {
  auto loop = dyn_cast<LoopLikeOpInterface>(op);
  if (!loop && isa<RegionBranchOpInterface>(op))
    return workOfLongestRegion(op);
  BlockClock clock(*this);
  for (Region &region : op->getRegions())
    clock.compute(workOfRegion(region));
  OpWork work = clock.finish();
  if (!loop)
    return work;
  std::optional<int64_t> trips = getTripCount(loop);
  work.known &= trips.has_value();
  int64_t count = trips.value_or(1);
  work.flops = multiplyAmounts(work.flops, count);
  work.bytesRead = multiplyAmounts(work.bytesRead, count);
  work.bytesWritten = multiplyAmounts(work.bytesWritten, count);
  work.time = std::min<Ns>(kMaxNs, multiplyAmounts(work.time, count));
  return work;
}

Region *OperationCosts::bodyOf(CallOpInterface call) const {
  auto callable = dyn_cast_if_present<CallableOpInterface>(call.resolveCallableInTable(&symbols));
  return callable ? callable.getCallableRegion() : nullptr;
}

OpWork OperationCosts::workOfCall(CallOpInterface call) const {
  OpWork unknown = OpWork::copy(bytesOf(call->getOperands()), bytesOf(call->getResults()));
  unknown.known = false;
  Operation *callee = call.resolveCallableInTable(&symbols);
  auto callable = dyn_cast_if_present<CallableOpInterface>(callee);
  if (!callable || !callable.getCallableRegion())
    return unknown;
  auto [it, inserted] = callees.try_emplace(callee);
  if (!inserted)
    return it->second.value_or(unknown);
  OpWork work = workOfRegion(*callable.getCallableRegion());
  callees[callee] = work; // The map may have grown meanwhile.
  return work;
}
