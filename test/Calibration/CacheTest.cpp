//===- CacheTest.cpp - Measurements that outlive a process ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Files that appear whole or not at all, whatever happens to those who write them.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Cache.h"
#include "CommSched/Calibration/Profile.h"
#include "CommSched/Machine/CostModel.h"
#include "CommSched/Support/RankThreads.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "gtest/gtest.h"
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

using namespace commsched;

namespace {

class CacheTest : public testing::Test {
protected:
  void SetUp() override { ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("commsched-cache", folder)); }
  void TearDown() override { llvm::sys::fs::remove_directories(folder); }

  /// Files in the folder that are neither the cache nor its lock.
  size_t strayFiles(const CalibrationCache &cache) const {
    size_t count = 0;
    std::error_code code;
    for (llvm::sys::fs::directory_iterator it(folder, code), end; it != end && !code; it.increment(code))
      count += it->path() != cache.path() && it->path() != cache.path() + ".lock";
    return count;
  }

  llvm::SmallString<64> folder;
};

std::string append(std::optional<std::string> text, char letter) { return text.value_or("") + letter; }

TEST_F(CacheTest, KeepsWhatEveryProcessStores) {
  CalibrationCache cache(folder, "machine");
  auto store = [&] {
    for (int i = 0; i < 20; ++i)
      llvm::cantFail(cache.update([](std::optional<std::string> text) { return append(std::move(text), 'x'); },
                                  std::chrono::minutes(1)));
  };
  // The first file registers LLVM's signal handlers, with a stack for them, on the thread that writes it. At the end of
  // any other thread than the main one, the address sanitizer would take that stack for its own.
  store();
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    children.push_back(fork());
    if (children.back() == 0) {
      store();
      _exit(0);
    }
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  // Threads of one process as well.
  llvm::cantFail(runOnThreads(4, [&](size_t) { store(); }));
  EXPECT_EQ(cache.load(), std::string(180, 'x'));
  EXPECT_EQ(strayFiles(cache), 0u);
  EXPECT_FALSE(CalibrationCache(folder, "another machine").load());
}

TEST_F(CacheTest, SurvivesAWriterThatIsKilled) {
  CalibrationCache cache(folder, "machine");
  llvm::cantFail(
      cache.update([](std::optional<std::string>) { return std::string("whole"); }, std::chrono::minutes(1)));
  pid_t child = fork();
  if (child == 0) {
    // Killed between the lock and the rename.
    llvm::consumeError(cache.update(
        [](std::optional<std::string>) -> std::string {
          raise(SIGKILL);
          return "half";
        },
        std::chrono::minutes(1)));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(cache.load(), "whole");
  // The lock went with the process.
  EXPECT_FALSE(cache.update([](std::optional<std::string> text) { return append(std::move(text), '!'); },
                            std::chrono::minutes(1)));
  EXPECT_EQ(cache.load(), "whole!");
}

TEST_F(CacheTest, SaysWhatItCannotDo) {
  auto same = [](std::optional<std::string>) { return std::string("x"); };
  CalibrationCache nowhere("/proc/none", "machine");
  EXPECT_NE(
      llvm::toString(nowhere.update(same, std::chrono::milliseconds(1))).find("cannot make the folder '/proc/none'"),
      std::string::npos);
  EXPECT_FALSE(nowhere.load());
}

TEST_F(CacheTest, ReadsOnlyWhatItWrote) {
  CalibratedCurve curve{{CollectiveKind::AllGather, {8, 1, 8}, ElementType::BF16, 0},
                        {{1024, {2000, 1990, 2010, 40, 1}, 300, false}, {4096, {2500, 2400, 2600, 20, 0}, 310, true}},
                        ""};
  std::string text = toCacheText(curve, "machine");
  EXPECT_EQ(toCacheText(llvm::cantFail(parseCacheText(text, "machine")), "machine"), text);
  EXPECT_FALSE(static_cast<bool>(llvm::expectedToOptional(parseCacheText(text, "other"))));
  // Every text that is cut short is refused.
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(
        static_cast<bool>(llvm::expectedToOptional(parseCacheText(llvm::StringRef(text).take_front(size), "machine"))))
        << size;
}

/// A bench of one rank that measures nothing.
class Alone : public Bench {
public:
  int32_t rank() const override { return 0; }
  int32_t ranks() const override { return 1; }
  std::string clockName() const override { return ""; }
  Bytes feasibleBytes(const CollectiveProbe &probe) const override { return probe.bytes; }
  llvm::Error prepare(const CollectiveProbe &) override { return llvm::Error::success(); }
  llvm::Expected<ProbeTime> run(int64_t) override { return ProbeTime(); }
  llvm::Expected<std::vector<std::vector<int64_t>>> gather(llvm::ArrayRef<int64_t> own) override {
    return std::vector<std::vector<int64_t>>{own.vec()};
  }
  Ns now() const override { return 0; }
};

TEST_F(CacheTest, KeepsTimesByName) {
  Alone bench;
  CalibrationCache cache(folder, "machine");
  {
    EstimateStore store(bench, &cache, "machine");
    llvm::cantFail(store.load(/*fresh=*/false));
    EXPECT_FALSE(store.find("a \"name\""));
    store.put("a \"name\"", {{5, 4, 6, 20, 1}, true});
    store.put("another", {{7, 7, 7, 2, 0}, false});
    EXPECT_TRUE(store.getWarnings().empty());
  }
  EstimateStore again(bench, &cache, "machine"), fresh(bench, &cache, "machine"), other(bench, &cache, "other");
  llvm::cantFail(again.load(/*fresh=*/false));
  ASSERT_TRUE(again.find("a \"name\""));
  EXPECT_EQ(again.find("a \"name\"")->time.hi, 6);
  EXPECT_TRUE(again.find("a \"name\"")->isSkewed);
  llvm::cantFail(fresh.load(/*fresh=*/true));
  EXPECT_FALSE(fresh.find("another"));
  // What a fresh run stores does not lose the others.
  fresh.put("third", {{1, 1, 1, 1, 0}, false});
  llvm::cantFail(again.load(/*fresh=*/false));
  EXPECT_TRUE(again.find("another"));
  EXPECT_TRUE(again.find("third"));
  // Another machine's file is set aside.
  llvm::cantFail(other.load(/*fresh=*/false));
  EXPECT_FALSE(other.find("another"));
  ASSERT_EQ(other.getWarnings().size(), 1U);
  EXPECT_NE(other.getWarnings()[0].find("is set aside"), std::string::npos);
  EXPECT_FALSE(cache.load());
}

TEST_F(CacheTest, ProfilesTakeMeasurementsAndKeepTheRest) {
  MachineModel base = llvm::cantFail(MachineModel::load("h100-sxm"));
  CalibratedCurve curve{{CollectiveKind::AllReduce, {8, 1, 8}, ElementType::BF16, 0},
                        {{1024, {2000, 1990, 2010, 40, 1}, 300, false}, {4096, {2500, 2400, 2600, 20, 0}, 310, true}},
                        ""};
  CalibratedCurve skipped{{CollectiveKind::AllToAll, {8, 1, 8}, ElementType::BF16, 0}, {}, "no reason"};
  MachineModel machine = llvm::cantFail(mergeCalibration(base, {{curve, skipped}, {{"tool", "test"}}}, "mine"));
  CostModel costs(machine), before(base);
  EXPECT_EQ(costs.costOfCollective(CollectiveKind::AllReduce, 4096, curve.probe.shape, ElementType::F32), 2500);
  EXPECT_EQ(machine.issue, 300);
  // What was not measured falls back to the model.
  EXPECT_EQ(costs.costOfCollective(CollectiveKind::AllToAll, 4096, curve.probe.shape, ElementType::BF16),
            before.costOfCollective(CollectiveKind::AllToAll, 4096, curve.probe.shape, ElementType::BF16));
  EXPECT_EQ(machine.matrixRate(ElementType::BF16), base.matrixRate(ElementType::BF16));
  // What could not be measured is said, whatever the texts are made of.
  Calibration left{{}, {}};
  left.ops.push_back(
      {{"aten.mm", {}, {}, false, "a product with a long name", {"1024x1024xf32"}}, {}, false, "no kernel", 0});
  left.skipped = {{"something", "for a reason"}};
  std::string text = llvm::cantFail(mergeCalibration(base, left, "mine")).toJSON();
  EXPECT_NE(text.find("\"what\": \"a product with a long name (1024x1024xf32)\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"reason\": \"for a reason\""), std::string::npos);
  // A second calibration replaces the table of the first.
  curve.points.front().time = {1111, 1100, 1120, 40, 1};
  MachineModel again = llvm::cantFail(mergeCalibration(machine, {{curve}, {}}, "mine"));
  EXPECT_EQ(again.collectives.size(), machine.collectives.size());
  EXPECT_EQ(CostModel(again).costOfCollective(CollectiveKind::AllReduce, 1024, curve.probe.shape, ElementType::F32),
            1111);
}

} // namespace
