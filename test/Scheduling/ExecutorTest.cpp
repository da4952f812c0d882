//===- ExecutorTest.cpp - Tests that threads change nothing -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Compares answers, and every trial of their searches, between one, two and seven threads.
//
//===------------------------------------------------------------------------------------------===//

#include "CheckResult.h"
#include "RandomProblem.h"
#include <atomic>
#include <thread>

using namespace commsched;
using namespace commsched::test;

namespace {

/// Runs each task on a thread of its own, the last task first.
Executor onThreads(size_t threads, std::atomic<int64_t> &tasks) {
  Executor executor;
  executor.threads = threads;
  executor.forEach = [threads, &tasks](size_t count, llvm::function_ref<void(size_t)> task) {
    EXPECT_LE(count, threads);
    std::vector<std::thread> running;
    for (size_t index = count; index-- > 0;)
      running.emplace_back([&, index] {
        task(index);
        ++tasks;
      });
    for (std::thread &thread : running)
      thread.join();
  };
  return executor;
}

/// Writes down all that a search tells.
class Log : public SearchObserver {
public:
  void begin(const SearchStart &start) override { numbers.push_back(start.makespan); }
  void observe(const SearchTrial &trial) override {
    for (int64_t number : {static_cast<int64_t>(llvm::hash_value(trial.phase)), static_cast<int64_t>(trial.verdict),
                           trial.makespan, static_cast<int64_t>(trial.peak), trial.steps, trial.stepsSoFar, trial.best,
                           static_cast<int64_t>(trial.buckets)})
      numbers.push_back(number);
  }
  void end(const SearchEnd &end) override { numbers.push_back(end.steps); }

  std::vector<int64_t> numbers;
};

/// Returns the number of tasks that ran on threads.
int64_t compare(const Problem &problem, ScheduleOptions options) {
  std::atomic<int64_t> tasks = 0;
  Log one;
  options.observers = {&one};
  Schedule expected = schedule(problem, options);
  checkResult(problem, options, expected);
  for (size_t threads : {2, 7}) {
    Log several;
    options.observers = {&several};
    options.executor = onThreads(threads, tasks);
    Schedule result = schedule(problem, options);
    EXPECT_EQ(result.order, expected.order);
    EXPECT_EQ(result.makespan, expected.makespan);
    EXPECT_EQ(result.peak, expected.peak);
    EXPECT_EQ(result.steps, expected.steps);
    EXPECT_EQ(result.incumbents, expected.incumbents);
    EXPECT_EQ(several.numbers, one.numbers);
    EXPECT_EQ(result.buckets.size(), expected.buckets.size());
    for (auto [mine, theirs] : llvm::zip(result.buckets, expected.buckets)) {
      EXPECT_EQ(mine.members, theirs.members);
      EXPECT_EQ(mine.form, theirs.form);
    }
  }
  return tasks;
}

TEST(Executor, AnyNumberOfThreadsGivesTheSameAnswer) {
  int64_t tasks = 0;
  for (uint64_t seed = 0; seed < portion(60u); ++seed) {
    RandomOptions shape;
    shape.nodes = 20 + 5 * static_cast<int32_t>(seed);
    shape.chanceOfStart = 60;
    shape.chanceOfMergeable = seed % 2 ? 95 : 50;
    ScheduleOptions options;
    options.effort = seed % 3 == 0 ? 0 : 200 * shape.nodes;
    options.memory.ppm = seed % 4 == 0 ? 500000 : 0;
    options.bucketing = seed % 5 != 0;
    tasks += compare(randomProblem(seed, shape), options);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  for (uint64_t seed = 0; seed < 4; ++seed) {
    ScheduleOptions options;
    options.effort = seed < 2 ? 0 : 100000;
    tasks += compare(layeredProblem(seed, {30, 4, 3, seed % 2 == 0, 64}), options);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  // Nearly every search decodes ahead.
  EXPECT_GT(tasks, leastOf(1000));
}

TEST(Executor, RunsOneAfterTheOtherByDefault) {
  std::vector<size_t> ran;
  Executor().run(3, [&](size_t index) { ran.push_back(index); });
  EXPECT_EQ(ran, (std::vector<size_t>{0, 1, 2}));
}

} // namespace
