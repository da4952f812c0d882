//===- HloCosts.h - Durations of XLA's instructions -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Durations of kernels and collectives by the models of a machine profile, and by XLA's own estimates as far as one
// asks for them (CostMix).
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_GRAPH_HLOCOSTS_H
#define COMMSCHED_LIB_FRONTENDS_HLO_GRAPH_HLOCOSTS_H

#include "CommSched/Frontends/Hlo/Graph/XlaEstimates.h"
#include "CommSched/Frontends/Hlo/Reader/HloModule.h"
#include "CommSched/Machine/CostModel.h"
#include "CommSched/Support/Demand.h"
#include "llvm/ADT/StringMap.h"
#include <optional>

namespace llvm::json {
class Value;
} // namespace llvm::json

namespace commsched::hlo {

/// Operations and memory traffic of a kernel.
struct KernelWork {
  int64_t flops = 0;
  Bytes bytes = 0;
  /// The element type of its products.
  ElementType element = ElementType::BF16;
};

struct KernelCost {
  Ns time = 0;
  Demand demand;
  /// `isUnknown`: the time is estimated from bytes alone. `isMeasured`: the time is an entry of the machine's `ops`.
  bool isUnknown = false, isMeasured = false;
};

struct CollectiveCost {
  CollectiveKind kind = CollectiveKind::AllGather;
  /// The same quantity as Node::bytes.
  Bytes bytes = 0;
  Ns time = 0;
  Demand demand;
  GroupShape shape;
  /// The type of its largest operand.
  ElementType element = ElementType::Other;
  /// The source of `time`.
  std::shared_ptr<const CollectiveCurve> curve;
  /// Equal for collectives with equal groups.
  int32_t group = 0;
};

/// What replaces times of the model. Nothing is owned.
struct OtherTimes {
  /// Times by name, ns; null: none.
  const llvm::StringMap<Ns> *given = nullptr;
  /// Null: none, whatever `mix` says.
  const XlaEstimates *estimates = nullptr;
  CostMix mix;
};

class HloCosts {
public:
  /// Keeps references to all of them. O(instructions).
  HloCosts(const HloModule &module, const CostModel &model, OtherTimes other = {});

  /// A kernel, or nothing. Not for loops and calls.
  KernelCost ofKernel(const HloInstruction &instruction, const HloComputation &parent) const;
  /// A collective, synchronous or as a start; none if the instruction is not one. Fails if its groups are malformed.
  llvm::Expected<std::optional<CollectiveCost>> ofCollective(const HloInstruction &instruction,
                                                             const HloComputation &parent);
  /// The time of a collective like this one, of so many bytes (as Node::bytes) in so many parts, ns.
  Ns timeOf(const CollectiveCost &like, llvm::StringRef name, Bytes bytes, int64_t parts) const;
  /// The sum over the kernels of an async-start.
  KernelCost ofAsyncKernel(const HloInstruction &start) const;
  /// An asynchronous copy.
  KernelCost ofCopy(Bytes bytes) const;

  /// The time given for the instruction of this name, ns; none if there is none. It replaces the model's.
  std::optional<Ns> givenTime(llvm::StringRef name) const;
  /// Returns true if any time was given by name.
  bool hasGivenTimes() const { return other.given && !other.given->empty(); }

  /// The collective in an async-start; the instruction itself otherwise.
  const HloInstruction *wrappedBy(const HloInstruction *start) const;

  const MachineModel &machine() const { return model.machine(); }
  const ContentionModel &contention() const { return model.contention(); }

private:
  KernelWork workOf(const HloInstruction &instruction, const HloComputation &parent) const;
  int64_t customCallFlops(const HloInstruction &call, const HloComputation &parent) const;
  KernelCost priced(const KernelWork &work) const;
  /// The entry of the machine's `ops` for the instruction: by its name and its results, or else by its name; null if
  /// there is none.
  const OpTime *findEntry(const HloInstruction &instruction) const;
  /// A time of the model and one of XLA's, if it has one, mixed.
  Ns mixed(Ns time, std::optional<Ns> estimate) const;
  /// Where the mix has a share of XLA's times; null if it has none.
  const XlaEstimates *estimates() const { return other.mix.xlaPermille > 0 ? other.estimates : nullptr; }

  const HloModule &module;
  const CostModel &model;
  OtherTimes other;
  /// Indexed by computation: operations of the products in it and in what it calls, their element type, and what it
  /// reads of each parameter (-1: all of it).
  std::vector<int64_t> flopsOf;
  std::vector<ElementType> elementOf;
  std::vector<llvm::SmallVector<Bytes, 4>> readOf;
  /// Indexed by computation: bytes written by updates in place; -1: its whole result.
  std::vector<Bytes> writtenOf;
  llvm::StringMap<int32_t> groupIds;
};

/// A backend's configuration. Null if it is not JSON, or if its brackets could exhaust the parser's stack.
llvm::json::Value parseConfig(llvm::StringRef config);

/// Number of iterations of a loop by XLA's analysis; none if unknown.
std::optional<int64_t> tripCountOf(const HloInstruction &loop);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_GRAPH_HLOCOSTS_H
