//===- EventsTest.cpp - Calibration by events against a known truth ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The nccl backend over the emulated CUDA runtime and NCCL, whose virtual clock follows a model: what is measured has
// to be what the model says. The emulator reads its model once, so that each test has a process of its own.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Calibrator.h"
#include "CommSched/Calibration/Profile.h"
#include "CommSched/Calibration/RuntimeBench.h"
#include "CommSched/Support/RankThreads.h"
#include "gtest/gtest.h"
#include <cstdlib>

using namespace commsched;

namespace {

constexpr Bytes kKiB = 1024, kMiB = 1024 * kKiB;

/// The emulator's model of a collective, and of noise.
struct Truth {
  int64_t callNs = 20000, bytesPerUs = 10000, switchBytes = 0, slowBytesPerUs = 10000, skewPermille = 0;
  int64_t noisePermille = 0, outlierPermille = 0;

  void put() const {
    for (auto [name, value] : {std::pair("NCCL_EMU_CALL_NS", callNs),
                               {"NCCL_EMU_BYTES_PER_US", bytesPerUs},
                               {"NCCL_EMU_SWITCH_BYTES", switchBytes},
                               {"NCCL_EMU_SLOW_BYTES_PER_US", slowBytesPerUs},
                               {"NCCL_EMU_SKEW_PERMILLE", skewPermille},
                               {"CUDA_EMU_NOISE_PERMILLE", noisePermille},
                               {"CUDA_EMU_OUTLIER_PERMILLE", outlierPermille}})
      setenv(name, std::to_string(value).c_str(), 1);
  }
  /// The time of a collective through which `moved` bytes pass on each rank.
  double operator()(double moved) const {
    double rate = static_cast<double>(moved < static_cast<double>(switchBytes) ? slowBytesPerUs : bytesPerUs);
    return static_cast<double>(callNs) + moved * 1000 / rate;
  }
};

/// Calls `body` with a bench on each of `ranks` ranks and returns what it returns on rank 0.
template <typename Body> auto onRanks(int32_t ranks, Body body) {
  commrt_options options;
  commrt_options_init(&options);
  options.ranks = ranks;
  options.backend = "nccl";
  commrt_job *job = nullptr;
  char message[1024] = "";
  EXPECT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_OK) << message;
  std::vector<commrt_context *> contexts(ranks);
  for (int32_t rank = 0; rank < ranks; ++rank)
    EXPECT_EQ(commrt_context_create(job, rank, &contexts[rank]), COMMRT_OK);
  std::vector<decltype(body(std::declval<RuntimeBench &>()))> results(ranks);
  llvm::cantFail(runOnThreads(ranks, [&](size_t rank) {
    // The emulated devices have no cache that operands would have to rotate through.
    RuntimeBench bench(contexts[rank], /*rotatedBytes=*/0);
    results[rank] = body(bench);
  }));
  for (commrt_context *context : contexts)
    commrt_context_destroy(context);
  commrt_job_destroy(job);
  return results[0];
}

/// Without noise, a few samples tell as much as many.
bool truthHasNoise() {
  return getenv("CUDA_EMU_NOISE_PERMILLE") != std::string("0") ||
         getenv("CUDA_EMU_OUTLIER_PERMILLE") != std::string("0");
}

/// Measures the sizes, or a grid between two of them.
CalibratedCurve calibrate(const CollectiveProbe &probe, const std::vector<Bytes> &sizes, bool isGrid = false) {
  CalibratorOptions options;
  // There is nothing to warm up.
  options.warmUpTime = 0;
  options.warmUpRuns = 2;
  options.minRuns = truthHasNoise() ? 20 : 6;
  return onRanks(static_cast<int32_t>(probe.shape.ranks), [&](Bench &bench) {
    Calibrator calibrator(bench, options, [](const std::string &) {});
    return llvm::cantFail(isGrid ? calibrator.measureCurve(probe, sizes.front(), sizes.back())
                                 : calibrator.measureSizes(probe, sizes));
  });
}

CollectiveProbe probeOf(CollectiveKind kind, int64_t ranks = 2) {
  return {kind, {ranks, 1, ranks}, ElementType::F32, 0};
}

/// What a test's process does: its failures go where the parent prints them.
[[noreturn]] void runAndExit(const Truth &truth, const std::function<void()> &body) {
  truth.put();
  body();
  const testing::TestResult &result = *testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.total_part_count(); ++i)
    std::cerr << result.GetTestPartResult(i) << std::endl;
  std::exit(testing::Test::HasFailure() ? 1 : 0);
}

/// Runs `body` in a process of its own whose emulator follows `truth`.
void follow(const Truth &truth, const std::function<void()> &body) {
  EXPECT_EXIT(runAndExit(truth, body), testing::ExitedWithCode(0), "");
}

/// The curve's latency and its ns per byte, from its ends.
std::pair<double, double> lineOf(const CalibratedCurve &curve) {
  const CalibratedPoint &first = curve.points.front(), &last = curve.points.back();
  double slope =
      static_cast<double>(last.time.value - first.time.value) / static_cast<double>(last.bytes - first.bytes);
  return {static_cast<double>(first.time.value) - slope * static_cast<double>(first.bytes), slope};
}

/// Checks latency and time per byte within 2 % of the model. `share`: how much of the profile's bytes the model counts.
void expectLine(const CalibratedCurve &curve, const Truth &truth, double share) {
  ASSERT_GE(curve.points.size(), 3U);
  // Noise makes everything longer; a collective of two ranks ends with the slower one. The median of the larger of two
  // values between 0 and 1 is 0.71, their mean 0.67.
  double longer = 1 + 0.69 * static_cast<double>(truth.noisePermille) / 1000;
  auto [latency, slope] = lineOf(curve);
  double alpha = static_cast<double>(truth.callNs) * longer;
  double beta = share * 1000 / static_cast<double>(truth.bytesPerUs) * longer;
  EXPECT_NEAR(latency, alpha, 0.02 * alpha) << stringify(curve.probe.kind).str();
  EXPECT_NEAR(slope, beta, 0.02 * beta) << stringify(curve.probe.kind).str();
  for (const CalibratedPoint &point : curve.points) {
    EXPECT_LE(point.time.lo, point.time.value);
    EXPECT_GE(point.time.hi, point.time.value);
    EXPECT_FALSE(point.isSkewed);
    EXPECT_GT(point.issue, 0);
  }
}

// Tests that latency and bandwidth of every kind are those of the model, whatever the machine does meanwhile.
TEST(EventsTest, FindLatencyAndBandwidth) {
  Truth truth;
  follow(truth, [&] {
    // The model counts the bytes that pass through a rank: those of one other rank, or the message; an all_reduce and a
    // broadcast move theirs twice.
    for (auto [kind, share] : {std::pair(CollectiveKind::AllGather, 0.5),
                               {CollectiveKind::ReduceScatter, 0.5},
                               {CollectiveKind::AllReduce, 2.0},
                               {CollectiveKind::AllToAll, 0.5},
                               {CollectiveKind::Broadcast, 2.0},
                               {CollectiveKind::Send, 1.0},
                               {CollectiveKind::Permute, 1.0}}) {
      CalibratedCurve curve = calibrate(probeOf(kind), {kKiB, 16 * kKiB, 256 * kKiB});
      expectLine(curve, truth, share);
      // Short ones fill 200 us; one alone takes as long.
      EXPECT_EQ(curve.points.front().operations, 10);
      EXPECT_NEAR(static_cast<double>(curve.points.front().single), static_cast<double>(truth.callNs),
                  0.02 * static_cast<double>(truth.callNs));
    }
  });
}

TEST(EventsTest, FindLatencyAndBandwidthThroughNoise) {
  Truth truth;
  truth.noisePermille = 100;
  truth.outlierPermille = 5;
  follow(truth, [&] {
    CalibratedCurve curve = calibrate(probeOf(CollectiveKind::AllReduce), {4 * kKiB, 64 * kKiB, 256 * kKiB});
    expectLine(curve, truth, 2);
  });
}

// Tests that the sizes around a switch of protocol are found, so that the table predicts sizes that were not measured.
TEST(EventsTest, FindASwitchOfProtocol) {
  Truth truth;
  truth.switchBytes = 192 * kKiB;
  truth.slowBytesPerUs = 20000;
  follow(truth, [&] {
    CalibratedCurve curve = calibrate(probeOf(CollectiveKind::AllReduce), {8 * kKiB, 512 * kKiB}, /*isGrid=*/true);
    MachineModel machine = llvm::cantFail(
        mergeCalibration(llvm::cantFail(MachineModel::load("h100-sxm")), Calibration{{curve}, {}}, "measured"));
    CollectiveCurve table = CollectiveCurve::get(machine, curve.probe.kind, curve.probe.shape, curve.probe.element);
    // An all_reduce moves its bytes twice: the switch is at 96 KiB of the profile's.
    for (Bytes bytes : {20 * kKiB, 40 * kKiB, 64 * kKiB, 150 * kKiB, 400 * kKiB})
      EXPECT_NEAR(static_cast<double>(table(bytes)), truth(2.0 * static_cast<double>(bytes)),
                  0.1 * truth(2.0 * static_cast<double>(bytes)))
          << bytes;
    // Steps beside the switch are finer than powers of two, and the curve says where it is.
    auto isFast = [&](const CalibratedPoint &point) { return point.bytes >= 96 * kKiB; };
    auto first = std::find_if(curve.points.begin(), curve.points.end(), isFast);
    ASSERT_NE(first, curve.points.end());
    ASSERT_NE(first, curve.points.begin());
    EXPECT_LE(first->bytes - std::prev(first)->bytes, 16 * kKiB);
  });
}

// Tests that outliers do not move the value, and are said.
TEST(EventsTest, RejectOutliersAndSaySo) {
  Truth truth;
  truth.outlierPermille = 150;
  follow(truth, [&] {
    // One operation lasts for a sample, so that an outlier is a sample.
    CalibratedCurve curve = calibrate(probeOf(CollectiveKind::AllReduce), {kMiB});
    const CalibratedPoint &point = curve.points.front();
    double expected = truth(2.0 * kMiB);
    EXPECT_EQ(point.operations, 1);
    EXPECT_NEAR(static_cast<double>(point.time.value), expected, 0.02 * expected);
    EXPECT_TRUE(point.time.isUnstable()) << point.time.rejected << " of " << point.time.n;
  });
}

// Tests that what collectives and kernels do to each other is what the model says, for each number of thread blocks.
TEST(EventsTest, RecoverContention) {
  Truth truth;
  follow(truth, [] {
    for (auto [name, value] : {std::pair("CUDA_EMU_KERNEL_NS", "30000"),
                               {"CUDA_EMU_MATRIX_SLOW_PERMILLE", "200"},
                               {"CUDA_EMU_MATRIX_SLOW_PER_CTA_PERMILLE", "10"},
                               {"CUDA_EMU_MEMORY_SLOW_PERMILLE", "400"},
                               {"CUDA_EMU_MEMORY_SLOW_PER_CTA_PERMILLE", "30"},
                               {"NCCL_EMU_SLOW_BY_MATRIX_PERMILLE", "150"},
                               {"NCCL_EMU_SLOW_BY_MEMORY_PERMILLE", "3200"},
                               {"COMMRT_DEVICE_KERNELS", "require"},
                               {"COMMRT_NCCL_GROUPS", "groups_of_2_ctas_2:max=2;groups_of_2_ctas_32:max=32"}})
      setenv(name, value, 1);
    auto points = onRanks(2, [](RuntimeBench &bench) {
      CalibratorOptions options;
      Sampler sampler(bench, options);
      EstimateStore store(bench, nullptr, "");
      auto quiet = [](const std::string &) {};
      ContentionCalibrator calibrator(bench, sampler, store, quiet);
      std::vector<ContentionPoint> result;
      CollectiveProbe collective = probeOf(CollectiveKind::AllGather);
      collective.bytes = 256 * kKiB;
      for (int64_t ctas : {0, 2, 32})
        for (Against against : {Against::Matrix, Against::Memory})
          result.push_back(llvm::cantFail(
              calibrator.measure({collective, ctas, against,
                                  against == Against::Matrix ? productProbe(8, ElementType::F32) : copyProbe(kKiB)})));
      return result;
    });
    ASSERT_EQ(points.size(), 6U);
    for (const ContentionPoint &point : points) {
      EXPECT_EQ(point.skipped, "");
      bool isMatrix = point.probe.against == Against::Matrix;
      // Without a choice, the emulated NCCL takes 8.
      double blocks = point.probe.ctas == 0 ? 8 : static_cast<double>(point.probe.ctas);
      double compute = isMatrix ? 200 + 10 * blocks : 400 + 30 * blocks, collective = isMatrix ? 150 : 3200;
      EXPECT_NEAR(static_cast<double>(point.computePermille()), compute, 0.05 * compute) << blocks;
      EXPECT_NEAR(static_cast<double>(point.collectivePermille()), collective, 0.05 * collective) << blocks;
      EXPECT_FALSE(point.isSkewed);
    }
    MachineModel machine = llvm::cantFail(mergeCalibration(llvm::cantFail(MachineModel::load("h100-sxm")),
                                                           Calibration{{}, {}, {}, {}, points}, "measured"));
    ASSERT_EQ(machine.contention.size(), 6U);
    for (const ContentionEntry &entry : machine.contention)
      EXPECT_NEAR(entry.collectivePermille, entry.against == Against::Matrix ? 150 : 3200, 160);
  });
}

// Tests that what collectives of two groups do to each other is what the model says.
TEST(EventsTest, RecoverWhatCollectivesDoToEachOther) {
  for (int64_t permille : {0, 250, 1000}) {
    Truth truth;
    follow(truth, [&truth, permille] {
      setenv("NCCL_EMU_SLOW_BY_COLLECTIVE_PERMILLE", std::to_string(permille).c_str(), 1);
      PairPoint pair = onRanks(2, [](RuntimeBench &bench) {
        CalibratorOptions options;
        Sampler sampler(bench, options);
        EstimateStore store(bench, nullptr, "");
        auto quiet = [](const std::string &) {};
        CollectiveProbe collective = probeOf(CollectiveKind::AllGather);
        collective.bytes = 256 * kKiB;
        return llvm::cantFail(ContentionCalibrator(bench, sampler, store, quiet).measurePair(collective));
      });
      EXPECT_EQ(pair.skipped, "");
      EXPECT_NEAR(static_cast<double>(pair.permille()), static_cast<double>(permille),
                  0.05 * static_cast<double>(permille) + 2);
      EXPECT_NEAR(static_cast<double>(pair.alone.value), truth(128.0 * kKiB), 0.02 * truth(128.0 * kKiB));
    });
  }
}

// Tests that ranks whose medians differ are marked.
TEST(EventsTest, MarkRanksThatDiffer) {
  Truth truth;
  truth.skewPermille = 80;
  follow(truth, [&] {
    CalibratedCurve curve = calibrate(probeOf(CollectiveKind::AllGather, 4), {4 * kMiB});
    EXPECT_TRUE(curve.points.front().isSkewed);
    // The median of 1, 1.08, 1.16 and 1.24.
    double expected = 1.12 * truth(3.0 * kMiB);
    EXPECT_NEAR(static_cast<double>(curve.points.front().time.value), expected, 0.02 * expected);
  });
}

} // namespace
