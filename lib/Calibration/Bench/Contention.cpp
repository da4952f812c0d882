//===- Contention.cpp - Measured contention of collectives and computations -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Four times of a pair. How many operations cover the other side follows from the times alone; where they end too
// early, there are more of them in the next attempt.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Contention.h"
#include "CommSched/Calibration/RuntimeBench.h"
#include "CommSched/Support/Format.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace commsched;

/// Samples of each of the four times.
static constexpr int64_t kSamples = 15;
/// The time that the side that is timed runs for, ns, if its clock does not need longer.
static constexpr Ns kTimed = 200'000;
/// How much longer than the other side's time alone the covering side is to run at first, in permille, and how often
/// its length may be doubled: a side may become 2^6 times as slow.
static constexpr int64_t kCoverPermille = 1500;
static constexpr int kDoublings = 6;

static std::string shapeText(llvm::ArrayRef<int64_t> sizes, ElementType element) {
  std::string text;
  for (int64_t size : sizes)
    text += std::to_string(size) + "x";
  return text + stringify(element).str();
}

ComputeProbe commsched::productProbe(int64_t side, ElementType element) {
  int32_t dtype = runtimeType(element).value_or(COMMRT_F32);
  ProbeTensor in{dtype, {side, side}, 0}, out{dtype, {side, side}, COMMRT_OPERAND_WRITTEN | COMMRT_OPERAND_OUTPUT};
  std::string shape = shapeText({side, side}, element);
  return {"aten.mm", {in, in, out}, {}, false, "product", {shape, shape}};
}

ComputeProbe commsched::copyProbe(Bytes bytes) {
  auto count = static_cast<int64_t>(bytes / sizeof(float));
  ProbeTensor in{COMMRT_F32, {count}, 0}, out{COMMRT_F32, {count}, COMMRT_OPERAND_WRITTEN | COMMRT_OPERAND_OUTPUT};
  return {"comm.pack", {in, out}, {}, false, "copy", {shapeText({count}, ElementType::F32)}};
}

/// Takes samples of one time. `other`: what one operation of the side that covers takes alone, ns; 0 if none covers.
/// None if the time that everything may take ends, or if the other side cannot be made to last.
llvm::Expected<std::optional<StoredEstimate>> ContentionCalibrator::sample(const std::string &key, int64_t members,
                                                                           ContentionPlan plan, Ns other) {
  if (std::optional<StoredEstimate> known = store.find(key))
    return known;
  int64_t &covering = plan.timesKernels ? plan.collectives : plan.kernels;
  for (int attempt = 0; attempt <= kDoublings; ++attempt, covering *= 2) {
    std::vector<Ns> times;
    Ns covered = 0;
    for (int64_t i = 0; i < kSamples; ++i) {
      int64_t operations = plan.collectives + plan.kernels;
      llvm::Expected<bool> hasTime = sampler.hasTimeForCost(operationCost * operations);
      if (!hasTime)
        return hasTime.takeError();
      if (!*hasTime)
        return std::nullopt;
      Ns begin = bench.now();
      llvm::Expected<BesideTime> taken = bench.runBeside(plan);
      if (!taken)
        return taken.takeError();
      operationCost = (bench.now() - begin) / operations;
      times.push_back(taken->time);
      covered = i == 0 ? taken->covered : std::min(covered, taken->covered);
      // One sample tells whether the other side lasts.
      if (i == 0 && other > 0) {
        llvm::Expected<std::vector<std::vector<int64_t>>> all = bench.gather(covered);
        if (!all)
          return all.takeError();
        if (llvm::any_of(*all, [](const std::vector<int64_t> &rank) { return rank[0] < 0; })) {
          covered = -1;
          break;
        }
      }
    }
    Estimate own = estimateDuration(times);
    llvm::Expected<std::vector<std::vector<int64_t>>> all =
        bench.gather({own.value, own.lo, own.hi, own.n, own.rejected, covered});
    if (!all)
      return all.takeError();
    if (other > 0 && llvm::any_of(*all, [](const std::vector<int64_t> &rank) { return rank[5] < 0; }))
      continue;
    StoredEstimate result;
    std::vector<int64_t> medians;
    for (const std::vector<int64_t> &rank : llvm::ArrayRef(*all).take_front(members)) {
      medians.push_back(rank[0]);
      result.time.lo = medians.size() == 1 ? rank[1] : std::min(result.time.lo, rank[1]);
      result.time.hi = std::max(result.time.hi, rank[2]);
      result.time.n = medians.size() == 1 ? rank[3] : std::min(result.time.n, rank[3]);
      result.time.rejected = std::max(result.time.rejected, rank[4]);
    }
    result.time.value = std::max<Ns>(1, medianOf(medians));
    result.isSkewed = 10 * (*llvm::max_element(medians) - *llvm::min_element(medians)) > result.time.value;
    store.put(key, result);
    return result;
  }
  return std::nullopt;
}

/// "all_gather 4096 2:1:2 f32".
static std::string describe(const CollectiveProbe &probe) {
  return llvm::formatv("{0} {1} {2}:{3}:{4} {5}", stringify(probe.kind), probe.bytes, probe.shape.ranks,
                       probe.shape.nodes, probe.shape.ranksPerNode, stringify(probe.element))
      .str();
}

llvm::Expected<ContentionPoint> ContentionCalibrator::measure(const ContentionProbe &probe) {
  ContentionPoint point;
  point.probe = probe;
  point.probe.collective.bytes = bench.feasibleBytes(probe.collective);
  const CollectiveProbe &collective = point.probe.collective;
  int64_t members = bench.participants(collective);
  std::string kernelKey = "kernel " + probe.kernel.key(),
              collectiveKey = describe(collective) + " " + std::to_string(probe.ctas);
  if (llvm::Error error = bench.prepare(point.probe))
    return std::move(error);
  operationCost = 0;
  point.skipped = "the time that was given is used up, or one side does not outlast the other";
  // One operation alone, to learn how many fill the time; then as many.
  auto alone = [&](bool isKernel, Estimate &to) -> llvm::Expected<bool> {
    const std::string &key = isKernel ? kernelKey : collectiveKey;
    int64_t count = 1;
    for (const char *when : {"once", "alone"}) {
      ContentionPlan plan{isKernel ? 0 : count, isKernel ? count : 0, isKernel};
      llvm::Expected<std::optional<StoredEstimate>> taken =
          sample(llvm::formatv("contention {0} {1}", when, key).str(), members, plan, 0);
      if (!taken)
        return taken.takeError();
      if (!*taken)
        return false;
      to = (*taken)->time;
      point.isSkewed |= (*taken)->isSkewed;
      count = llvm::divideCeil(std::max(kTimed, bench.sampleTime()), to.value);
    }
    return true;
  };
  auto beside = [&](bool isKernel, Estimate &to) -> llvm::Expected<bool> {
    Ns own = isKernel ? point.kernelAlone.value : point.collectiveAlone.value;
    Ns other = isKernel ? point.collectiveAlone.value : point.kernelAlone.value;
    int64_t timed = llvm::divideCeil(std::max(kTimed, bench.sampleTime()), own);
    int64_t covering = llvm::divideCeil(timed * own * kCoverPermille, 1000 * other) + 1;
    ContentionPlan plan{isKernel ? covering : timed, isKernel ? timed : covering, isKernel};
    std::string key = llvm::formatv("contention {0} beside {1}", isKernel ? kernelKey : collectiveKey,
                                    isKernel ? collectiveKey : kernelKey);
    llvm::Expected<std::optional<StoredEstimate>> taken = sample(key, members, plan, other);
    if (!taken)
      return taken.takeError();
    if (*taken) {
      to = (*taken)->time;
      point.isSkewed |= (*taken)->isSkewed;
    }
    return taken->has_value();
  };
  for (bool isKernel : {false, true}) {
    llvm::Expected<bool> known = alone(isKernel, isKernel ? point.kernelAlone : point.collectiveAlone);
    if (!known)
      return known.takeError();
    if (!*known)
      return point;
  }
  for (bool isKernel : {false, true}) {
    llvm::Expected<bool> known = beside(isKernel, isKernel ? point.kernelBeside : point.collectiveBeside);
    if (!known)
      return known.takeError();
    if (!*known)
      return point;
  }
  point.skipped.clear();
  progress(llvm::formatv("{0} of {1} beside {2}: the collective takes {3:F1} % longer, the kernel {4:F1} %",
                         stringify(collective.kind), formatBytes(collective.bytes), stringify(probe.against),
                         static_cast<double>(point.collectivePermille()) / 10,
                         static_cast<double>(point.computePermille()) / 10)
               .str());
  return point;
}

/// Times one or both sides. False if the time that was given is used up.
llvm::Expected<bool> ContentionCalibrator::measureSides(PairPoint &point, PairSides sides, Estimate &to) {
  bool areBoth = sides == PairSides::Both;
  std::string key = areBoth ? "pair both: " + describe(point.probe) + " and " + describe(point.beside)
                            : "pair alone: " + describe(sides == PairSides::First ? point.probe : point.beside) +
                                  (sides == PairSides::First ? "" : " across");
  std::optional<StoredEstimate> known = store.find(key);
  if (!known) {
    llvm::Expected<bool> hasTime = sampler.hasTimeFor(areBoth ? 2 : 1);
    if (!hasTime)
      return hasTime.takeError();
    if (!*hasTime)
      return false;
    if (llvm::Error error = bench.preparePair(point.probe, point.beside.bytes, sides))
      return std::move(error);
    llvm::Expected<std::optional<Sampled>> taken = sampler.measure(bench.participants(point.probe));
    if (!taken)
      return taken.takeError();
    if (!*taken)
      return false;
    known = StoredEstimate{(*taken)->time, (*taken)->isSkewed};
    store.put(key, *known);
  }
  to = known->time;
  point.isSkewed |= known->isSkewed;
  return true;
}

llvm::Expected<PairPoint> ContentionCalibrator::measurePair(const CollectiveProbe &wanted) {
  PairPoint point;
  std::optional<GroupShape> across = bench.shapeAcross(wanted.shape);
  point.probe = point.beside = wanted;
  point.beside.shape = across.value_or(wanted.shape);
  for (CollectiveProbe *probe : {&point.probe, &point.beside})
    probe->bytes = bench.feasibleBytes(*probe);
  sampler.beginSeries();
  for (PairSides sides : {PairSides::First, PairSides::Second, PairSides::Both}) {
    Estimate &to = sides == PairSides::First    ? point.alone
                   : sides == PairSides::Second ? point.besideAlone
                                                : point.both;
    if (sides == PairSides::Second && !across) {
      to = point.alone;
      continue;
    }
    llvm::Expected<bool> isKnown = measureSides(point, sides, to);
    if (!isKnown)
      return isKnown.takeError();
    if (!*isKnown) {
      point.skipped = "the time that was given is used up";
      return point;
    }
  }
  progress(llvm::formatv("{0} of {1} on {2} ranks beside another on {3}: each takes {4:F1} % longer",
                         stringify(point.probe.kind), formatBytes(point.probe.bytes), point.probe.shape.ranks,
                         point.beside.shape.ranks, static_cast<double>(point.permille()) / 10)
               .str());
  return point;
}
