//===- CostModel.h - Costs of collectives, copies and kernels on a machine --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one place that turns work into nanoseconds. It reads a machine profile and answers in integers,
// deterministically, for plain data. OperationCosts builds the costs of MLIR operations on top of it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_MACHINE_COSTMODEL_H
#define COMMSCHED_MACHINE_COSTMODEL_H

#include "CommSched/Machine/CollectiveCost.h"
#include "CommSched/Machine/ContentionModel.h"
#include "CommSched/Machine/MachineModel.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

namespace commsched {

/// The units that a kernel computes on.
enum class ComputeUnits : uint8_t { Matrix, Vector };

/// The cost of a variant over bytes.
struct VariantCurve {
  std::shared_ptr<const CollectiveCurve> curve;
  /// By how much its times differ from the curve's.
  int64_t timePermille = kPermille;
  Ns latency = 0;

  /// As CollectiveCurve: monotone, at most kMaxNs, 0 for one rank.
  Ns operator()(Bytes bytes, int64_t parts = 1) const { return changed((*curve)(bytes, parts)); }
  CostEstimate estimate(Bytes bytes, int64_t parts = 1) const;

private:
  Ns changed(Ns time) const;
};

/// Costs on one machine. Immutable except for a cache; several threads may use it at once.
class CostModel {
public:
  /// Measured times are those at the ends that `scenario` names.
  explicit CostModel(MachineModel machine, CostScenario scenario = {});

  const MachineModel &machine() const { return model; }
  CostScenario scenario() const { return ends; }
  /// What activities need of the machine's resources.
  const ContentionModel &contention() const { return demands; }

  /// The cost of a kind of collective on a group as a function of its bytes (see CollectiveCurve). Equal queries return
  /// the same object. O(log curves) after the first query.
  std::shared_ptr<const CollectiveCurve> curve(CollectiveKind kind, GroupShape shape, ElementType element,
                                               llvm::StringRef group = "") const;

  /// The cost of one collective over `bytes`, ns.
  Ns costOfCollective(CollectiveKind kind, Bytes bytes, GroupShape shape, ElementType element,
                      llvm::StringRef group = "") const {
    return (*curve(kind, shape, element, group))(bytes);
  }

  /// The variant of a kind of collective with this name; null if the profile has none. O(variants).
  const CollectiveVariant *findVariant(CollectiveKind kind, const VariantName &name) const;
  /// The cost of one of the machine's variants on a group as a function of its bytes: its own table where that is
  /// measured or scaled from another shape, or else the kind's curve with the variant's factor. O(log curves +
  /// variants) after the first query.
  VariantCurve curve(const CollectiveVariant &variant, GroupShape shape, ElementType element,
                     llvm::StringRef group = "") const;

  /// A one-shot sum of `bytes`, ns: one kernel per rank reads the inputs of all other ranks, between two barriers. The
  /// cost is launch + 2 x hop + (R - 1) x bytes / bandwidth, with the links inside and outside of the node used at the
  /// same time. 0 for one rank.
  Ns costOfOneShot(Bytes bytes, GroupShape shape) const;

  /// A kernel that packs or unpacks buffers and reads and writes `bytes` in total, ns. 0 for no bytes.
  Ns costOfCopy(Bytes read, Bytes written) const;

  /// A kernel by roofline: launch + max(flops / rate, waves of tiles, bytes / memory bandwidth), ns. 0 for no work.
  /// Monotone in flops and bytes, and in each size of `product` if the depth stays the same. O(sizes of tiles).
  Ns costOfKernel(int64_t flops, Bytes bytes, ElementType element, ComputeUnits units, ProductShape product = {}) const;

  /// The same roofline without the launch and the waves, for work that is part of a larger kernel.
  Ns costOfWork(int64_t flops, Bytes bytes, ElementType element, ComputeUnits units) const;

  /// A product of `flops` operations in waves of the machine's tiles, ns: the number of waves, rounded up, times the
  /// time of a tile, for the size of tiles that is the fastest. 0 if the profile has no tiles or the shape is not
  /// known. After the section on wave quantization of NVIDIA's guide "Matrix Multiplication Background".
  Ns costOfTiles(int64_t flops, ElementType element, ProductShape product) const;

  /// The measured time of an operation with these operand types ("4096x4096xbf16"), or by name alone if no types are
  /// given. None if the profile has no such entry.
  std::optional<Ns> measuredOp(llvm::StringRef name, llvm::ArrayRef<std::string> shapes = {}) const;
  /// The entry itself, for exactly this form; null if the profile has none.
  const OpTime *findOp(llvm::StringRef name, llvm::ArrayRef<std::string> shapes = {}, llvm::StringRef form = "") const;
  /// The time of an entry in this model's scenario.
  Ns timeOf(const OpTime &op) const { return op.hasErrorBar() ? atEnd(ends.operations, op.ns, op.lo, op.hi) : op.ns; }
  /// Returns true if entries of this name are for single forms. If not, callers need not know the form.
  bool hasForms(llvm::StringRef name) const { return namesWithForms.contains(name); }
  /// Returns true if the profile measured any operation. If not, callers need not format shapes.
  bool hasMeasuredOps() const { return !model.ops.empty(); }

private:
  using CurveKey = std::tuple<CollectiveKind, GroupShape, ElementType, std::string>;

  MachineModel model;
  ContentionModel demands{model};
  CostScenario ends;
  /// Indexed by name, operand types and form: the index in MachineModel::ops.
  llvm::StringMap<size_t> opEntries;
  llvm::StringSet<> namesWithForms;
  mutable std::mutex mutex;
  mutable std::map<CurveKey, std::shared_ptr<const CollectiveCurve>> curves;
  /// By variant: its own curves, or null if its tables do not apply.
  mutable std::map<std::pair<const CollectiveVariant *, CurveKey>, std::shared_ptr<const CollectiveCurve>> ownCurves;
};

} // namespace commsched

#endif // COMMSCHED_MACHINE_COSTMODEL_H
