//===- Contention.h - Measured contention of collectives and computations ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A collective and a kernel that run at the same time share compute units, memory and caches. Both are timed alone, and
// each while the other runs all along.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_CONTENTION_H
#define COMMSCHED_CALIBRATION_CONTENTION_H

#include "CommSched/Calibration/Computations.h"

namespace commsched {

/// One pair to time.
struct ContentionProbe {
  CollectiveProbe collective;
  /// Thread blocks of the collective on devices; 0: as many as its library chooses.
  int64_t ctas = 0;
  Against against = Against::Matrix;
  ComputeProbe kernel;
};

/// How long a pair runs.
struct ContentionPlan {
  /// Collectives in a row, and kernels in a row. 0: the other side runs alone.
  int64_t collectives = 0, kernels = 0;
  /// Which side is timed. The other one is to run all along.
  bool timesKernels = false;
};

/// One sample of a pair on one rank.
struct BesideTime {
  /// Of one operation of the side that is timed, ns.
  Ns time = 0;
  /// By how much the other side ended later, or began earlier, ns; the smaller of both. Below 0 the sample does not
  /// count.
  Ns covered = 0;
};

/// Which of two collectives run: the first one, one along the other axis of the mesh, or both, which start together.
enum class PairSides { First, Second, Both };

/// A machine on which a collective and a computation can run at the same time.
class ContentionBench : public ComputeBench {
public:
  using ComputeBench::prepare;

  /// Makes buffers for both sides. The error says why they cannot run at the same time.
  virtual llvm::Error prepare(const ContentionProbe &probe) = 0;
  /// The shape of the groups across those of `shape`: the other axis of a mesh. None if all ranks are in one group; the
  /// second collective then has a group of its own with the same members.
  virtual std::optional<GroupShape> shapeAcross(GroupShape shape) const = 0;
  /// Makes buffers and groups for `first`, and for the same kind of `second` bytes on the groups of the other axis:
  /// run() then takes samples of the time until all have ended. The error says why that is not possible.
  virtual llvm::Error preparePair(const CollectiveProbe &first, Bytes second, PairSides sides) = 0;
  /// Takes one sample: both sides begin when all ranks have arrived. A rank that takes no part in the collective gets
  /// zeros.
  virtual llvm::Expected<BesideTime> runBeside(const ContentionPlan &plan) = 0;
};

/// What was measured of a pair, or the reason why it was not.
struct ContentionPoint {
  ContentionProbe probe;
  /// Of one collective and of one kernel: alone, and while the other side runs all along.
  Estimate collectiveAlone, collectiveBeside, kernelAlone, kernelBeside;
  bool isSkewed = false;
  std::string skipped;

  /// By how much each takes longer beside the other, permille; 0 if it does not.
  int64_t collectivePermille() const { return slowdown(collectiveAlone, collectiveBeside); }
  int64_t computePermille() const { return slowdown(kernelAlone, kernelBeside); }
  /// More than a tenth of the samples of one of the times were outliers.
  bool isUnstable() const {
    return collectiveAlone.isUnstable() || collectiveBeside.isUnstable() || kernelAlone.isUnstable() ||
           kernelBeside.isUnstable();
  }

private:
  static int64_t slowdown(const Estimate &alone, const Estimate &beside) {
    return alone.value <= 0 ? 0 : std::max<int64_t>(0, (beside.value - alone.value) * 1000 / alone.value);
  }
};

/// What two collectives of one kind do to each other: along the two axes of a mesh, or of two groups with the same
/// members.
struct PairPoint {
  CollectiveProbe probe;
  /// The other one. The same as `probe` if it is of a group with the same members.
  CollectiveProbe beside;
  /// Until each has ended that runs alone, and until both have that begin together.
  Estimate alone, besideAlone, both;
  bool isSkewed = false;
  std::string skipped;

  /// How much longer both take than the longer one alone, in permille of the shorter one. 0: they do not disturb each
  /// other. 1000: they take as long as one after the other.
  int64_t permille() const {
    Ns shorter = std::min(alone.value, besideAlone.value), longer = std::max(alone.value, besideAlone.value);
    return shorter <= 0 ? 0 : std::max<int64_t>(0, (both.value - longer) * 1000 / shorter);
  }
  /// The part of their link that each takes while it runs alone, permille: 500 to 1000. If both take the part s, each
  /// runs at the rate 1 / (2 s) until the shorter one has ended, so both take max + (2 s - 1) min.
  int64_t partPermille() const { return std::min<int64_t>(1000, (1000 + permille() + 1) / 2); }
};

class ContentionCalibrator {
public:
  /// `progress` is called on every rank with one line per pair, and outlives this.
  ContentionCalibrator(ContentionBench &bench, Sampler &sampler, EstimateStore &store,
                       llvm::function_ref<void(const std::string &)> progress)
      : bench(bench), sampler(sampler), store(store), progress(progress) {}

  /// Times one pair. What cannot be measured is said in `skipped`. Collective over all ranks.
  llvm::Expected<ContentionPoint> measure(const ContentionProbe &probe);

  /// Times a collective beside one of its kind and size of another group. What cannot be measured is said in `skipped`.
  /// Collective over all ranks.
  llvm::Expected<PairPoint> measurePair(const CollectiveProbe &probe);

private:
  llvm::Expected<std::optional<StoredEstimate>> sample(const std::string &key, int64_t members, ContentionPlan plan,
                                                       Ns other);
  llvm::Expected<bool> measureSides(PairPoint &point, PairSides sides, Estimate &to);

  ContentionBench &bench;
  Sampler &sampler;
  EstimateStore &store;
  llvm::function_ref<void(const std::string &)> progress;
  /// What one operation of the last sample of this pair took on the host's clock of this rank, ns.
  Ns operationCost = 0;
};

/// The kernels beside which collectives are timed: a matrix product of `side` x `side`, or a copy of `bytes`.
ComputeProbe productProbe(int64_t side, ElementType element);
ComputeProbe copyProbe(Bytes bytes);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_CONTENTION_H
