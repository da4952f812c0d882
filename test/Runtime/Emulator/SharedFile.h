//===- SharedFile.h - Ranks that are processes ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With CUDA_EMU_SHARED the memory of all devices is a file of this name, which every process of a job maps at the same
// addresses. A process owns the devices that it allocates on. Behind the devices is memory that processes find by name.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_SHAREDFILE_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_SHAREDFILE_H

#include <cstddef>

namespace emulator {

/// True if ranks are processes.
bool isShared();

/// The two mappings of device memory, and the file behind them.
struct Mapping {
  int file = -1;
  char *seen = nullptr;    ///< what the program sees, without rights
  char *reached = nullptr; ///< the same pages for operations
};
/// Maps `span` bytes of devices, and the common memory behind them if ranks are processes.
Mapping mapMemory(size_t span);

/// Maps it now unless it is mapped. With the lock.
void prepareMemory();
/// Makes this process the owner of the device; reports if another living one is.
void claim(int device);
/// True if another process owns the device.
bool isForeign(int device);
/// True for memory that processes have in common.
bool isCommon(const void *pointer);

} // namespace emulator

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_SHAREDFILE_H
