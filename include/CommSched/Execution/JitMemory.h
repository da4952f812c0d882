//===- JitMemory.h - Adjacent memory for compiled code ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The small code model needs the sections of a program within 2 GiB of each other. LLVM's own mapper requests each
// section from the system separately. If the addresses nearby are taken (as with the address sanitizer), the distance
// overflows, silently in a build of LLVM without assertions. This mapper takes all sections from one reservation.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_EXECUTION_JITMEMORY_H
#define COMMSCHED_EXECUTION_JITMEMORY_H

#include "llvm/ExecutionEngine/SectionMemoryManager.h"

namespace commsched {

/// The memory of one program. It reserves pages at the first request and returns all of them at the end; memory that is
/// released earlier stays unused. Not thread-safe. It must outlive the code in it.
class JitMemory : public llvm::SectionMemoryManager::MemoryMapper {
public:
  JitMemory() = default;
  JitMemory(const JitMemory &) = delete;
  ~JitMemory() override;

  /// Fails with not_enough_memory if the reservation fails or is used up.
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
