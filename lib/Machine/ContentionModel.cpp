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

/// The share of a bandwidth, in millionths, that moving `bytes` in `time` takes; rounded up, so that what activities
/// share is never more than there is.
static int64_t shareOfBandwidth(Wide bytes, Ns time, int64_t bytesPerSecond) {
  if (bytes <= 0)
    return 0;
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  Wide capacity = static_cast<Wide>(std::max<Ns>(time, 1)) * bytesPerSecond / kNsPerSecond;
  return bytes >= capacity ? kWhole : static_cast<int64_t>((bytes * kWhole + capacity - 1) / capacity);
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

/// Whether a table says that anything is slowed down.
static bool anyIn(llvm::ArrayRef<ContentionEntry> entries) {
  return llvm::any_of(
      entries, [](const ContentionEntry &entry) { return entry.computePermille > 0 || entry.collectivePermille > 0; });
}

/// Whether two collectives of a part are slower beside each other.
static bool disturbs(const ShareEntry &entry) { return entry.part > kWhole / 2; }

bool ContentionModel::sharesDevice() const {
  return hasUnits() || anyIn(machine.contention) ||
         llvm::any_of(shares(), [](const ShareEntry &entry) { return disturbs(entry); }) ||
         llvm::any_of(machine.variants, [](const CollectiveVariant &variant) { return anyIn(variant.contention); });
}

bool ContentionModel::any() const { return sharesLinks() || sharesDevice(); }

llvm::ArrayRef<ShareEntry> ContentionModel::shares() const {
  return machine.resources ? llvm::ArrayRef<ShareEntry>(machine.resources->shares) : llvm::ArrayRef<ShareEntry>();
}

bool ContentionModel::isMeasured(CollectiveKind kind) const {
  return llvm::any_of(machine.contention, [&](const ContentionEntry &entry) { return entry.kind == kind; });
}

bool ContentionModel::isMeasured(CollectiveKind kind, Against against) const {
  return llvm::any_of(machine.contention,
                      [&](const ContentionEntry &entry) { return entry.kind == kind && entry.against == against; });
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

/// The measured share of a kind on the same class of links whose bytes are nearest; null without one.
static const ShareEntry *findShare(llvm::ArrayRef<ShareEntry> shares, CollectiveKind kind, Bytes bytes,
                                   bool acrossNodes) {
  const ShareEntry *best = nullptr;
  for (const ShareEntry &entry : shares)
    if (entry.kind == kind && entry.acrossNodes == acrossNodes && (!best || isNearer(bytes, entry.bytes, best->bytes)))
      best = &entry;
  return best;
}

/// The median of what was measured on the same links (the lower one of an even number). If nothing was, collectives on
/// lanes that the profile lets them share still run one after the other there. O(shares log shares).
int64_t ContentionModel::partOfUnmeasured(bool acrossNodes) const {
  std::vector<int64_t> measured;
  for (const ShareEntry &entry : shares())
    if (entry.acrossNodes == acrossNodes)
      measured.push_back(entry.part);
  if (measured.empty())
    return machine.lanes != machine.givenLanes ? kWhole : 0;
  llvm::sort(measured);
  int64_t median = measured[(measured.size() - 1) / 2];
  return median > kWhole / 2 ? median : 0;
}

Demand ContentionModel::ofKernel(bool isProduct, Bytes bytes, Ns time) const {
  Demand demand;
  if (time <= 0 || !sharesDevice())
    return demand;
  int64_t vector = hasUnits() ? machine.resources->vectorUnitsPermille : kVectorUnitsPermille;
  demand.set(Resource::ComputeUnits, isProduct ? kWhole : vector * (kWhole / kPermille));
  demand.set(Resource::Memory, shareOfBandwidth(bytes, time, machine.memoryBytesPerSecond));
  return demand;
}

Demand ContentionModel::ofCopy() const {
  Demand demand = ofKernel(/*isProduct=*/false, 0, 1);
  if (sharesDevice())
    demand.set(Resource::Memory, kWhole);
  return demand;
}

namespace {

/// What one rank sends over links inside its node and out of it, bytes.
struct Traffic {
  Wide inside = 0, outside = 0;
};

/// The same for `bytes` bytes of a collective.
struct TrafficRate {
  Traffic traffic;
  int64_t bytes = 1;

  /// Rounded up.
  Traffic of(Bytes size) const {
    auto part = [&](Wide moved) { return (moved * std::max<Bytes>(size, 0) + bytes - 1) / bytes; };
    return {part(traffic.inside), part(traffic.outside)};
  }
};

} // namespace

/// The link of a group whose shares are measured.
static Resource slowestLink(GroupShape shape) { return shape.nodes > 1 ? Resource::Network : Resource::NodeLinks; }

/// The bytes of the alpha-beta model (MachineModel.md). A ring over nodes passes both classes of links, and the
/// ranks of a node share what leaves it.
static TrafficRate trafficOf(CollectiveKind kind, GroupShape shape) {
  int64_t ranks = std::max<int64_t>(shape.ranks, 1), local = std::clamp<int64_t>(shape.ranksPerNode, 1, ranks);
  Wide moved = static_cast<Wide>(ranks) * local;
  TrafficRate rate{{}, ranks * local};
  switch (kind) {
  case CollectiveKind::AllToAll:
    rate.traffic = {static_cast<Wide>(local - 1) * local, static_cast<Wide>(ranks - local) * local};
    return rate;
  case CollectiveKind::Barrier:
    return rate;
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::Gather:
  case CollectiveKind::Scatter:
    moved = static_cast<Wide>(ranks - 1) * local;
    break;
  case CollectiveKind::AllReduce:
    moved = static_cast<Wide>(2) * (ranks - 1) * local;
    break;
  case CollectiveKind::Broadcast:
  case CollectiveKind::Reduce:
  case CollectiveKind::Permute:
  case CollectiveKind::Send:
  case CollectiveKind::Recv:
    break;
  }
  rate.traffic = shape.nodes <= 1 ? Traffic{moved, 0} : Traffic{local > 1 ? moved : 0, moved / local};
  return rate;
}

/// The parts of memory and links, as far as the profile says. What was measured of two at once precedes what follows
/// from bandwidths: two of them meet it on the slowest link, and do not take longer on another one.
void ContentionModel::addTraffic(Demand &demand, CollectiveKind kind, Bytes bytes, GroupShape shape, Ns time) const {
  Traffic traffic = trafficOf(kind, shape).of(bytes);
  const ShareEntry *share = findShare(shares(), kind, bytes, shape.nodes > 1);
  int64_t most = share ? share->part : kWhole;
  if (hasUnits()) {
    Wide inMemory = (traffic.inside + traffic.outside) * machine.resources->trafficPermille / kPermille;
    demand.set(Resource::Memory, shareOfBandwidth(inMemory, time, machine.memoryBytesPerSecond));
  }
  if (sharesLinks()) {
    auto set = [&](Resource resource, Wide moved, int64_t bytesPerSecond) {
      demand.set(resource, std::min(most, shareOfBandwidth(moved, time, bytesPerSecond)));
    };
    set(Resource::NodeLinks, traffic.inside, machine.resources->nodeLinksBytesPerSecond);
    set(Resource::Network, traffic.outside, machine.resources->networkBytesPerSecond);
  }
  if (share && disturbs(*share))
    demand.set(slowestLink(shape), most);
  if (int64_t part = partOfUnmeasured(shape.nodes > 1); !share && !sharesLinks() && part > 0) {
    demand.set(slowestLink(shape), part);
    // On a machine with one lane, those within nodes wait for those across nodes, too.
    if (part == kWhole && machine.givenLanes == LaneSharing::One)
      for (Resource link : {Resource::NodeLinks, Resource::Network})
        demand.set(link, kWhole);
  }
}

Demand ContentionModel::ofCollective(CollectiveKind kind, Bytes bytes, GroupShape shape, Ns time, int64_t ctas) const {
  Demand demand;
  if (time <= 0 || shape.ranks <= 1)
    return demand;
  if (hasUnits())
    demand.set(Resource::ComputeUnits,
               mulDiv(kWhole, ctas > 0 ? ctas : machine.resources->ctas, machine.resources->computeUnits));
  addTraffic(demand, kind, bytes, shape, time);
  CollectiveKind measured = kind;
  if (!isMeasured(kind)) {
    if (hasUnits())
      return demand;
    // Nothing is measured where variants alone have tables.
    if (machine.contention.empty())
      return demand;
    measured = machine.contention.front().kind;
  }
  int64_t blocks = ctas > 0 || !hasUnits() ? ctas : machine.resources->ctas;
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
    if (!hasUnits() && sharesDevice()) {
      Traffic traffic = trafficOf(variant.kind, shape).of(bytes);
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

Shares ContentionModel::leastOfCollective(CollectiveKind kind, GroupShape shape) const {
  Shares least{};
  if (shape.ranks <= 1)
    return least;
  bool acrossNodes = shape.nodes > 1, isMeasuredBeside = false;
  int64_t part = kWhole;
  for (const ShareEntry &entry : shares())
    if (entry.kind == kind && entry.acrossNodes == acrossNodes) {
      isMeasuredBeside = true;
      part = std::min<int64_t>(part, disturbs(entry) ? entry.part : 0);
    }
  if (isMeasuredBeside || !sharesLinks())
    least[static_cast<unsigned>(slowestLink(shape))] =
        static_cast<int32_t>(isMeasuredBeside ? part : partOfUnmeasured(acrossNodes));
  if (hasUnits())
    least[static_cast<unsigned>(Resource::ComputeUnits)] = static_cast<int32_t>(
        std::min(kWhole, mulDiv(kWhole, machine.resources->ctas, machine.resources->computeUnits)));
  for (auto [against, resource] :
       {std::pair(Against::Matrix, Resource::ComputeUnits), std::pair(Against::Memory, Resource::Memory)}) {
    if (!isMeasured(kind, against))
      continue;
    int64_t share = kWhole;
    for (const ContentionEntry &entry : machine.contention)
      if (entry.kind == kind && entry.against == against)
        share = std::min(share, demandOfPair(entry.computePermille, entry.collectivePermille).first);
    least[static_cast<unsigned>(resource)] = static_cast<int32_t>(share);
  }
  return least;
}

Uses ContentionModel::usesOfCollective(CollectiveKind kind, GroupShape shape) const {
  Uses uses{};
  if (!sharesLinks() || shape.ranks <= 1)
    return uses;
  TrafficRate rate = trafficOf(kind, shape);
  auto set = [&](Resource resource, Wide moved, int64_t bytesPerSecond) {
    constexpr int64_t kMillionthsPerSecond = 1'000'000'000 * kMillion;
    // A GiB of the collective moves moved / rate.bytes GiB.
    uses[static_cast<unsigned>(resource)] =
        static_cast<int64_t>(moved * kUseBytes / rate.bytes * kMillionthsPerSecond / bytesPerSecond);
  };
  auto [inside, outside] = rate.traffic;
  // What was measured may be less than what follows from bandwidths.
  if (hasUnits() && !isMeasured(kind, Against::Memory))
    set(Resource::Memory, (inside + outside) * machine.resources->trafficPermille / kPermille,
        machine.memoryBytesPerSecond);
  if (!findShare(shares(), kind, 0, shape.nodes > 1)) {
    set(Resource::NodeLinks, inside, machine.resources->nodeLinksBytesPerSecond);
    set(Resource::Network, outside, machine.resources->networkBytesPerSecond);
  }
  return uses;
}
