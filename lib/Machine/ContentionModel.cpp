//===- ContentionModel.cpp - Demands of activities on a machine's resources -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Chooses entries of contention tables, and computes shares of bandwidth.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/ContentionModel.h"
#include "CommSched/Machine/Rounding.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// The share of a bandwidth, in millionths, that moving `bytes` in `time` takes.
static int64_t shareOfBandwidth(Wide bytes, Ns time, int64_t bytesPerSecond) {
  if (bytes <= 0)
    return 0;
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  Wide capacity = static_cast<Wide>(std::max<Ns>(time, 1)) * bytesPerSecond / kNsPerSecond;
  return capacity <= 0 || bytes >= capacity ? kWhole : static_cast<int64_t>(bytes * kWhole / capacity);
}

std::pair<int64_t, int64_t> commsched::demandOfPair(int64_t computePermille, int64_t collectivePermille) {
  if (computePermille <= 0 && collectivePermille <= 0)
    return {0, kFairWeight};
  // A kernel that is not slowed at all leaves nothing to the collective, so a thousandth is the least.
  int64_t compute = kPermille + std::max<int64_t>(computePermille, 1), collective = kPermille + collectivePermille;
  int64_t share = mulDivUp(mulDivUp(kWhole, compute - kPermille, compute), collective, kPermille);
  if (share <= kWhole)
    return {share, compute - kPermille};
  return {kWhole, std::max<int64_t>(1, mulDiv(kFairWeight, compute, collective))};
}

bool ContentionModel::any() const {
  auto anyOf = [](llvm::ArrayRef<ContentionEntry> entries) {
    return llvm::any_of(entries, [](const ContentionEntry &entry) {
      return entry.computePermille > 0 || entry.collectivePermille > 0;
    });
  };
  return machine.resources || anyOf(machine.contention) ||
         llvm::any_of(machine.pairs, [](const PairEntry &entry) { return entry.permille > 0; }) ||
         llvm::any_of(machine.variants, [&](const CollectiveVariant &variant) { return anyOf(variant.contention); });
}

bool ContentionModel::isMeasured(CollectiveKind kind) const {
  return llvm::any_of(machine.contention, [&](const ContentionEntry &entry) { return entry.kind == kind; });
}

/// Whether the size `first` is nearer to `bytes` than `second`, by ratio.
static bool isNearer(Bytes bytes, Bytes first, Bytes second) {
  bytes = std::max<Bytes>(bytes, 1), first = std::max<Bytes>(first, 1), second = std::max<Bytes>(second, 1);
  // Ratios of sizes, as fractions of at least 1.
  return compareProducts(std::max(bytes, first), std::min(bytes, second), std::max(bytes, second),
                         std::min(bytes, first)) < 0;
}

/// The entry of a kind whose thread blocks and then whose bytes are nearest; null without an entry.
static const ContentionEntry *find(llvm::ArrayRef<ContentionEntry> entries, CollectiveKind kind, Against against,
                                   Bytes bytes, int64_t ctas) {
  auto offBlocks = [&](const ContentionEntry &entry) { return std::abs(entry.ctas - ctas); };
  const ContentionEntry *best = nullptr;
  for (const ContentionEntry &entry : entries) {
    if (entry.kind != kind || entry.against != against)
      continue;
    if (!best || offBlocks(entry) < offBlocks(*best) ||
        (offBlocks(entry) == offBlocks(*best) && isNearer(bytes, entry.bytes, best->bytes)))
      best = &entry;
  }
  return best;
}

/// The measured pair of a kind on the same class of links whose bytes are nearest; null without one.
static const PairEntry *findPair(const MachineModel &machine, CollectiveKind kind, Bytes bytes, bool acrossNodes) {
  const PairEntry *best = nullptr;
  for (const PairEntry &entry : machine.pairs)
    if (entry.kind == kind && entry.acrossNodes == acrossNodes && (!best || isNearer(bytes, entry.bytes, best->bytes)))
      best = &entry;
  return best;
}

/// What two collectives of any kind do to each other on the same links, permille: the median of what was measured (the
/// lower one of an even number). None if nothing was. O(pairs log pairs).
static std::optional<int64_t> medianOfPairs(const MachineModel &machine, bool acrossNodes) {
  std::vector<int64_t> measured;
  for (const PairEntry &entry : machine.pairs)
    if (entry.acrossNodes == acrossNodes)
      measured.push_back(entry.permille);
  if (measured.empty())
    return std::nullopt;
  llvm::sort(measured);
  return measured[(measured.size() - 1) / 2];
}

Demand ContentionModel::ofKernel(bool isProduct, Bytes bytes, Ns time) const {
  Demand demand;
  if (time <= 0)
    return demand;
  int64_t vector = machine.resources ? machine.resources->vectorUnitsPermille : kVectorUnitsPermille;
  demand.set(Resource::ComputeUnits, isProduct ? kWhole : vector * (kWhole / kPermille));
  demand.set(Resource::Memory, shareOfBandwidth(bytes, time, machine.memoryBytesPerSecond));
  return demand;
}

Demand ContentionModel::ofCopy() const {
  Demand demand = ofKernel(/*isProduct=*/false, 0, 1);
  demand.set(Resource::Memory, kWhole);
  return demand;
}

namespace {

/// What one rank sends over links inside its node and out of it, bytes.
struct Traffic {
  Wide inside = 0, outside = 0;
};

} // namespace

/// The bytes of the alpha-beta model (MachineModel.md). A ring over nodes passes both classes of links, and the
/// ranks of a node share what leaves it.
static Traffic trafficOf(CollectiveKind kind, Bytes bytes, GroupShape shape) {
  int64_t ranks = std::max<int64_t>(shape.ranks, 1), local = std::clamp<int64_t>(shape.ranksPerNode, 1, ranks);
  Wide size = std::max<Bytes>(bytes, 0), moved = size;
  switch (kind) {
  case CollectiveKind::AllToAll:
    return {size * (local - 1) / ranks, size * (ranks - local) / ranks};
  case CollectiveKind::Barrier:
    return {};
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::Gather:
  case CollectiveKind::Scatter:
    moved = size * (ranks - 1) / ranks;
    break;
  case CollectiveKind::AllReduce:
    moved = 2 * size * (ranks - 1) / ranks;
    break;
  case CollectiveKind::Broadcast:
  case CollectiveKind::Reduce:
  case CollectiveKind::Permute:
  case CollectiveKind::Send:
  case CollectiveKind::Recv:
    break;
  }
  if (shape.nodes <= 1)
    return {moved, 0};
  return {local > 1 ? moved : 0, moved / local};
}

/// The part of a link of two collectives that take so much longer beside each other than alone.
static int64_t partOfPair(int64_t permille) {
  return std::min<int64_t>(kWhole, (kPermille + permille) * (kWhole / kPermille) / 2);
}

/// The parts of memory and links, as far as the profile says. What was measured of pairs precedes what follows from
/// bandwidths: two of them meet it on the slowest link, and do not take longer on another one.
void ContentionModel::addTraffic(Demand &demand, CollectiveKind kind, Bytes bytes, GroupShape shape, Ns time) const {
  Traffic traffic = trafficOf(kind, bytes, shape);
  Resource slowest = shape.nodes > 1 ? Resource::Network : Resource::NodeLinks;
  const PairEntry *pair = findPair(machine, kind, bytes, shape.nodes > 1);
  int64_t most = pair ? partOfPair(pair->permille) : kWhole;
  if (machine.resources) {
    Wide inMemory = (traffic.inside + traffic.outside) * machine.resources->trafficPermille / kPermille;
    demand.set(Resource::Memory, shareOfBandwidth(inMemory, time, machine.memoryBytesPerSecond));
    demand.set(Resource::NodeLinks,
               std::min(most, shareOfBandwidth(traffic.inside, time, machine.intra.bytesPerSecond)));
    demand.set(Resource::Network,
               std::min(most, shareOfBandwidth(traffic.outside, time, machine.inter.bytesPerSecond)));
  }
  if (pair) {
    if (pair->permille > 0)
      demand.set(slowest, most);
  } else if (std::optional<int64_t> median = medianOfPairs(machine, shape.nodes > 1);
             median.value_or(0) > 0 && !machine.resources) {
    demand.set(slowest, partOfPair(*median));
  }
}

Demand ContentionModel::ofCollective(CollectiveKind kind, Bytes bytes, GroupShape shape, Ns time, int64_t ctas) const {
  Demand demand;
  if (time <= 0 || shape.ranks <= 1)
    return demand;
  if (machine.resources)
    demand.set(Resource::ComputeUnits,
               mulDiv(kWhole, ctas > 0 ? ctas : machine.resources->ctas, machine.resources->computeUnits));
  addTraffic(demand, kind, bytes, shape, time);
  CollectiveKind measured = kind;
  if (!isMeasured(kind)) {
    if (machine.resources)
      return demand;
    // Nothing is measured where variants alone have tables.
    if (machine.contention.empty())
      return demand;
    measured = machine.contention.front().kind;
  }
  int64_t blocks = ctas > 0 || !machine.resources ? ctas : machine.resources->ctas;
  bool choosesItself = ctas == 0 && llvm::any_of(machine.contention, [&](const ContentionEntry &entry) {
                         return entry.kind == measured && entry.ctas == 0;
                       });
  for (auto [against, resource] :
       {std::pair(Against::Matrix, Resource::ComputeUnits), std::pair(Against::Memory, Resource::Memory)})
    if (const ContentionEntry *entry = find(machine.contention, measured, against, bytes, choosesItself ? 0 : blocks)) {
      auto [share, weight] = demandOfPair(entry->computePermille, entry->collectivePermille);
      demand.set(resource, share, weight);
    }
  return demand;
}

Demand ContentionModel::ofVariant(const CollectiveVariant &variant, Bytes bytes, GroupShape shape, Ns time) const {
  Demand demand;
  if (time <= 0 || shape.ranks <= 1)
    return demand;
  if (variant.name.means == VariantName::CopyEngine) {
    addTraffic(demand, variant.kind, bytes, shape, time);
    // They read what is sent and write what is received, whether or not the profile says what devices share.
    if (!machine.resources) {
      Traffic traffic = trafficOf(variant.kind, bytes, shape);
      Wide inMemory = (traffic.inside + traffic.outside) * kTrafficPermille / kPermille;
      demand.set(Resource::Memory, shareOfBandwidth(inMemory, time, machine.memoryBytesPerSecond));
    }
    demand.set(Resource::CopyEngines, kWhole);
  } else {
    demand = ofCollective(variant.kind, bytes, shape, time, variant.name.ctas);
  }
  for (auto [against, resource] :
       {std::pair(Against::Matrix, Resource::ComputeUnits), std::pair(Against::Memory, Resource::Memory)})
    if (const ContentionEntry *entry = find(variant.contention, variant.kind, against, bytes, variant.name.ctas)) {
      auto [share, weight] = demandOfPair(entry->computePermille, entry->collectivePermille);
      demand.set(resource, share, weight);
    }
  return demand;
}

Shares ContentionModel::leastOfCollective(CollectiveKind kind) const {
  Shares least{};
  if (!isMeasured(kind))
    return least;
  for (auto [against, resource] :
       {std::pair(Against::Matrix, Resource::ComputeUnits), std::pair(Against::Memory, Resource::Memory)}) {
    int64_t share = kWhole;
    bool found = false;
    for (const ContentionEntry &entry : machine.contention)
      if (entry.kind == kind && entry.against == against) {
        share = std::min(share, demandOfPair(entry.computePermille, entry.collectivePermille).first);
        found = true;
      }
    least[static_cast<unsigned>(resource)] = static_cast<int32_t>(found ? share : 0);
  }
  return least;
}
