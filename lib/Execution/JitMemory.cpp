//===- JitMemory.cpp - Adjacent memory for compiled code --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Execution/JitMemory.h"

#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Process.h"
#include <sys/mman.h>

using namespace llvm;
using namespace commsched;

/// Address space of one program. Only pages in use become memory.
static constexpr size_t kReservedBytes = size_t(1) << 30;

JitMemory::~JitMemory() {
  if (base)
    munmap(base, kReservedBytes);
}

sys::MemoryBlock JitMemory::allocateMappedMemory(SectionMemoryManager::AllocationPurpose, size_t bytes,
                                                 const sys::MemoryBlock *, unsigned flags, std::error_code &error) {
  error = std::make_error_code(std::errc::not_enough_memory);
  if (!base) {
    void *reserved = mmap(nullptr, kReservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
      return {};
    base = static_cast<char *>(reserved);
  }
  size_t size = alignTo(bytes, sys::Process::getPageSizeEstimate());
  if (size < bytes || size > kReservedBytes - used)
    return {};
  sys::MemoryBlock block(base + used, size);
  error = protectMappedMemory(block, flags);
  if (error)
    return {};
  used += size;
  return block;
}

std::error_code JitMemory::protectMappedMemory(const sys::MemoryBlock &block, unsigned flags) {
  return sys::Memory::protectMappedMemory(block, flags);
}

std::error_code JitMemory::releaseMappedMemory(sys::MemoryBlock &block) {
  block = sys::MemoryBlock();
  return {};
}
