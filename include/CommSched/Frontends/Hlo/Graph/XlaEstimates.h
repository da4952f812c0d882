//===- XlaEstimates.h - Times that XLA's own estimator gave a module --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// XLA's latency-hiding scheduler decides by times of its own. With the flag xla_gpu_collect_cost_model_stats they are
// in the configurations of the instructions, as entries of `reification_cost` whose name is "sol".
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_FRONTENDS_HLO_GRAPH_XLAESTIMATES_H
#define COMMSCHED_FRONTENDS_HLO_GRAPH_XLAESTIMATES_H

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"
#include "CommSched/Machine/CostModel.h"
#include "CommSched/Scheduling/Answer/CostScale.h"
#include "llvm/ADT/StringMap.h"
#include <map>
#include <tuple>
#include <vector>

namespace commsched::hlo {

/// A weighting of the times of a profile's model and those of XLA's estimator.
struct CostMix {
  /// XLA's share of each time that it estimated.
  PeerShare xlaPermille = kByModel;
  /// By what the times of collectives are multiplied after that.
  CostScale scale = kScaleOne;

  bool isModel() const { return xlaPermille == 0 && scale == kScaleOne; }
};

/// The times of one module, by the names of its instructions.
class XlaEstimates {
public:
  /// The times in a module: none if it was compiled without the flag. Fails if a group of ranks is malformed.
  /// O(instructions log instructions).
  static llvm::Expected<XlaEstimates> readFrom(const HloModule &module, const CostModel &model);

  /// Returns true if XLA gave no collective a time.
  bool empty() const { return collectives.empty(); }

  /// The time of a kernel, ns; none if XLA gave it none.
  std::optional<Ns> ofKernel(llvm::StringRef name) const;

  /// The time of a collective, ns. If XLA had none of that name and size, because it was taken apart or merged, the
  /// time is read off those of its kind between as many ranks on as many nodes: linear between two sizes, above the
  /// largest one at the best rate of any kind between these ranks, and below the smallest one towards the least time of
  /// any. None if XLA had none of its kind there. `bytes` is the quantity of Node::bytes. O(log collectives).
  std::optional<Ns> ofCollective(llvm::StringRef name, CollectiveKind kind, GroupShape shape, Bytes bytes) const;

private:
  struct Sample {
    Bytes bytes = 0;
    Ns time = 0;
    bool operator<(const Sample &other) const { return std::tie(bytes, time) < std::tie(other.bytes, other.time); }
  };
  /// Ranks and nodes.
  using Group = std::pair<int64_t, int64_t>;
  struct GroupFacts {
    Ns least = 0;
    /// The one with the best rate.
    Sample fastest;
  };

  void finish();

  llvm::StringMap<Ns> kernels;
  llvm::StringMap<Sample> collectives;
  /// Ascending.
  std::map<std::pair<Group, CollectiveKind>, std::vector<Sample>> samples;
  std::map<Group, GroupFacts> groups;
};

/// The configuration of an instruction without the times that XLA estimated: they are not those of a collective that
/// was made of it. O(size).
std::string withoutEstimates(llvm::StringRef backendConfig);

} // namespace commsched::hlo

#endif // COMMSCHED_FRONTENDS_HLO_GRAPH_XLAESTIMATES_H
