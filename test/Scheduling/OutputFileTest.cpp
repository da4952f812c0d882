//===- OutputFileTest.cpp - Files are written whole or not at all -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// writeWhole() with processes that die in the middle of it.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/OutputFile.h"

#include "gtest/gtest.h"
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

using namespace commsched;

namespace {

class OutputFileDeathTest : public testing::Test {
protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "commsched-output-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string path() const { return folder / "out"; }
  std::string content() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int64_t numFiles() const {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  }
  llvm::Error write(llvm::StringRef text, int signal = 0) const {
    return writeWhole(path(), [&](llvm::raw_ostream &os) {
      os << text;
      os.flush();
      if (signal)
        ::raise(signal);
      return llvm::Error::success();
    });
  }

  std::filesystem::path folder;
};

// Tests that each way to write a file leaves that file alone: a new one, one that is replaced, one that fails.
TEST_F(OutputFileDeathTest, ReplacesOrKeeps) {
  for (const char *text : {"first", "second"}) {
    EXPECT_FALSE(write(text));
    EXPECT_EQ(content(), text);
    EXPECT_EQ(numFiles(), 1);
  }
  llvm::Error failed = writeWhole(path(), [](llvm::raw_ostream &os) {
    os << "third";
    return llvm::createStringError("no");
  });
  EXPECT_EQ(llvm::toString(std::move(failed)), "no");
  EXPECT_EQ(content(), "second");
  EXPECT_EQ(numFiles(), 1);
}

// Tests that a new file has the rights that the user's mask leaves.
TEST_F(OutputFileDeathTest, ObeysTheMask) {
  mode_t before = ::umask(027);
  EXPECT_FALSE(write("text"));
  ::umask(before);
  EXPECT_EQ(int(std::filesystem::status(path()).permissions()), 0640);
}

// Tests that a process that dies while it writes leaves what was there, and nothing else.
TEST_F(OutputFileDeathTest, LeavesNothingBehind) {
#ifdef O_TMPFILE
  int probe = ::open(folder.c_str(), O_TMPFILE | O_WRONLY, 0600);
#else
  int probe = -1;
#endif
  if (probe < 0)
    GTEST_SKIP() << folder << " is on a file system without files that have no name";
  ::close(probe);
  for (int signal : {SIGKILL, SIGTERM, SIGPIPE}) {
    EXPECT_EXIT(llvm::consumeError(write("half", signal)), testing::KilledBySignal(signal), "");
    EXPECT_EQ(numFiles(), 0);
  }
  EXPECT_FALSE(write("whole"));
  EXPECT_EXIT(llvm::consumeError(write("half", SIGKILL)), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EQ(content(), "whole");
  EXPECT_EQ(numFiles(), 1);
}

} // namespace
