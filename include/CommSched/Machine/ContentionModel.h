//===- ContentionModel.h - Demands of activities on a machine's resources ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Turns the numbers of a machine profile into demands: which share of each resource of a device a kernel or a
// collective takes. The first source that a profile has counts: measured contention tables, then the roofline and the
// thread blocks of collectives (`resources`). MachineModel.md has the formulas.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_MACHINE_CONTENTIONMODEL_H
#define COMMSCHED_MACHINE_CONTENTIONMODEL_H

#include "CommSched/Machine/CollectiveCost.h"
#include "CommSched/Support/Demand.h"

namespace commsched {

/// Demands on one machine. Plain arithmetic on the profile, in integers.
class ContentionModel {
public:
  /// Keeps a reference to `machine`.
  explicit ContentionModel(const MachineModel &machine) : machine(machine) {}

  /// Whether the profile says that activities disturb each other. If not, there are no demands.
  bool any() const;

  /// A kernel that moves `bytes` of memory in `time` ns. Products and the like take all compute units.
  Demand ofKernel(bool isProduct, Bytes bytes, Ns time) const;
  /// A kernel that packs or unpacks.
  Demand ofCopy() const;
  /// A collective over `bytes` (as in CollectiveCurve) that takes `time` ns, with `ctas` thread blocks; 0: the library
  /// chooses. O(entries of the contention table).
  Demand ofCollective(CollectiveKind kind, Bytes bytes, GroupShape shape, Ns time, int64_t ctas = 0) const;
  /// As ofCollective(), carried out by a variant. Without entries of its own, a ring or symmetric kernels need what the
  /// collective needs on as many thread blocks; copy engines need themselves, memory and links.
  Demand ofVariant(const CollectiveVariant &variant, Bytes bytes, GroupShape shape, Ns time) const;
  /// What every collective of a kind on such a group needs at least, whatever its size. O(entries of the tables).
  Shares leastOfCollective(CollectiveKind kind, GroupShape shape) const;
  /// What every collective of a kind on such a group uses for its bytes at least, unless it takes the whole resource:
  /// what follows from bandwidths, where nothing else was measured.
  Uses usesOfCollective(CollectiveKind kind, GroupShape shape) const;

private:
  void addTraffic(Demand &demand, CollectiveKind kind, Bytes bytes, GroupShape shape, Ns time) const;
  bool isMeasured(CollectiveKind kind) const;
  bool isMeasured(CollectiveKind kind, Against against) const;
  /// Whether the profile says what kernels and collectives take of the device, by data sheet.
  bool hasUnits() const { return machine.resources && machine.resources->computeUnits > 0; }
  /// Whether the profile names the rates of links, so that collectives share them by their bytes.
  bool sharesLinks() const { return machine.resources && machine.resources->networkBytesPerSecond > 0; }
  /// What was measured of two collectives at once.
  llvm::ArrayRef<ShareEntry> shares() const;
  /// The part of the slowest link of a kind that was not measured, if nothing else tells, in millionths.
  int64_t partOfUnmeasured(bool acrossNodes) const;
  /// Whether anything says that kernels share the device.
  bool sharesDevice() const;

  const MachineModel &machine;
};

/// The demand on one resource of a collective that makes a kernel that takes all of the resource `computePermille`
/// slower, and that the kernel makes `collectivePermille` slower: its share in millionths, and its weight against a
/// kernel of fair weight. Two activities cannot do less together than one after the other, so slow-downs beyond that
/// are cut in proportion.
std::pair<int64_t, int64_t> demandOfPair(int64_t computePermille, int64_t collectivePermille);

} // namespace commsched

#endif // COMMSCHED_MACHINE_CONTENTIONMODEL_H
