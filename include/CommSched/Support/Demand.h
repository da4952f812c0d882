//===- Demand.h - Demand of an activity on the resources of a device --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A kernel and a collective that run at the same time share the device. A demand says which share of each resource an
// activity takes while it runs undisturbed. Machine models make demands, and timelines divide resources by them
// (Models.md, "Contention").
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_DEMAND_H
#define COMMSCHED_SUPPORT_DEMAND_H

#include "CommSched/Support/Arithmetic.h"
#include "llvm/ADT/StringRef.h"
#include <array>

namespace commsched {

/// The resources of one device.
enum class Resource : uint8_t {
  /// Streaming multiprocessors, or cores.
  ComputeUnits,
  /// Bandwidth of device memory.
  Memory,
  /// Links inside a node.
  NodeLinks,
  /// Links between nodes.
  Network,
  /// Engines that copy without compute units.
  CopyEngines,
};
inline constexpr unsigned kNumResources = static_cast<unsigned>(Resource::CopyEngines) + 1;

/// The name of a resource in profiles and reports ("compute_units").
llvm::StringRef stringify(Resource resource);

/// A whole resource, and the rate of an undisturbed activity: shares and rates are in millionths.
inline constexpr int64_t kWhole = kMillion;
/// The weight of an activity that shares fairly.
inline constexpr int32_t kFairWeight = 1000;
/// Limit on weights: it keeps the products of a rate within 64 bits.
inline constexpr int32_t kMaxWeight = 1'000'000;

/// One number per resource. Indexed by Resource.
using Shares = std::array<int32_t, kNumResources>;

/// What the collectives of one kind use of each resource for their bytes, in millionths of a nanosecond for each GiB; 0
/// if nothing is known. Indexed by Resource.
using Uses = std::array<int64_t, kNumResources>;
inline constexpr int64_t kUseBytes = int64_t(1) << 30;

/// What one activity needs.
struct Demand {
  /// The share of each resource, in millionths, that the activity takes while it runs undisturbed.
  Shares share{};
  /// If the activities that run together need more than the whole resource, those that are not satisfied share what is
  /// left in the ratio of these weights.
  Shares weight{kFairWeight, kFairWeight, kFairWeight, kFairWeight, kFairWeight};

  bool any() const {
    for (int32_t part : share)
      if (part > 0)
        return true;
    return false;
  }
  void set(Resource resource, int64_t part, int64_t heaviness = kFairWeight) {
    auto index = static_cast<unsigned>(resource);
    share[index] = static_cast<int32_t>(part < 0 ? 0 : part > kWhole ? kWhole : part);
    weight[index] = static_cast<int32_t>(heaviness < 1 ? 1 : heaviness > kMaxWeight ? kMaxWeight : heaviness);
  }
  int32_t of(Resource resource) const { return share[static_cast<unsigned>(resource)]; }
  bool operator==(const Demand &other) const { return share == other.share && weight == other.weight; }
  bool operator!=(const Demand &other) const { return !(*this == other); }
};

} // namespace commsched

#endif // COMMSCHED_SUPPORT_DEMAND_H
