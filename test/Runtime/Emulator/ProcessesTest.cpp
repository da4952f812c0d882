//===- ProcessesTest.cpp - Tests of ranks that are processes ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each rank is a process that runs EmulatorRank with the name of a program.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

using namespace emulator::test;

namespace {
constexpr int ranks = 3;

/// Runs a program on all ranks; the exit status of each, or less than 0 for the signal that ended it.
std::vector<int> run(const char *program) {
  char folder[] = "/tmp/emulator-XXXXXX";
  EXPECT_NE(mkdtemp(folder), nullptr);
  std::string shared = folder + std::string("/memory");
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    pid_t child = fork();
    if (child == 0) {
      setenv("EMU_TEST_FOLDER", folder, 1);
      setenv("CUDA_EMU_SHARED", shared.c_str(), 1);
      execl(EMULATOR_RANK, EMULATOR_RANK, program, std::to_string(rank).c_str(), nullptr);
      _exit(1);
    }
    children.push_back(child);
  }
  std::vector<int> results(ranks);
  // Rank 1 first: what it does decides what the others see.
  for (int rank : {1, 0, 2}) {
    int status = 0;
    waitpid(children[size_t(rank)], &status, 0);
    results[size_t(rank)] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    if (rank == 1)
      fclose(fopen((folder + std::string("/killed")).c_str(), "wb"));
  }
  for (const char *name : {"memory", "id", "killed", "looked", "taken"})
    unlink((folder + std::string("/") + name).c_str());
  rmdir(folder);
  return results;
}

#ifdef EMULATOR_HAS_TSAN
#define NEEDS_ADDRESSES                                                                                                \
  GTEST_SKIP() << "ThreadSanitizer keeps the addresses for itself at which processes map the devices' memory"
#else
#define NEEDS_ADDRESSES
#endif

// Tests that processes get what threads get, by collectives and in a split.
TEST(Processes, Collectives) {
  NEEDS_ADDRESSES;
  EXPECT_EQ(run("collectives"), (std::vector<int>{0, 0, 0}));
}

// Tests that a killed process holds the others until they abort.
TEST(Processes, Killed) {
  NEEDS_ADDRESSES;
  EXPECT_EQ(run("killed"), (std::vector<int>{0, -SIGKILL, 0}));
}

// Tests that processes notice that they call different collectives.
TEST(Processes, Different) {
  NEEDS_ADDRESSES;
  EXPECT_EQ(run("different"), (std::vector<int>(ranks, emulator::reportedStatus)));
}

// Tests that a device belongs to one process.
TEST(Processes, SameDevice) {
  NEEDS_ADDRESSES;
  EXPECT_EQ(run("sameDevice"), (std::vector<int>{0, emulator::reportedStatus, 0}));
}
} // namespace
