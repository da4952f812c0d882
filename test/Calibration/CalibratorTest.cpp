//===- CalibratorTest.cpp - Calibration against a known truth ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A bench whose times follow a formula with noise, outliers and skew: what is measured has to be what was put in. Ranks
// are threads of the real runtime; only the times are made up.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Calibrator.h"
#include "CommSched/Calibration/Profile.h"
#include "CommSched/Calibration/RuntimeBench.h"
#include "CommSched/Machine/ContentionModel.h"
#include "CommSched/Machine/CostModel.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "CommSched/Support/RankThreads.h"
#include "gtest/gtest.h"
#include <cmath>
#include <random>
#include <set>

using namespace commsched;

namespace {

/// Times of a made-up network: latency + bytes / bandwidth, with another bandwidth from `switchAt` bytes on.
struct Truth {
  Ns latency = 10000;
  double nsPerByte = 0.05, laterNsPerByte = 0.05;
  Bytes switchAt = 0;
  /// Noise of every run, and how many of a hundred runs take ten times as long.
  double noise = 0;
  int outliers = 0;
  /// What each further rank adds to its own times, permille.
  int64_t skewPermille = 0;

  Ns operator()(Bytes bytes) const {
    double perByte = switchAt && bytes >= switchAt ? laterNsPerByte : nsPerByte;
    return latency + static_cast<Ns>(perByte * static_cast<double>(bytes));
  }
};

/// How much longer two collectives of a kind take than the longer one alone, of the time of the shorter one.
int64_t pairPermille(CollectiveKind kind) { return kind == CollectiveKind::AllReduce ? 300 : 700; }

/// A runtime's bench with a truth in the place of its clock. The clock of the calibrator moves by what runs take.
class TruthBench : public RuntimeBench {
public:
  TruthBench(commrt_context *context, const Truth &truth)
      : RuntimeBench(context), realContext(context), truth(truth), random(commrt_rank(context) + 1) {}

  using RuntimeBench::prepare;
  llvm::Error prepare(const CollectiveProbe &wanted) override {
    current = wanted;
    computation.reset();
    isPair = false;
    ++prepared;
    return llvm::Error::success();
  }
  /// Two all-reduces take three tenths longer than one, and two collectives of another kind seven.
  llvm::Error preparePair(const CollectiveProbe &first, Bytes second, PairSides sides) override {
    llvm::cantFail(prepare(first));
    besideBytes = second;
    isPair = sides == PairSides::Both;
    if (sides == PairSides::Second)
      current.bytes = second;
    return llvm::Error::success();
  }
  /// Collectives along another axis than that of all ranks: of three times as many bytes.
  Bytes feasibleBytes(const CollectiveProbe &wanted) const override {
    return wanted.shape.ranks == 3 ? 3 * wanted.bytes : RuntimeBench::feasibleBytes(wanted);
  }
  llvm::Error prepare(const ComputeProbe &wanted) override {
    computation = wanted;
    ++prepared;
    return llvm::Error::success();
  }
  llvm::Expected<CallTimes> callTimes() override { return CallTimes{30, 40, 50}; }

  llvm::Error prepare(const ContentionProbe &wanted) override {
    current = wanted.collective;
    computation = wanted.kernel;
    ++prepared;
    return llvm::Error::success();
  }
  /// A collective takes a tenth longer beside kernels, a kernel a quarter longer.
  llvm::Expected<BesideTime> runBeside(const ContentionPlan &plan) override {
    bool areBoth = plan.collectives > 0 && plan.kernels > 0;
    Ns collective = truth(current.bytes), kernel = timeOf(*computation);
    collective += areBoth ? collective / 10 : 0;
    kernel += areBoth ? kernel / 4 : 0;
    Ns collectives = plan.collectives * collective, kernels = plan.kernels * kernel;
    clock += std::max(collectives, kernels);
    return BesideTime{plan.timesKernels ? kernel : collective,
                      plan.timesKernels ? collectives - kernels : kernels - collectives};
  }

  /// The time of a computation: a launch, and for products a fixed loss, then operations or bytes.
  Ns timeOf(const ComputeProbe &probe) const {
    double elements = 1;
    for (int64_t size : probe.operands.front().sizes)
      elements *= static_cast<double>(size);
    double ns = probe.name == "product" ? 400 + 2 * std::pow(elements, 1.5) / 100
                : probe.name == "copy"  ? 700 + 8 * elements / 20
                                        : 0;
    return 100 + static_cast<Ns>(ns);
  }

  llvm::Expected<ProbeTime> run(int64_t) override {
    ++runs;
    if (computation) {
      Ns time = timeOf(*computation);
      clock += time;
      return ProbeTime{time, time};
    }
    double factor = 1 + truth.noise * std::uniform_real_distribution<>(-1, 1)(random);
    if (std::uniform_int_distribution<>(0, 99)(random) < truth.outliers)
      factor *= 10;
    auto time = static_cast<Ns>(factor * static_cast<double>(truth(current.bytes)));
    if (isPair) {
      Ns other = truth(besideBytes), shorter = std::min(time, other);
      time = std::max(time, other) + shorter * pairPermille(current.kind) / 1000;
    }
    time += time * truth.skewPermille * rank() / 1000;
    clock += time;
    return ProbeTime{time, 500};
  }
  Ns now() const override { return clock; }

  commrt_context *const realContext;
  int64_t runs = 0, prepared = 0;

private:
  Truth truth;
  std::minstd_rand random;
  CollectiveProbe current;
  std::optional<ComputeProbe> computation;
  bool isPair = false;
  Bytes besideBytes = 0;
  Ns clock = 0;
};

/// Calls `body` with a bench per rank and returns what it returns on rank 0; all ranks have to return equal bytes.
template <typename Body> CalibratedCurve onRanks(int32_t ranks, const Truth &truth, Body body) {
  commrt_options options;
  commrt_options_init(&options);
  options.ranks = ranks;
  commrt_job *job = nullptr;
  EXPECT_EQ(commrt_job_create(&options, &job, nullptr, 0), COMMRT_OK);
  std::vector<commrt_context *> contexts(ranks);
  for (int32_t rank = 0; rank < ranks; ++rank)
    EXPECT_EQ(commrt_context_create(job, rank, &contexts[rank]), COMMRT_OK);
  std::vector<CalibratedCurve> curves(ranks);
  llvm::cantFail(runOnThreads(ranks, [&](size_t rank) {
    TruthBench bench(contexts[rank], truth);
    curves[rank] = llvm::cantFail(body(bench));
  }));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(toCacheText(curves[rank], "x"), toCacheText(curves[0], "x")) << "rank " << rank;
    commrt_context_destroy(contexts[rank]);
  }
  commrt_job_destroy(job);
  return curves[0];
}

const CollectiveProbe kAllReduce{CollectiveKind::AllReduce, {4, 1, 4}, ElementType::F32, 0};
constexpr Bytes kKiB = 1024, kMiB = 1024 * kKiB;

CalibratedCurve calibrate(const Truth &truth, const CalibratorOptions &options = {}) {
  return onRanks(4, truth, [&](Bench &bench) {
    return Calibrator(bench, options, [](const std::string &) {}).measureCurve(kAllReduce, kKiB, 64 * kMiB);
  });
}

/// By how much the measured curve misses the truth at `bytes`, permille.
int64_t missAt(const CalibratedCurve &curve, const Truth &truth, Bytes bytes) {
  Calibration calibration{{curve}, {}};
  MachineModel machine =
      llvm::cantFail(mergeCalibration(llvm::cantFail(MachineModel::load("h100-sxm")), calibration, "measured"));
  Ns measured = CollectiveCurve::get(machine, curve.probe.kind, curve.probe.shape, curve.probe.element)(bytes);
  return std::abs(measured - truth(bytes)) * 1000 / truth(bytes);
}

TEST(CalibratorTest, FindsLatencyAndBandwidthThroughNoise) {
  Truth truth;
  truth.noise = 0.05;
  truth.outliers = 5;
  CalibratedCurve curve = calibrate(truth);
  ASSERT_GE(curve.points.size(), 9u);
  double alpha = static_cast<double>(curve.points.front().time.value) -
                 truth.nsPerByte * static_cast<double>(curve.points.front().bytes);
  EXPECT_NEAR(alpha, 10000, 200);
  const CalibratedPoint &last = curve.points.back();
  EXPECT_NEAR((static_cast<double>(last.time.value) - alpha) / static_cast<double>(last.bytes), 0.05, 0.001);
  for (const CalibratedPoint &point : curve.points) {
    EXPECT_LE(point.time.lo, point.time.value);
    EXPECT_GE(point.time.hi, point.time.value);
    EXPECT_FALSE(point.isSkewed);
  }
}

TEST(CalibratorTest, FindsASwitchOfProtocol) {
  Truth truth;
  truth.switchAt = 3 * kMiB;
  truth.laterNsPerByte = 0.08;
  CalibratedCurve curve = calibrate(truth);
  // Steps around the switch are finer than elsewhere, so that only sizes close to it are missed.
  EXPECT_LE(missAt(curve, truth, 2 * kMiB), 20);
  EXPECT_LE(missAt(curve, truth, 5 * kMiB), 100);
  EXPECT_LE(missAt(curve, truth, 24 * kMiB), 20);
  CalibratedCurve plain = calibrate(Truth());
  EXPECT_GT(curve.points.size(), plain.points.size());
}

TEST(CalibratorTest, RejectsOutliersAndSaysSo) {
  Truth truth;
  truth.noise = 0.01;
  truth.outliers = 20;
  CalibratedCurve curve = calibrate(truth);
  for (const CalibratedPoint &point : curve.points) {
    EXPECT_NEAR(static_cast<double>(point.time.value), static_cast<double>(truth(point.bytes)),
                0.02 * static_cast<double>(truth(point.bytes)));
    EXPECT_TRUE(point.time.isUnstable()) << point.time.rejected << " of " << point.time.n;
  }
}

TEST(CalibratorTest, MarksRanksThatDiffer) {
  Truth truth;
  truth.skewPermille = 80;
  for (const CalibratedPoint &point : calibrate(truth).points)
    EXPECT_TRUE(point.isSkewed);
}

/// Whatever the time is that everything may take, a tenth more is never used, and most of it is, on the bench's own
/// clock. 10 ms are enough for a few points, 300 ms for all.
TEST(CalibratorTest, EndsWithinItsTime) {
  size_t before = 0;
  for (Ns budget : {1'000'000, 2'500'000, 10'000'000, 40'000'000, 300'000'000, 2'000'000'000}) {
    CalibratorOptions options;
    options.budget = budget;
    Ns used = 0;
    Truth truth;
    truth.noise = 0.05;
    truth.outliers = 2;
    CalibratedCurve curve = onRanks(4, truth, [&](TruthBench &bench) {
      llvm::Expected<CalibratedCurve> result =
          Calibrator(bench, options, [](const std::string &) {}).measureCurve(kAllReduce, kKiB, 64 * kMiB);
      if (bench.rank() == 0)
        used = bench.now();
      return result;
    });
    EXPECT_LE(used, budget + budget / 10);
    EXPECT_GE(curve.points.size(), before);
    before = curve.points.size();
    if (budget < 300'000'000) {
      EXPECT_EQ(curve.skipped, "the time that was given is used up");
      EXPECT_GE(used, budget / 2);
    }
    for (const CalibratedPoint &point : curve.points)
      EXPECT_GE(point.time.n + point.time.rejected, 5);
  }
  EXPECT_GE(before, 17u);
}

TEST(CalibratorTest, DoesNotMeasureWhatIsKnown) {
  CalibratedCurve first = calibrate(Truth());
  onRanks(4, Truth(), [&](TruthBench &bench) {
    Calibrator calibrator(bench, {}, [](const std::string &) {});
    llvm::Expected<CalibratedCurve> again = calibrator.measureCurve(kAllReduce, kKiB, 64 * kMiB, first.points);
    EXPECT_EQ(bench.prepared, 0);
    return again;
  });
}

TEST(CalibratorTest, FollowsTheRecipeOfPyTorch) {
  // One run to warm up and the mean of two: three runs per point.
  CalibratorOptions options;
  options.seedRecipe = true;
  onRanks(2, Truth(), [&](TruthBench &bench) {
    CollectiveProbe probe = kAllReduce;
    probe.shape = {2, 1, 2};
    probe.bytes = kMiB;
    CalibratedPoint point = *llvm::cantFail(Calibrator(bench, options, [](const std::string &) {}).measure(probe));
    EXPECT_EQ(bench.runs, 3);
    EXPECT_EQ(point.time.n, 2);
    EXPECT_EQ(point.time.value, Truth()(kMiB));
    return llvm::Expected<CalibratedCurve>(CalibratedCurve{probe, {point}, ""});
  });
}

TEST(CalibratorTest, FindsTheRooflineOfComputations) {
  onRanks(2, Truth(), [&](TruthBench &bench) {
    CalibratorOptions options;
    Sampler sampler(bench, options);
    EstimateStore store(bench, nullptr, "");
    auto quiet = [](const std::string &) {};
    ComputeCalibrator calibrator(bench, sampler, store, quiet);
    Roofline roofline = llvm::cantFail(calibrator.measureRoofline({ElementType::F32}));
    EXPECT_EQ(roofline.launch, 100);
    EXPECT_EQ(roofline.products.size(), 1U);
    // 100 operations a ns; 400 ns are lost at the start, as 40,000 operations would take.
    EXPECT_NEAR(roofline.products[0].flopsPerSecond, 1e11, 2e9);
    EXPECT_NEAR(roofline.products[0].halfFlops, 40000, 800);
    EXPECT_NEAR(roofline.copyBytesPerSecond, 20e9, 0.4e9);
    EXPECT_NEAR(static_cast<double>(roofline.copyLaunch), 800, 16);
    EXPECT_TRUE(roofline.skipped.empty());
    // A second time, everything is known.
    int64_t before = bench.prepared;
    EXPECT_EQ(llvm::cantFail(calibrator.measureRoofline({ElementType::F32})).launch, 100);
    EXPECT_EQ(bench.prepared, before);
    // The profile predicts what was measured, and sizes that were not.
    Calibration calibration;
    calibration.roofline = roofline;
    CostModel costs(
        llvm::cantFail(mergeCalibration(llvm::cantFail(MachineModel::load("h100-sxm")), calibration, "measured")));
    for (int64_t side : {48, 64, 200, 1000}) {
      int64_t flops = 2 * side * side * side;
      double expected = 500 + static_cast<double>(flops) / 100;
      EXPECT_NEAR(static_cast<double>(costs.costOfKernel(flops, 0, ElementType::F32, ComputeUnits::Matrix)), expected,
                  0.03 * expected);
    }
    EXPECT_EQ(costs.machine().record, 30);
    EXPECT_EQ(costs.machine().wait, 40);
    EXPECT_EQ(costs.machine().hop, 50);
    return llvm::Expected<CalibratedCurve>(CalibratedCurve{kAllReduce, {}, ""});
  });
}

TEST(CalibratorTest, ComputationsEndWithinTheTime) {
  for (Ns budget : {200'000, 3'000'000, 30'000'000}) {
    onRanks(2, Truth(), [&](TruthBench &bench) {
      CalibratorOptions options;
      options.budget = budget;
      Sampler sampler(bench, options);
      EstimateStore store(bench, nullptr, "");
      auto quiet = [](const std::string &) {};
      ComputeCalibrator calibrator(bench, sampler, store, quiet);
      Roofline roofline = llvm::cantFail(calibrator.measureRoofline({ElementType::F32}));
      EXPECT_LE(bench.now(), budget + budget / 10);
      EXPECT_FALSE(roofline.skipped.empty());
      EXPECT_EQ(roofline.skipped.back().second, "the time that was given is used up");
      return llvm::Expected<CalibratedCurve>(CalibratedCurve{kAllReduce, {}, ""});
    });
  }
}

/// Compiled code that counts how often it runs.
class CountingKernel : public CompiledKernel {
public:
  explicit CountingKernel(int64_t &runs) : runs(runs) {}
  int32_t run() override {
    ++runs;
    return COMMRT_OK;
  }

private:
  int64_t &runs;
};

/// Code that one rank cannot compile runs on none, and the reason is said; it ends no calibration.
TEST(CalibratorTest, CompiledCodeRunsOnAllRanksOrNone) {
  for (int32_t failing : {-1, 0, 1})
    onRanks(2, Truth(), [&](TruthBench &truth) {
      RuntimeBench bench(truth.realContext);
      CalibratorOptions options;
      options.seedRecipe = true;
      Sampler sampler(bench, options);
      EstimateStore store(bench, nullptr, "");
      auto quiet = [](const std::string &) {};
      ComputeCalibrator calibrator(bench, sampler, store, quiet);
      int64_t runs = 0;
      ComputeProbe probe{"code", {}, {}, false, "my.op", {"4xf32"}, "f00"};
      probe.compile = [&](commrt_context *context) -> llvm::Expected<std::unique_ptr<CompiledKernel>> {
        if (commrt_rank(context) == failing)
          return llvm::createStringError("no compiler");
        return std::make_unique<CountingKernel>(runs);
      };
      CalibratedOp op = llvm::cantFail(calibrator.measure(probe));
      if (failing < 0) {
        EXPECT_EQ(runs, 3); // One to warm up, and two.
        EXPECT_GT(op.time.value, 0);
        EXPECT_EQ(op.skipped, "");
        Calibration calibration;
        calibration.ops = {op};
        CostModel costs(
            llvm::cantFail(mergeCalibration(llvm::cantFail(MachineModel::load("h100-sxm")), calibration, "measured")));
        EXPECT_EQ(costs.findOp("my.op", {"4xf32"}), nullptr);
        EXPECT_EQ(costs.findOp("my.op", {"4xf32"}, "f00")->ns, op.time.value);
        EXPECT_TRUE(costs.hasForms("my.op"));
      } else {
        EXPECT_EQ(runs, 0);
        EXPECT_EQ(op.skipped,
                  bench.rank() == failing ? "no compiler" : "rank " + std::to_string(failing) + " cannot run it");
      }
      // What was prepared before still runs.
      EXPECT_EQ(llvm::cantFail(calibrator.measure(copyProbe(kKiB))).skipped, "");
      return llvm::Expected<CalibratedCurve>(CalibratedCurve{kAllReduce, {}, ""});
    });
}

/// A calibrator of contention that prints nothing.
struct QuietContention {
  QuietContention(TruthBench &bench, Ns budget)
      : options(optionsOf(budget)), sampler(bench, options), store(bench, nullptr, ""),
        calibrator(bench, sampler, store, quiet) {}

  static CalibratorOptions optionsOf(Ns budget) {
    CalibratorOptions options;
    options.budget = budget;
    return options;
  }

  CalibratorOptions options;
  Sampler sampler;
  EstimateStore store;
  std::function<void(const std::string &)> quiet = [](const std::string &) {};
  ContentionCalibrator calibrator;
};

/// A mebibyte, summed by two ranks of one node.
CollectiveProbe reduceOfTwo() {
  CollectiveProbe collective = kAllReduce;
  collective.shape = {2, 1, 2};
  collective.bytes = kMiB;
  return collective;
}

/// With time enough what was put in is found; otherwise the time is kept and the reason is said.
TEST(ContentionTest, FindsSlowdownsWithinTheTime) {
  for (Ns budget : {Ns(0), Ns(5'000'000), Ns(20'000'000)}) {
    onRanks(2, Truth(), [&](TruthBench &bench) {
      QuietContention quiet(bench, budget);
      ContentionCalibrator &calibrator = quiet.calibrator;
      CollectiveProbe collective = reduceOfTwo();
      ContentionPoint point =
          llvm::cantFail(calibrator.measure({collective, 0, Against::Matrix, productProbe(256, ElementType::F32)}));
      if (budget == 0) {
        EXPECT_EQ(point.skipped, "");
        EXPECT_NEAR(static_cast<double>(point.collectivePermille()), 100, 1);
        EXPECT_NEAR(static_cast<double>(point.computePermille()), 250, 1);
      } else {
        EXPECT_NE(point.skipped, "");
        EXPECT_LE(bench.now(), budget + budget / 10);
        EXPECT_GE(bench.now(), budget / 2);
      }
      return llvm::Expected<CalibratedCurve>(CalibratedCurve{kAllReduce, {}, ""});
    });
  }
}

/// What two collectives do to each other is found, reaches the profile and its curve, and is not measured twice.
TEST(ContentionTest, FindsWhatPairsDoToEachOther) {
  for (Ns budget : {Ns(0), Ns(1'000'000)})
    onRanks(2, Truth(), [&](TruthBench &bench) {
      QuietContention quiet(bench, budget);
      ContentionCalibrator &calibrator = quiet.calibrator;
      CollectiveProbe collective = reduceOfTwo();
      PairPoint pair = llvm::cantFail(calibrator.measurePair(collective));
      Calibration calibration;
      calibration.pairs = {pair};
      MachineModel machine =
          llvm::cantFail(mergeCalibration(llvm::cantFail(MachineModel::load("h100-sxm")), calibration, "measured"));
      if (budget == 0) {
        EXPECT_EQ(pair.skipped, "");
        EXPECT_NEAR(static_cast<double>(pair.permille()), 300, 1);
        EXPECT_EQ(machine.resources->shares.size(), 1u);
        for (const ShareEntry &entry : machine.resources->shares)
          EXPECT_EQ(entry.part, pair.partPermille() * 1000);
        EXPECT_EQ(pair.partPermille(), 650);
        int64_t before = bench.prepared;
        EXPECT_EQ(llvm::cantFail(calibrator.measurePair(collective)).permille(), pair.permille());
        EXPECT_EQ(bench.prepared, before);
      } else {
        EXPECT_EQ(pair.skipped, "the time that was given is used up");
        EXPECT_TRUE(machine.resources->shares.empty());
        EXPECT_LE(bench.now(), budget + budget / 10);
      }
      return llvm::Expected<CalibratedCurve>(CalibratedCurve{kAllReduce, {}, ""});
    });
}

/// The makespan of two collectives that are started at once on groups of their own, in a machine, ns. The second one
/// has the time `other`, or that of the first.
Ns playPair(const MachineModel &machine, const CollectiveProbe &collective, Ns alone, Ns other = 0) {
  Problem problem;
  problem.laneNames = {"compute", "one", "other"};
  for (LaneId lane : {1, 2}) {
    Node start;
    start.kind = NodeKind::Start;
    start.lane = lane;
    start.cost = lane == 2 && other > 0 ? other : alone;
    problem.setDemand(
        start, ContentionModel(machine).ofCollective(collective.kind, collective.bytes, collective.shape, start.cost));
    problem.nodes.push_back(start);
    problem.preds.append({});
    problem.touches.append({});
  }
  problem.finalize();
  EXPECT_EQ(problem.validate(), "");
  return makespanOf(problem, identityOrder(problem));
}

/// A plan with the profile takes as long as the machine that was measured, for each kind by itself: not for the median.
TEST(ContentionTest, PlansWithWhatPairsDoToEachOther) {
  onRanks(2, Truth(), [&](TruthBench &bench) {
    QuietContention quiet(bench, /*budget=*/0);
    Calibration calibration;
    CollectiveProbe collective = reduceOfTwo();
    calibration.contention = {llvm::cantFail(
        quiet.calibrator.measure({collective, 0, Against::Matrix, productProbe(256, ElementType::F32)}))};
    for (CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather}) {
      collective.kind = kind;
      calibration.pairs.push_back(llvm::cantFail(quiet.calibrator.measurePair(collective)));
    }
    MachineModel machine =
        llvm::cantFail(mergeCalibration(llvm::cantFail(MachineModel::load("h100-sxm")), calibration, "measured"));
    // A later calibration that measures no pairs keeps them.
    MachineModel later = llvm::cantFail(mergeCalibration(machine, Calibration(), "later"));
    for (CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather}) {
      collective.kind = kind;
      Ns alone = Truth()(collective.bytes), truth = alone + alone * pairPermille(kind) / 1000;
      EXPECT_NEAR(static_cast<double>(playPair(machine, collective, alone)) / static_cast<double>(truth), 1, 0.005);
      EXPECT_EQ(playPair(later, collective, alone), playPair(machine, collective, alone));
    }
    return llvm::Expected<CalibratedCurve>(CalibratedCurve{kAllReduce, {}, ""});
  });
}

Estimate exactly(Ns time) { return {time, time, time, 1, 0}; }

/// What is derived from three times of a pair gives the same three times in the timeline: also if one side ends long
/// before the other, if they do not disturb each other at all, and, at most, if they take longer than one after the
/// other.
TEST(ContentionTest, PartsOfGivenPairs) {
  for (Ns first : {1'000'000, 2'000'000, 7'000'000})
    for (Ns second : {1'000'000, 3'000'000})
      for (int64_t permille : {-100, 0, 120, 500, 873, 1000, 1500}) {
        Ns shorter = std::min(first, second), longer = std::max(first, second);
        PairPoint pair;
        pair.probe = pair.beside = reduceOfTwo();
        pair.alone = exactly(first), pair.besideAlone = exactly(second);
        pair.both = exactly(longer + shorter * permille / 1000);
        EXPECT_EQ(pair.permille(), std::max<int64_t>(0, permille));
        EXPECT_GE(pair.partPermille(), 500);
        EXPECT_LE(pair.partPermille(), 1000);
        Calibration calibration;
        calibration.pairs = {pair};
        MachineModel machine =
            llvm::cantFail(mergeCalibration(llvm::cantFail(MachineModel::load("cpu-mpi")), calibration, "measured"));
        EXPECT_EQ(machine.lanes, LaneSharing::PerGroup);
        Ns truth = longer + shorter * std::clamp<int64_t>(permille, 0, 1000) / 1000;
        EXPECT_NEAR(static_cast<double>(playPair(machine, pair.probe, first, second)) / static_cast<double>(truth), 1,
                    0.002);
      }
}

/// The groups of a shape and those across them are the axes of a mesh: every rank is in one group of each, and two
/// groups have one rank in common. The shapes are those that a machine sees.
TEST(ContentionTest, GroupsAreAxesOfAMesh) {
  int64_t meshes = 0;
  for (int64_t node : {2, 4, 8})
    for (int64_t nodes : {1, 2, 4})
      for (int64_t local = 1; local <= node; local *= 2)
        for (int64_t spanned = 1; spanned <= nodes; spanned *= 2) {
          GroupShape shape{local * spanned, spanned, local};
          RankGroups groups = groupsOfShape(shape, node * nodes, node), across = groupsAcross(groups);
          EXPECT_EQ(static_cast<int64_t>(groups.size()) * shape.ranks, node * nodes);
          std::set<int64_t> seen;
          for (const std::vector<int64_t> &group : groups) {
            EXPECT_EQ(shapeOfRanks(group, node), shape);
            seen.insert(group.begin(), group.end());
          }
          EXPECT_EQ(static_cast<int64_t>(seen.size()), node * nodes);
          EXPECT_EQ(across.empty(), shape.ranks == node * nodes);
          if (across.empty())
            continue;
          ++meshes;
          for (const std::vector<int64_t> &group : groups)
            for (const std::vector<int64_t> &other : across)
              EXPECT_EQ(llvm::count_if(group, [&](int64_t rank) { return llvm::is_contained(other, rank); }), 1);
        }
  EXPECT_GE(meshes, 30);
  // Three of four ranks do not divide a job: they are one group, beside another one with the same members.
  EXPECT_EQ(groupsOfShape({3, 1, 3}, 4, 4), RankGroups({{0, 1, 2}}));
  EXPECT_TRUE(groupsAcross(groupsOfShape({3, 1, 3}, 4, 4)).empty());
}

/// Two axes of a mesh of unequal sizes, of which one takes three times as many bytes: each is timed alone, and both
/// together; both shapes reach the profile.
TEST(ContentionTest, MeasuresTwoAxes) {
  onRanks(6, Truth(), [&](TruthBench &bench) {
    QuietContention quiet(bench, /*budget=*/0);
    PairPoint pair = llvm::cantFail(quiet.calibrator.measurePair(reduceOfTwo()));
    EXPECT_EQ(pair.beside.shape, (GroupShape{3, 1, 3}));
    EXPECT_EQ(pair.beside.bytes, 3 * kMiB);
    EXPECT_NEAR(static_cast<double>(pair.alone.value), static_cast<double>(Truth()(kMiB)), 2);
    EXPECT_NEAR(static_cast<double>(pair.besideAlone.value), static_cast<double>(Truth()(3 * kMiB)), 2);
    EXPECT_NEAR(static_cast<double>(pair.permille()), 300, 1);
    Calibration calibration;
    calibration.pairs = {pair};
    MachineModel machine =
        llvm::cantFail(mergeCalibration(llvm::cantFail(MachineModel::load("cpu-mpi")), calibration, "measured"));
    EXPECT_EQ(machine.resources->shares.size(), 2u);
    return llvm::Expected<CalibratedCurve>(CalibratedCurve{kAllReduce, {}, ""});
  });
}

/// Two groups on threads: both collectives run, and a plain measurement afterwards runs one.
TEST(ContentionTest, RunsPairsOnThreads) {
  onRanks(3, Truth(), [&](TruthBench &truth) {
    RuntimeBench bench(truth.realContext);
    CollectiveProbe collective = kAllReduce;
    collective.shape = {2, 1, 2};
    for (CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::Permute})
      for (PairSides sides : {PairSides::Both, PairSides::First, PairSides::Second}) {
        collective.kind = kind;
        collective.bytes = 4 * kKiB;
        llvm::cantFail(bench.preparePair(collective, collective.bytes, sides));
        ProbeTime time = llvm::cantFail(bench.run(3));
        EXPECT_EQ(time.total > 0, bench.rank() < 2); // The third rank takes no part.
      }
    llvm::cantFail(bench.prepare(collective));
    EXPECT_EQ(llvm::cantFail(bench.run(1)).total > 0, bench.rank() < 2);
    return llvm::Expected<CalibratedCurve>(CalibratedCurve{kAllReduce, {}, ""});
  });
}

/// All groups of an axis communicate at once, and those of the other axis beside them: every rank takes part.
TEST(ContentionTest, RunsAxesOnThreads) {
  onRanks(6, Truth(), [&](TruthBench &truth) {
    RuntimeBench bench(truth.realContext);
    CollectiveProbe collective = reduceOfTwo();
    EXPECT_EQ(bench.participants(collective), 6);
    EXPECT_EQ(bench.shapeAcross(collective.shape), (GroupShape{3, 1, 3}));
    for (CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::Permute})
      for (PairSides sides : {PairSides::Both, PairSides::First, PairSides::Second}) {
        collective.kind = kind;
        collective.bytes = 24 * kKiB;
        llvm::cantFail(bench.preparePair(collective, 12 * kKiB, sides));
        EXPECT_GT(llvm::cantFail(bench.run(3)).total, 0);
      }
    llvm::cantFail(bench.prepare(collective));
    EXPECT_GT(llvm::cantFail(bench.run(1)).total, 0);
    return llvm::Expected<CalibratedCurve>(CalibratedCurve{kAllReduce, {}, ""});
  });
}

/// On CPU backends computations run on a thread beside: both sides are timed, and what they did is said.
TEST(ContentionTest, RunsBothSidesOnThreads) {
  onRanks(2, Truth(), [&](TruthBench &truth) {
    RuntimeBench bench(truth.realContext);
    CollectiveProbe collective = kAllReduce;
    collective.shape = {2, 1, 2};
    collective.bytes = 4 * kKiB;
    for (bool timesKernels : {false, true}) {
      ComputeProbe kernel = timesKernels ? copyProbe(64 * kKiB) : productProbe(16, ElementType::F32);
      llvm::cantFail(bench.prepare(ContentionProbe{collective, 0, Against::Matrix, kernel}));
      BesideTime alone = llvm::cantFail(bench.runBeside({timesKernels ? 0 : 5, timesKernels ? 5 : 0, timesKernels}));
      EXPECT_GT(alone.time, 0);
      BesideTime both = llvm::cantFail(bench.runBeside({10, 10, timesKernels}));
      EXPECT_GT(both.time, 0);
    }
    return llvm::Expected<CalibratedCurve>(CalibratedCurve{kAllReduce, {}, ""});
  });
}

TEST(StatisticsTest, FitsLines) {
  // 300 + amount / 4e9 per second.
  FittedLine line = fitLine({{4, 301}, {400, 400}, {40000, 10300}});
  EXPECT_NEAR(line.fixed, 300, 1e-6);
  EXPECT_NEAR(line.rate, 4e9, 1);
  // A fixed part below 0 is none; one point has none either.
  EXPECT_EQ(fitLine({{100, 10}, {200, 40}}).fixed, 0);
  EXPECT_EQ(fitLine({{100, 10}}).fixed, 0);
  EXPECT_NEAR(fitLine({{100, 10}}).rate, 1e10, 1);
}

TEST(StatisticsTest, MediansAndIntervalsOfKnownSamples) {
  std::vector<Ns> samples;
  for (Ns i = 1; i <= 101; ++i)
    samples.push_back(1000 + i);
  Estimate estimate = estimateDuration(samples);
  EXPECT_EQ(estimate.value, 1051);
  // Tables of the sign test give the 41st and the 61st of 101 samples for 95 %; the approximation may be one off.
  EXPECT_NEAR(static_cast<double>(estimate.lo), 1041, 1);
  EXPECT_NEAR(static_cast<double>(estimate.hi), 1061, 1);
  EXPECT_EQ(estimate.rejected, 0);
  samples.insert(samples.end(), {5000, 6000, 7000});
  EXPECT_EQ(estimateDuration(samples).rejected, 3);
  EXPECT_EQ(estimateDuration({}).n, 0);
  EXPECT_EQ(estimateDuration({7}).value, 7);
}

} // namespace
