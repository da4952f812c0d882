//===- CostModel.cpp - Costs of collectives, copies and kernels on a machine ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Rooflines and tables over a machine profile.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/CostModel.h"
#include "CommSched/Machine/Rounding.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;
using namespace commsched::detail;

std::shared_ptr<const CollectiveCurve> CostModel::curve(CollectiveKind kind, GroupShape shape, ElementType element,
                                                        llvm::StringRef group) const {
  // The name matters only if a table names the group.
  bool named = llvm::any_of(model.collectives, [&](const CollectiveTable &table) { return table.group == group; });
  CurveKey key{kind, shape, element, named ? group.str() : std::string()};
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<const CollectiveCurve> &curve = curves[key];
  if (!curve)
    curve = std::make_shared<const CollectiveCurve>(
        CollectiveCurve::get(model, kind, shape, element, group, ends.collectives));
  return curve;
}

Ns VariantCurve::changed(Ns time) const {
  if (time == 0)
    return 0;
  return addNs(std::min<Wide>(kMaxNs, (static_cast<Wide>(time) * timePermille + kPermille - 1) / kPermille), latency);
}

CostEstimate VariantCurve::estimate(Bytes bytes, int64_t parts) const {
  CostEstimate result = curve->estimate(bytes, parts);
  for (Ns *time : {&result.ns, &result.lo, &result.hi})
    *time = changed(*time);
  return result;
}

const CollectiveVariant *CostModel::findVariant(CollectiveKind kind, const VariantName &name) const {
  auto found = llvm::find_if(
      model.variants, [&](const CollectiveVariant &variant) { return variant.kind == kind && variant.name == name; });
  return found == model.variants.end() ? nullptr : &*found;
}

VariantCurve CostModel::curve(const CollectiveVariant &variant, GroupShape shape, ElementType element,
                              llvm::StringRef group) const {
  std::shared_ptr<const CollectiveCurve> usual = curve(variant.kind, shape, element, group);
  if (variant.curves.empty() || shape.ranks <= 1)
    return {std::move(usual), variant.timePermille, variant.latency};
  CurveKey key{variant.kind, shape, element, group.str()};
  std::lock_guard<std::mutex> lock(mutex);
  auto [own, isNew] = ownCurves.try_emplace({&variant, key});
  if (isNew) {
    MachineModel machine = model;
    machine.collectives = variant.curves;
    auto measured = std::make_shared<const CollectiveCurve>(
        CollectiveCurve::get(machine, variant.kind, shape, element, group, ends.collectives));
    if (measured->source() == CostSource::Measured || measured->source() == CostSource::Scaled)
      own->second = std::move(measured);
  }
  if (own->second)
    return {own->second};
  return {std::move(usual), variant.timePermille, variant.latency};
}

Ns CostModel::costOfOneShot(Bytes bytes, GroupShape shape) const {
  if (shape.ranks <= 1)
    return 0;
  int64_t inside = std::clamp<int64_t>(shape.ranksPerNode, 1, shape.ranks) - 1, outside = shape.ranks - 1 - inside;
  Wide wide = std::max<Bytes>(0, bytes);
  Ns reading = 0, hop = 0;
  auto readOver = [&](const LinkClass &link, int64_t peers) {
    if (peers <= 0)
      return;
    reading = std::max(reading, timeAtRate(wide * peers, link.bytesPerSecond));
    hop = std::max(hop, link.latency);
  };
  readOver(model.intra, inside);
  readOver(model.inter, outside);
  for (auto [level, units] : llvm::zip(model.levels, shape.units))
    readOver(level.links, shape.ranks - llvm::divideCeil(shape.ranks, units));
  return addNs(addNs(model.launch, reading), addNs(hop, hop));
}

Ns CostModel::costOfCopy(Bytes read, Bytes written) const {
  Wide bytes = static_cast<Wide>(std::max<Bytes>(0, read)) + std::max<Bytes>(0, written);
  return bytes == 0 ? 0 : addNs(model.copyLaunch, timeAtRate(bytes, model.copyBytesPerSecond));
}

Ns CostModel::costOfWork(int64_t flops, Bytes bytes, ElementType element, ComputeUnits units) const {
  bool isProduct = units == ComputeUnits::Matrix && flops > 0;
  int64_t rate = units == ComputeUnits::Matrix ? model.matrixRate(element) : model.vectorRate(element);
  Wide lost = isProduct ? model.matrixHalfFlops(element) : 0;
  return std::max(timeAtRate(std::max<int64_t>(0, flops) + lost, rate),
                  timeAtRate(std::max<Bytes>(0, bytes), model.memoryBytesPerSecond));
}

/// The most work whose time can be computed in 128 bits.
static constexpr Wide kMostWork = (Wide(1) << 125) / 1'000'000'000;

static int64_t divideUp(int64_t amount, int64_t by) { return amount / by + (amount % by != 0); }

Ns CostModel::costOfTiles(int64_t flops, ElementType element, ProductShape product) const {
  if (!model.tiles || !product || flops <= 0)
    return 0;
  const MatrixTiles &tiles = *model.tiles;
  int64_t elements = multiplyAmounts(multiplyAmounts(product.rows, product.columns), product.batches);
  // A fused multiply-add counts as two operations.
  int64_t depth = addAmounts(divideUp(divideUp(flops, std::max<int64_t>(1, elements)), 2), tiles.depth);
  Ns best = kMaxNs;
  for (const TileSize &size : tiles.sizes) {
    int64_t count = multiplyAmounts(divideUp(product.rows, size.rows), divideUp(product.columns, size.columns));
    int64_t waves = divideUp(multiplyAmounts(count, product.batches), tiles.units);
    // In a wave, every unit takes the time of a whole tile, whether it has one or not.
    Wide wave = Wide(2) * multiplyAmounts(multiplyAmounts(size.rows, size.columns), tiles.units) * depth;
    Wide rate = std::max<Wide>(1, Wide(model.matrixPeak(element)) * size.permille / kPermille);
    if (waves <= kMostWork / wave)
      best = std::min(best, timeAtRate(waves * wave, rate));
  }
  return best;
}

Ns CostModel::costOfKernel(int64_t flops, Bytes bytes, ElementType element, ComputeUnits units,
                           ProductShape product) const {
  if (flops <= 0 && bytes <= 0)
    return 0;
  Ns work = costOfWork(flops, bytes, element, units);
  Ns inWaves = units == ComputeUnits::Matrix ? costOfTiles(flops, element, product) : 0;
  return addNs(model.launch, std::max(work, inWaves));
}

/// The key of a measured operation: its name, operand types and form. Neither of them has an end of line.
static std::string opKey(llvm::StringRef name, llvm::ArrayRef<std::string> shapes, llvm::StringRef form) {
  std::string key = name.str();
  for (const std::string &shape : shapes)
    key += '\n' + shape;
  return form.empty() ? key : key + "\n\n" + form.str();
}

CostModel::CostModel(MachineModel machine, CostScenario scenario) : model(std::move(machine)), ends(scenario) {
  // Of several entries with one key, the first counts.
  for (auto [index, op] : llvm::enumerate(model.ops)) {
    opEntries.try_emplace(opKey(op.name, op.shapes, op.form), index);
    if (!op.form.empty())
      namesWithForms.insert(op.name);
  }
}

const OpTime *CostModel::findOp(llvm::StringRef name, llvm::ArrayRef<std::string> shapes, llvm::StringRef form) const {
  auto found = opEntries.find(opKey(name, shapes, form));
  return found == opEntries.end() ? nullptr : &model.ops[found->second];
}

std::optional<Ns> CostModel::measuredOp(llvm::StringRef name, llvm::ArrayRef<std::string> shapes) const {
  const OpTime *op = findOp(name, shapes);
  return op ? std::optional<Ns>(timeOf(*op)) : std::nullopt;
}
