//===- CompileKernels.cpp - Compiles the kernels for machines without NVRTC -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// RuntimeKernels CAPABILITY...: puts the kernels for each compute capability (90 is 9.0) into COMMRT_KERNEL_CACHE.
// scripts/test-gpu.sh --pack takes that folder along.
//
//===------------------------------------------------------------------------------------------===//

#include "Nccl/Libraries/KernelCompiler.h"
#include <cstdio>
#include <cstdlib>

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    int capability = static_cast<int>(std::strtol(argv[i], nullptr, 10));
    std::string code, error = commsched::runtime::compileKernelsAnew(capability, code);
    if (!error.empty()) {
      std::fprintf(stderr, "RuntimeKernels: %s\n", error.c_str());
      return 1;
    }
    std::printf("%s: %zu bytes\n", commsched::runtime::kernelCacheFile(capability).c_str(), code.size());
  }
  return 0;
}
