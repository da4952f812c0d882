//===- KernelCompilerTest.cpp - The runtime's kernels through NVRTC ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The cache and the errors with a library in NVRTC's place; the kernels themselves with the real one if it is there.
//
//===------------------------------------------------------------------------------------------===//

#include "Nccl/Libraries/KernelCompiler.h"
#include "Kernels/Device/Image.h"
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <unistd.h>

using namespace commsched::runtime;
namespace fs = std::filesystem;

namespace {
/// A cache of its own, and a library in NVRTC's place.
class KernelCompiler : public testing::Test {
protected:
  void SetUp() override {
    const char *nvrtc = std::getenv("COMMRT_NVRTC_LIBRARY");
    given = nvrtc ? nvrtc : "";
    folder = fs::temp_directory_path() / ("commsched-kernels-" + std::to_string(getpid()));
    fs::remove_all(folder);
    setenv("COMMRT_KERNEL_CACHE", (folder / "in" / "here").c_str(), 1);
    useLibrary(COMMSCHED_FAKES "/libFakeNvrtc.so");
  }
  void TearDown() override {
    unsetenv("COMMRT_KERNEL_CACHE");
    unsetenv("COMMRT_NVRTC_LIBRARY");
    if (!given.empty())
      useLibrary(given);
    fs::remove_all(folder);
  }
  static void useLibrary(const std::string &path) { setenv("COMMRT_NVRTC_LIBRARY", path.c_str(), 1); }
  static std::string compile(int capability) {
    std::string code;
    EXPECT_EQ(compileKernelsAnew(capability, code), "");
    return code;
  }
  static std::string contents(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string given;
  fs::path folder;
};

/// Tests that code is kept, that the cache needs no NVRTC, and that a damaged file is compiled again.
TEST_F(KernelCompiler, KeepsTheCode) {
  std::string code = compile(90), path = kernelCacheFile(90);
  EXPECT_NE(code.find("--fmad=false"), std::string::npos);
  EXPECT_NE(code.find("--gpu-architecture=sm_90"), std::string::npos);
  EXPECT_EQ(contents(path).substr(0, code.size()), code);
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}), 1); // nothing temporary
  EXPECT_EQ(fs::status(path).permissions() & fs::perms::all, fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_NE(kernelCacheFile(80), path);
  useLibrary("/nowhere/libnvrtc.so");
  EXPECT_EQ(compile(90), code);
  std::string none;
  EXPECT_NE(compileKernelsAnew(80, none).find("cannot load NVRTC: /nowhere/libnvrtc.so"), std::string::npos);
  useLibrary(COMMSCHED_FAKES "/libFakeNvrtc.so");
  for (const char *damage : {"", "x", "not the code, and no hash behind it"}) {
    std::ofstream(path, std::ios::binary) << damage;
    EXPECT_EQ(compile(90), code);
    EXPECT_EQ(contents(path).substr(0, code.size()), code);
  }
}

/// Tests that a device newer than NVRTC gets PTX, which is not kept, and that one older than all is refused.
TEST_F(KernelCompiler, NewerAndOlderDevices) {
  EXPECT_NE(compile(103).find("--gpu-architecture=compute_90"), std::string::npos);
  EXPECT_FALSE(fs::exists(kernelCacheFile(103)));
  std::string code;
  EXPECT_EQ(compileKernelsAnew(75, code), "NVRTC knows no architecture up to sm_75");
}

/// Tests that a failure says what failed, and leaves nothing.
TEST_F(KernelCompiler, FailuresAreOneLine) {
  setenv("FAKE_NVRTC_FAILS", "1", 1);
  std::string code;
  EXPECT_EQ(compileKernelsAnew(90, code), "NVRTC cannot compile the kernels for sm_90: NVRTC_ERROR_COMPILATION: "
                                          "Kernels.h(1): error: it fails");
  unsetenv("FAKE_NVRTC_FAILS");
  EXPECT_FALSE(fs::exists(kernelCacheFile(90)));
  // A cache that cannot be written is no error.
  setenv("COMMRT_KERNEL_CACHE", "/proc/nowhere", 1);
  EXPECT_NE(compile(90), "");
}

/// Tests that the real NVRTC compiles every kernel to machine code.
TEST_F(KernelCompiler, RealNvrtc) {
  std::string library = given.empty() ? COMMSCHED_NVRTC : given;
  if (library.empty())
    GTEST_SKIP() << "no libnvrtc.so in build/venv or the CUDA toolkit: COMMRT_NVRTC_LIBRARY names the file";
  useLibrary(library);
  std::string code = compile(90);
  ASSERT_GT(code.size(), 4U);
  EXPECT_EQ(code.substr(0, 4), "\x7f"
                               "ELF");
  commrt_image_info image = device::hostImage();
  for (int64_t i = 0; i < image.num_kernels; ++i)
    EXPECT_NE(code.find(std::string(".text.") + image.kernels[i].name), std::string::npos) << image.kernels[i].name;
  EXPECT_EQ(code.find(".text.none"), std::string::npos); // the search can fail
}
} // namespace
