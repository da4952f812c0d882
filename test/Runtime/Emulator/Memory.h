//===- Memory.h - Device memory, pinned memory, and who uses it -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Device memory has two addresses. The one that the program gets is mapped without any rights, so that a host thread
// which touches it traps; the operations reach the same pages by a second mapping. Addresses are not used twice.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_MEMORY_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_MEMORY_H

#include "Machine.h"

namespace emulator {

struct Allocation {
  enum class Kind { Device, Pinned, Registered };
  Kind kind = Kind::Device;
  uintptr_t base = 0;
  size_t bytes = 0;
  int device = 0;
  bool isAsync = false;                          ///< by cudaMallocAsync
  bool isFreed = false;                          ///< cudaFree was called, or an ordered free was issued
  uint32_t allocatedStream = 0, freedStream = 0; ///< of the ordered allocation and free; 0: none
  uint64_t allocatedNumber = 0, freedNumber = 0;
  bool isReleased = false;              ///< its storage is gone
  std::map<uint32_t, uint64_t> lastUse; ///< by stream: the last operation that uses it
};
using AllocationRef = std::shared_ptr<Allocation>;

/// Device or pinned memory; null if the device has less than that left.
AllocationRef allocate(Allocation::Kind kind, size_t bytes, int device);
/// Host memory of the program, by cudaHostRegister.
AllocationRef registerHost(void *pointer, size_t bytes, int device);
/// Gives the pages back and keeps a tombstone, for messages.
void releaseStorage(Allocation &allocation);
/// True for addresses that belong to some device, allocated or not.
bool isDeviceAddress(const void *pointer);
/// Where operations reach a device address; other addresses as they are.
void *reach(const void *pointer);
/// The live allocation that has the bytes, or null for memory that the emulator does not know. Reports device
/// addresses that are in no allocation, in a freed one, or that leave theirs.
AllocationRef find(const void *pointer, size_t bytes);
/// The allocation that begins at the address; null if none does.
AllocationRef findBase(const void *pointer);
/// "0x... (cudaMalloc of 64 bytes on device 0)".
std::string describe(const Allocation &allocation);
/// Host memory that the program may free at any time, so that copies from it are staged.
bool isPageable(const void *pointer);

/// Called when an operation is issued, and when it begins.
void noteUses(const Op &op);
void checkUses(const Op &op);
/// Reports unless the host knows that every operation that uses the allocation is done.
void checkUnused(const Allocation &allocation);

/// Says on standard error what was not freed; the number of things.
int reportLeaks();

} // namespace emulator

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_MEMORY_H
