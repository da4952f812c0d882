//===- NcclVersion.cpp - Version of the emulated NCCL -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL_EMU_VERSION says which version to be. A function that this version lacks is reported when it is called; the
// library nccl_emu_2_18 also lacks its symbol, as the real one does.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclComm.h"

#ifndef NCCL_EMU_DEFAULT_VERSION
#define NCCL_EMU_DEFAULT_VERSION 22907
#endif

namespace emulator {
/// "2.28.9"
static std::string textOf(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

static int theVersion() {
  static const int version = int(option("NCCL_EMU_VERSION", NCCL_EMU_DEFAULT_VERSION));
  return version;
}

void needsVersion(int version, const char *function) {
  if (theVersion() < version)
    report(std::string(function) + " appeared in NCCL " + textOf(version) + ", and this is " + textOf(theVersion()));
}
} // namespace emulator

extern "C" ncclResult_t ncclGetVersion(int *version) {
  *version = emulator::theVersion();
  return ncclSuccess;
}
