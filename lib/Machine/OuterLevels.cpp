//===- OuterLevels.cpp - Costs of groups that leave units of outer levels ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Per kind: how many bytes leave a unit, and how many hops out of units follow each other.
//
//===------------------------------------------------------------------------------------------===//

#include "OuterLevels.h"
#include "CommSched/Machine/Rounding.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::detail;

/// How many bytes of a collective of `bytes` bytes leave a unit in which the group has `inside` of its ranks, for each
/// of these ranks, as a fraction. The ring of a gather or a sum leaves the unit once, and all these ranks have a part
/// of what carries it; messages from every rank to every other one leave it from the ranks that send them.
static std::pair<Wide, Wide> leaving(CollectiveKind kind, int64_t ranks, int64_t inside) {
  switch (kind) {
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::Gather:
  case CollectiveKind::Scatter:
    return {ranks - 1, static_cast<Wide>(ranks) * inside};
  case CollectiveKind::AllReduce:
    return {2 * (ranks - 1), static_cast<Wide>(ranks) * inside};
  case CollectiveKind::Broadcast:
  case CollectiveKind::Reduce:
    return {1, inside};
  case CollectiveKind::AllToAll:
    return {ranks - inside, ranks};
  case CollectiveKind::Permute:
  case CollectiveKind::Send:
  case CollectiveKind::Recv:
    return {1, 1};
  case CollectiveKind::Barrier:
    return {0, 1};
  }
  return {0, 1};
}

/// How many hops out of one unit into another one follow each other.
static int64_t hopsOut(CollectiveKind kind, int64_t units) {
  switch (kind) {
  case CollectiveKind::AllToAll:
  case CollectiveKind::Permute:
  case CollectiveKind::Send:
  case CollectiveKind::Recv:
    return 1;
  case CollectiveKind::AllReduce:
  case CollectiveKind::Barrier:
    return 2 * llvm::Log2_64_Ceil(units);
  default:
    return llvm::Log2_64_Ceil(units);
  }
}

void detail::leaveUnits(const MachineModel &machine, CollectiveKind kind, GroupShape shape,
                        std::vector<CostLine> &lines) {
  Ns below = machine.inter.latency;
  for (auto [index, level] : llvm::enumerate(machine.levels)) {
    int64_t units = shape.units[index];
    Ns further = std::max<Ns>(0, level.links.latency - below) * hopsOut(kind, units);
    below = level.links.latency;
    if (units <= 1)
      continue;
    int64_t inside = llvm::divideCeil(shape.ranks, units);
    if (kind == CollectiveKind::AllToAll)
      further += level.links.message * (shape.ranks - inside);
    auto [numerator, denominator] = leaving(kind, shape.ranks, inside);
    for (CostLine &line : lines) {
      line.latency = addNs(line.latency, further);
      line.plateauLatency = addNs(line.plateauLatency, further);
      if (numerator > 0)
        line.bytesPerSecond = static_cast<int64_t>(std::clamp<Wide>(
            static_cast<Wide>(level.links.bytesPerSecond) * denominator / numerator, 1, line.bytesPerSecond));
    }
  }
}
