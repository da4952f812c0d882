//===- HloCosts.cpp - Durations of XLA's instructions -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A kernel is a roofline over the products in it and the bytes of its operands and results. A fusion that reads slices
// of an operand is charged for the slices.
//
//===------------------------------------------------------------------------------------------===//

#include "HloCosts.h"
#include "CommSched/Frontends/Hlo/Graph/HloPrices.h"
#include "CommSched/Support/Arithmetic.h"
#include "HloGraph.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

static int64_t add(int64_t a, int64_t b) { return saturateAmount(static_cast<Wide>(a) + b); }
static int64_t multiply(int64_t a, int64_t b) { return saturateAmount(static_cast<Wide>(a) * b); }

static const HloShape *operandShape(const HloInstruction &instruction, const HloComputation &parent, size_t operand) {
  return operand < instruction.operands.size() ? &parent.instructions[instruction.operands[operand]].shape : nullptr;
}

/// Operations of a product with this result that contracts these dimensions of its first operand.
static int64_t productFlops(const HloShape &result, const HloShape *lhs, ArrayRef<int64_t> contracted) {
  int64_t flops = multiply(2, result.numElements());
  for (int64_t dim : contracted)
    if (lhs && dim >= 0 && dim < static_cast<int64_t>(lhs->dimensions.size()))
      flops = multiply(flops, lhs->dimensions[dim]);
  return flops;
}

/// The type whose rate a product has. JAX multiplies floats as TF32 unless it is told otherwise.
static ElementType productType(const HloShape *lhs) {
  ElementType type = lhs ? elementTypeOf(lhs->elementType) : ElementType::BF16;
  return type == ElementType::F32 ? ElementType::TF32 : type;
}

/// Bytes that a fused computation reads, indexed by parameter: those of the slices that are taken, or -1 for all.
static SmallVector<Bytes, 4> readsOf(const HloComputation &body) {
  SmallVector<Bytes, 4> reads;
  // Indexed by instruction: its parameter number, or -1.
  std::vector<int64_t> parameterAt(body.instructions.size(), -1);
  for (auto [at, instruction] : enumerate(body.instructions)) {
    int64_t number = instruction.parameterNumber;
    if (!instruction.is("parameter") || number < 0 || number >= static_cast<int64_t>(body.instructions.size()))
      continue;
    parameterAt[at] = number;
    if (number >= static_cast<int64_t>(reads.size()))
      reads.resize(number + 1, 0);
  }
  for (const HloInstruction &instruction : body.instructions)
    for (auto [position, operand] : enumerate(instruction.operands)) {
      if (parameterAt[operand] < 0)
        continue;
      Bytes &read = reads[parameterAt[operand]];
      bool takesSlice =
          position == 0 && (instruction.is("dynamic-slice") || instruction.is("slice") || instruction.is("gather"));
      bool writesSlice = position == 0 && instruction.is("dynamic-update-slice");
      if (takesSlice && read >= 0)
        read = add(read, instruction.shape.bytes());
      else if (!writesSlice)
        read = -1;
    }
  return reads;
}

/// Bytes that a fused computation writes if its root updates slices in place, or -1.
static Bytes writesOf(const HloComputation &body) {
  const HloInstruction *root = &body.instructions[body.root];
  while (root->is("bitcast") && !root->operands.empty())
    root = &body.instructions[root->operands[0]];
  const HloShape *update = root->is("dynamic-update-slice") ? operandShape(*root, body, 1) : nullptr;
  return update ? update->bytes() : -1;
}

/// The result of a kernel, without the workspace that a library's call returns beside it.
static const HloShape &resultOf(const HloInstruction &kernel) {
  return kernel.shape.isTuple() && !kernel.shape.elements.empty() ? kernel.shape.elements[0] : kernel.shape;
}

/// Operations of a convolution, or of one of its two gradients. All three multiply each element of the output with as
/// many elements of the kernel as one feature of the output has. They differ in which of the tensors are operands.
static int64_t convolutionFlops(const HloInstruction &call, const HloComputation &parent) {
  const HloShape *lhs = operandShape(call, parent, 0), *rhs = operandShape(call, parent, 1);
  if (!lhs || !rhs)
    return 0;
  const HloShape *output = &resultOf(call), *kernel = rhs;
  if (call.customCallTarget.contains("BackwardFilter"))
    output = rhs, kernel = &resultOf(call);
  else if (call.customCallTarget.contains("BackwardInput"))
    output = lhs;
  const int64_t dimension = call.kernelOutputFeature;
  if (dimension < 0 || dimension >= static_cast<int64_t>(kernel->dimensions.size()))
    return 0;
  const int64_t features = kernel->dimensions[dimension];
  return features > 0 ? multiply(multiply(2, output->numElements()), kernel->numElements() / features) : 0;
}

HloCosts::HloCosts(const HloModule &module, const CostModel &model, OtherTimes other)
    : module(module), model(model), other(other), flopsOf(module.computations.size(), 0),
      elementOf(module.computations.size(), ElementType::BF16), readOf(module.computations.size()),
      writtenOf(module.computations.size(), -1) {
  for (int32_t at : module.calleesFirst) {
    const HloComputation &computation = module.computations[at];
    readOf[at] = readsOf(computation);
    writtenOf[at] = writesOf(computation);
    for (const HloInstruction &instruction : computation.instructions) {
      int64_t flops = 0;
      if (instruction.is("dot")) {
        const HloShape *lhs = operandShape(instruction, computation, 0);
        flops = productFlops(instruction.shape, lhs, instruction.contractedOfLhs);
        elementOf[at] = productType(lhs);
      } else if (instruction.is("convolution")) {
        flops = convolutionFlops(instruction, computation);
        elementOf[at] = productType(operandShape(instruction, computation, 0));
      }
      for (int32_t callee : instruction.called) {
        if (flopsOf[callee] > 0)
          elementOf[at] = elementOf[callee];
        flops = add(flops, flopsOf[callee]);
      }
      flopsOf[at] = add(flopsOf[at], flops);
    }
  }
}

json::Value commsched::hlo::parseConfig(StringRef config) {
  constexpr size_t kMaxBrackets = 1000; // XLA's have about ten.
  if (config.count('[') + config.count('{') > kMaxBrackets)
    return nullptr;
  Expected<json::Value> parsed = json::parse(config);
  if (parsed)
    return std::move(*parsed);
  consumeError(parsed.takeError());
  return nullptr;
}

/// The dimensions that a cuBLAS call contracts, by its configuration.
static SmallVector<int64_t, 2> contractedOfCublas(StringRef config) {
  SmallVector<int64_t, 2> dims;
  json::Value parsed = parseConfig(config);
  const json::Object *object = parsed.getAsObject();
  const json::Object *gemm = object ? object->getObject("gemm_backend_config") : nullptr;
  const json::Object *numbers = gemm ? gemm->getObject("dot_dimension_numbers") : nullptr;
  const json::Array *list = numbers ? numbers->getArray("lhs_contracting_dimensions") : nullptr;
  for (const json::Value &value : list ? *list : json::Array()) {
    int64_t dim = 0;
    if (std::optional<StringRef> text = value.getAsString(); text && !text->getAsInteger(10, dim))
      dims.push_back(dim);
  }
  return dims;
}

KernelWork HloCosts::workOf(const HloInstruction &instruction, const HloComputation &parent) const {
  KernelWork work;
  int32_t body = instruction.is("fusion") && !instruction.called.empty() ? instruction.called[0] : kNone;
  work.bytes = body != kNone && writtenOf[body] >= 0 ? writtenOf[body] : instruction.shape.bytes();
  for (size_t i = 0; i < instruction.operands.size(); ++i) {
    Bytes read = body != kNone && i < readOf[body].size() ? readOf[body][i] : -1;
    work.bytes = add(work.bytes, read >= 0 ? read : operandShape(instruction, parent, i)->bytes());
  }
  const HloShape *lhs = operandShape(instruction, parent, 0);
  if (instruction.is("dot")) {
    work.flops = productFlops(instruction.shape, lhs, instruction.contractedOfLhs);
    work.element = productType(lhs);
  } else if (instruction.is("convolution")) {
    work.flops = convolutionFlops(instruction, parent);
    work.element = productType(lhs);
  } else if (instruction.is("custom-call")) {
    work.flops = customCallFlops(instruction, parent);
    work.element = productType(lhs);
  } else if (body != kNone) {
    work.flops = flopsOf[body];
    work.element = elementOf[body];
  }
  return work;
}

/// Operations of cuBLAS's products, and of cuDNN's convolutions and attention, from their operands.
int64_t HloCosts::customCallFlops(const HloInstruction &call, const HloComputation &parent) const {
  const HloShape *lhs = operandShape(call, parent, 0), *rhs = operandShape(call, parent, 1);
  if (!lhs || !rhs)
    return 0;
  const HloShape &result = resultOf(call);
  if (call.customCallTarget.starts_with("__cudnn$conv"))
    return convolutionFlops(call, parent);
  if (call.customCallTarget.starts_with("__cublas$"))
    return productFlops(result, lhs, contractedOfCublas(call.backendConfig));
  // q is batch x rows x heads x width, and k batch x columns x heads x width. Two products forward, five backward.
  if (call.customCallTarget.starts_with("__cudnn$fmha") && rhs->dimensions.size() == 4) {
    int64_t products = call.customCallTarget.contains("Backward") ? 5 : 2;
    return multiply(multiply(2 * products, lhs->numElements()), rhs->dimensions[1]);
  }
  return 0;
}

KernelCost HloCosts::priced(const KernelWork &work) const {
  KernelCost cost;
  cost.time = model.costOfKernel(work.flops, work.bytes, work.element,
                                 work.flops > 0 ? ComputeUnits::Matrix : ComputeUnits::Vector);
  if (model.contention().any())
    cost.demand = model.contention().ofKernel(work.flops > 0, work.bytes, cost.time);
  return cost;
}

const OpTime *HloCosts::findEntry(const HloInstruction &instruction) const {
  if (!model.hasMeasuredOps())
    return nullptr;
  const OpTime *entry = model.findOp(instruction.name, getResultTypes(instruction.shape));
  return entry ? entry : model.findOp(instruction.name);
}

KernelCost HloCosts::ofKernel(const HloInstruction &instruction, const HloComputation &parent) const {
  for (StringRef free : {"opt-barrier", "tuple", "get-tuple-element", "bitcast", "parameter", "constant", "after-all",
                         "domain", "add-dependency", "async-update"})
    if (instruction.is(free))
      return {};
  KernelWork work = workOf(instruction, parent);
  KernelCost cost = priced(work);
  const OpTime *entry = findEntry(instruction);
  const std::optional<Ns> estimate = estimates() ? estimates()->ofKernel(instruction.name) : std::nullopt;
  if (entry || estimate) {
    cost.time = mixed(entry ? model.timeOf(*entry) : cost.time, estimate);
    if (model.contention().any())
      cost.demand = model.contention().ofKernel(work.flops > 0, work.bytes, cost.time);
  }
  cost.isMeasured = entry != nullptr;
  cost.isUnknown = !entry && work.flops == 0 && (instruction.is("custom-call") || instruction.is("convolution"));
  return cost;
}

Ns HloCosts::mixed(Ns time, std::optional<Ns> estimate) const {
  return estimate ? mixTimes(time, *estimate, other.mix.xlaPermille) : time;
}

Ns HloCosts::timeOf(const CollectiveCost &like, StringRef name, Bytes bytes, int64_t parts) const {
  const Ns time = (*like.curve)(bytes, parts);
  if (other.mix.isModel())
    return time;
  const std::optional<Ns> estimate =
      estimates() ? estimates()->ofCollective(name, like.kind, like.shape, bytes) : std::nullopt;
  return scaleTime(mixed(time, estimate), other.mix.scale);
}

KernelCost HloCosts::ofAsyncKernel(const HloInstruction &start) const {
  KernelCost sum;
  for (int32_t called : start.called)
    for (const HloInstruction &instruction : module.computations[called].instructions) {
      KernelCost cost = ofKernel(instruction, module.computations[called]);
      sum.time = add(sum.time, cost.time);
      sum.demand = cost.demand.any() ? cost.demand : sum.demand;
    }
  return sum;
}

KernelCost HloCosts::ofCopy(Bytes bytes) const { return priced({0, multiply(2, bytes), ElementType::Other}); }

std::optional<Ns> HloCosts::givenTime(StringRef name) const {
  if (!hasGivenTimes())
    return std::nullopt;
  auto found = other.given->find(name);
  return found == other.given->end() ? std::nullopt : std::optional(found->second);
}

const HloInstruction *HloCosts::wrappedBy(const HloInstruction *start) const {
  if (!start->is("async-start") || start->called.size() != 1)
    return start;
  const HloComputation &body = module.computations[start->called[0]];
  return &body.instructions[body.root];
}

static std::optional<CollectiveKind> kindOf(StringRef opcode) {
  opcode.consume_back("-start");
  if (opcode == "all-gather")
    return CollectiveKind::AllGather;
  if (opcode == "reduce-scatter")
    return CollectiveKind::ReduceScatter;
  if (opcode == "all-reduce")
    return CollectiveKind::AllReduce;
  if (opcode == "all-to-all" || opcode == "ragged-all-to-all")
    return CollectiveKind::AllToAll;
  if (opcode == "collective-permute")
    return CollectiveKind::Permute;
  if (opcode == "collective-broadcast")
    return CollectiveKind::Broadcast;
  if (opcode == "send")
    return CollectiveKind::Send;
  if (opcode == "recv")
    return CollectiveKind::Recv;
  return std::nullopt;
}

/// The shape of the group that takes longest: the one on most units of the outermost level, then on most nodes, then
/// the largest.
static GroupShape widestShape(const std::vector<std::vector<int64_t>> &groups, const MachineModel &machine) {
  auto width = [](const GroupShape &shape) {
    return std::tuple(shape.units[1], shape.units[0], shape.nodes, shape.ranks);
  };
  GroupShape widest{0, 0, 0};
  for (const std::vector<int64_t> &group : groups) {
    GroupShape shape = shapeOfRanks(group, machine);
    if (width(shape) > width(widest))
      widest = shape;
  }
  return widest;
}

static std::string keyOf(const SerializedGroups &groups) {
  std::string key = (groups.iota + "|" + groups.mesh).str();
  for (StringRef part : groups.lists)
    key += ("|" + part).str();
  for (StringRef part : groups.pairs)
    key += (">" + part).str();
  return key;
}

Expected<std::optional<CollectiveCost>> HloCosts::ofCollective(const HloInstruction &instruction,
                                                               const HloComputation &parent) {
  const HloInstruction &wrapped = *wrappedBy(&instruction);
  std::optional<CollectiveKind> kind = kindOf(wrapped.opcode);
  if (!kind)
    return std::nullopt;
  Expected<std::vector<std::vector<int64_t>>> groups = groupsOf(module, wrapped.groups);
  if (!groups)
    return createStringError("'" + instruction.name + "': " + toString(groups.takeError()));
  CollectiveCost cost;
  cost.kind = *kind;
  cost.shape = widestShape(*groups, machine());
  cost.group = groupIds.try_emplace(keyOf(wrapped.groups), groupIds.size()).first->second;
  int64_t parts = 0, element = 0;
  Bytes largest = -1;
  // Of a ragged exchange only the first operand travels.
  ArrayRef<int32_t> operands = instruction.operands;
  if (wrapped.opcode.starts_with("ragged-"))
    operands = operands.take_front();
  for (int32_t operand : operands) {
    const HloShape &shape = parent.instructions[operand].shape;
    cost.bytes = add(cost.bytes, shape.bytes());
    parts += shape.bytes() > 0;
    if (!shape.isTuple() && shape.bytes() > largest) {
      largest = shape.bytes();
      element = shape.elementType;
    }
  }
  if (*kind == CollectiveKind::Recv)
    cost.bytes = instruction.shape.bytes();
  if (*kind == CollectiveKind::AllGather)
    cost.bytes = multiply(cost.bytes, cost.shape.ranks);
  cost.element = elementTypeOf(static_cast<int32_t>(element));
  cost.curve = model.curve(*kind, cost.shape, cost.element);
  cost.time = timeOf(cost, instruction.name, cost.bytes, std::max<int64_t>(parts, 1));
  if (model.contention().any())
    cost.demand = model.contention().ofCollective(*kind, cost.bytes, cost.shape, cost.time);
  return cost;
}

std::optional<int64_t> commsched::hlo::tripCountOf(const HloInstruction &loop) {
  json::Value parsed = parseConfig(loop.backendConfig);
  const json::Object *object = parsed.getAsObject();
  const json::Object *count = object ? object->getObject("known_trip_count") : nullptr;
  int64_t trips = 0;
  if (std::optional<StringRef> text = count ? count->getString("n") : std::nullopt)
    if (!text->getAsInteger(10, trips) && trips >= 0)
      return trips;
  return std::nullopt;
}
