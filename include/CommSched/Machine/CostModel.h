//===- CostModel.h - What collectives, copies and kernels cost on a machine -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one place that turns work into nanoseconds. It knows a machine profile and answers in integers,
// deterministically; what it is asked about is plain data. What an MLIR operation costs is answered by OperationCosts,
// on top of it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_MACHINE_COSTMODEL_H
#define COMMSCHED_MACHINE_COSTMODEL_H

#include "CommSched/Machine/CollectiveCost.h"
#include "CommSched/Machine/MachineModel.h"
#include "llvm/ADT/StringMap.h"
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

namespace commsched {

/// Which units a kernel computes on.
enum class ComputeUnits : uint8_t { Matrix, Vector };

/// Costs on one machine. Immutable but for a cache; may be used by several threads at once.
class CostModel {
public:
  explicit CostModel(MachineModel machine);

  const MachineModel &machine() const { return model; }

  /// The cost of a kind of collective on a group as a function of its bytes (see CollectiveCurve). The same object for
  /// the same question. O(log curves) but the first time.
  std::shared_ptr<const CollectiveCurve> curve(CollectiveKind kind, GroupShape shape, ElementType element,
                                               llvm::StringRef group = "") const;

  /// The cost of one collective over `bytes`, ns.
  Ns costOfCollective(CollectiveKind kind, Bytes bytes, GroupShape shape, ElementType element,
                      llvm::StringRef group = "") const {
    return (*curve(kind, shape, element, group))(bytes);
  }

  /// A sum of `bytes` in one shot, ns: one kernel per rank that reads the inputs of all others, between two barriers.
  /// launch + 2 x hop + (R - 1) x bytes / bandwidth, inside the node and out of it at the same time. One rank: 0.
  Ns costOfOneShot(Bytes bytes, GroupShape shape) const;

  /// A kernel that reads and writes this much to pack or unpack buffers, ns; nothing to move costs nothing.
  Ns costOfCopy(Bytes read, Bytes written) const;

  /// A kernel by roofline: launch + max(flops / rate, bytes / memory bandwidth), ns. No work costs nothing.
  Ns costOfKernel(int64_t flops, Bytes bytes, ElementType element, ComputeUnits units) const;

  /// The same without the launch: work that is part of a larger kernel.
  Ns costOfWork(int64_t flops, Bytes bytes, ElementType element, ComputeUnits units) const;

  /// The measured time of an operation with these operand types ("4096x4096xbf16"), or of its name alone where no types
  /// are given, if the profile has it.
  std::optional<Ns> measuredOp(llvm::StringRef name, llvm::ArrayRef<std::string> shapes = {}) const;
  /// Whether measuredOp can answer anything: shapes need not be spelt out if not.
  bool hasMeasuredOps() const { return !model.ops.empty(); }

private:
  using CurveKey = std::tuple<CollectiveKind, GroupShape, ElementType, std::string>;

  MachineModel model;
  llvm::StringMap<Ns> opTimes;
  mutable std::mutex mutex;
  mutable std::map<CurveKey, std::shared_ptr<const CollectiveCurve>> curves;
};

} // namespace commsched

#endif // COMMSCHED_MACHINE_COSTMODEL_H
