//===- RandomOrderTest.cpp - Tests of the random schedule -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each run is a process of its own, with the schedule and the seed in its environment; its exit status tells what it
// saw.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"
#include <set>
#include <sys/wait.h>

using namespace emulator::test;

namespace {
constexpr int streams = 4;

/// Streams append their numbers to a log, in no order that anything ensures; the host waits for the last one alone.
struct Log {
  int entries[streams] = {};
  int count = 0;
};
struct Entry {
  Log *log;
  int number;
};

/// The log right after the wait, as a number below 125: its length and what was first and second.
int runUnordered() {
  Log log;
  Entry entries[streams];
  cudaStream_t all[streams];
  for (int i = 0; i < streams; ++i) {
    entries[i] = {&log, i};
    EXPECT_EQ(cudaStreamCreateWithFlags(&all[i], cudaStreamNonBlocking), cudaSuccess);
    auto append = [](void *data) {
      auto *entry = static_cast<Entry *>(data);
      entry->log->entries[entry->log->count++] = entry->number;
    };
    EXPECT_EQ(cudaLaunchHostFunc(all[i], append, &entries[i]), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamSynchronize(all[streams - 1]), cudaSuccess);
  int seen = log.count * 25 + log.entries[0] * 5 + (log.count > 1 ? log.entries[1] : 0);
  for (cudaStream_t stream : all) {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  return seen;
}

/// The exit status of a process that runs that with the seed.
int statusWith(int seed) {
  int status = -1;
  auto run = [&] {
    setenv("CUDA_EMU_SCHEDULE", "random", 1);
    setenv("CUDA_EMU_SEED", std::to_string(seed).c_str(), 1);
    std::exit(runUnordered());
  };
  auto keep = [&](int how) {
    status = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    return true;
  };
  EXPECT_EXIT(run(), keep, "");
  return status;
}

// Tests that a seed gives the same order each time, that seeds differ, and that the late ones run only what is needed.
TEST(RandomOrder, IsRepeatable) {
#ifdef EMULATOR_HAS_TSAN
  GTEST_SKIP() << "the program has a data race on purpose, which ThreadSanitizer reports";
#endif
  std::set<int> seen;
  constexpr int policies = 3, seeds = 12, onlyTheNeeded = 1 * 25 + (streams - 1) * 5;
  for (int seed = 0; seed < seeds; ++seed) {
    int status = statusWith(seed);
    EXPECT_EQ(status, statusWith(seed)) << "seed " << seed;
    if (seed % policies == 2)
      EXPECT_EQ(status, onlyTheNeeded) << "seed " << seed;
    seen.insert(status);
  }
  EXPECT_GT(seen.size(), 3U);
}
} // namespace
