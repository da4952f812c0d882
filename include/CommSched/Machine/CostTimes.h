//===- CostTimes.h - Share of time with a known cost, by source -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A prediction is as good as the costs that it adds up. Reports say which share of the time rests on what.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_MACHINE_COSTTIMES_H
#define COMMSCHED_MACHINE_COSTTIMES_H

#include "CommSched/Machine/CollectiveCost.h"
#include "llvm/Support/JSON.h"
#include <array>
#include <string>

namespace commsched {

/// What a cost is known from, the best first.
enum class CostKnowledge : uint8_t {
  /// The program or the embedder says it.
  Given,
  /// It was measured: an entry of `ops`, or a point of a table of collectives.
  Measured,
  /// A table of collectives at another size, on another group shape or of another element type.
  Curve,
  /// A model of known work: a roofline, NCCL's model, alpha-beta.
  Model,
  /// A guess from the operands.
  Unknown,
};
inline constexpr unsigned kNumCostKnowledges = static_cast<unsigned>(CostKnowledge::Unknown) + 1;

/// The name in reports ("curve").
llvm::StringRef stringify(CostKnowledge knowledge);

/// What the cost of an operation that is not a collective is known from.
CostKnowledge knowledgeOf(CostOrigin origin);
/// The same of a collective. Only a point of a table at exactly its size is a measurement. O(tables).
CostKnowledge knowledgeOf(CostOrigin origin, const MachineModel &machine, CollectiveKind kind, GroupShape shape,
                          llvm::StringRef group, Bytes bytes);

/// The times of operations by what they are known from, each counted once, whatever overlaps.
class CostTimes {
public:
  /// If more than this share of the time is unknown, reports warn, permille.
  static constexpr int64_t kMostUnknownPermille = 50;

  void add(CostKnowledge knowledge, Ns time);
  Ns of(CostKnowledge knowledge) const { return times[static_cast<unsigned>(knowledge)]; }
  /// The share of all time, permille; 0 if there is no time.
  int64_t permilleOf(CostKnowledge knowledge) const;
  bool isMostlyUnknown() const { return permilleOf(CostKnowledge::Unknown) > kMostUnknownPermille; }

  /// "12.5 % measured, 87.5 % model": the shares that are not 0; empty without time.
  std::string describe() const;
  /// By name, ns.
  llvm::json::Object toJSON() const;

private:
  /// Indexed by CostKnowledge, ns.
  std::array<Ns, kNumCostKnowledges> times{};
};

} // namespace commsched

#endif // COMMSCHED_MACHINE_COSTTIMES_H
