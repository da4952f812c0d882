//===- JitMemory.h - Memory for compiled code, all of it close together -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The small code model wants the sections of a program within 2 GiB of each other. LLVM's own mapper asks the system
// for each one by itself and takes what it gets; where the neighbourhood is taken (as the address sanitizer's is) the
// distance overflows, silently in a build of LLVM without assertions. This one carves them out of one reservation.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_EXECUTION_JITMEMORY_H
#define COMMSCHED_EXECUTION_JITMEMORY_H

#include "llvm/ExecutionEngine/SectionMemoryManager.h"

namespace commsched {

/// The memory of one program. Pages are reserved at the first request, used as they are asked for, and all given back
/// at the end: what is released before stays unused. Not thread-safe; has to outlive the code in it.
class JitMemory : public llvm::SectionMemoryManager::MemoryMapper {
public:
  JitMemory() = default;
  JitMemory(const JitMemory &) = delete;
  ~JitMemory() override;

  /// Fails with not_enough_memory where the reservation is used up or not to be had.
  llvm::sys::MemoryBlock allocateMappedMemory(llvm::SectionMemoryManager::AllocationPurpose purpose, size_t bytes,
                                              const llvm::sys::MemoryBlock *near, unsigned flags,
                                              std::error_code &error) override;
  std::error_code protectMappedMemory(const llvm::sys::MemoryBlock &block, unsigned flags) override;
  std::error_code releaseMappedMemory(llvm::sys::MemoryBlock &block) override;

private:
  char *base = nullptr;
  size_t used = 0;
};

} // namespace commsched

#endif // COMMSCHED_EXECUTION_JITMEMORY_H
