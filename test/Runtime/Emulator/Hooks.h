//===- Hooks.h - What the emulator offers beside the vendor's functions -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The real libraries have none of these. Tests reach them by dlsym or by linking; libnccl_emu uses them for its
// kernels.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_HOOKS_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_HOOKS_H

#include "CudaTypes.h"

#pragma GCC visibility push(default)
extern "C" {
/// The host build of a kernel. It is called once for a launch and does the work of the whole grid. `arguments` point to
/// copies of the values that were given to cudaLaunchKernel; those that pointed into device memory point to where the
/// host can reach that memory.
typedef void (*emulatorKernelFn)(void **arguments, dim3 grid, dim3 block);

/// Registers a kernel, which cudaLibraryGetKernel then finds by its name in every loaded library. `argumentBytes` has
/// the size of each argument. Registering a name again replaces the kernel.
void emulatorRegisterKernel(const char *name, emulatorKernelFn function, int arguments, const size_t *argumentBytes);

/// Only while an operation runs (a kernel or a host function): says that the operation reads (`write == 0`) or writes
/// `bytes` bytes at the device address, which is checked and shown to the thread sanitizer, and returns where the host
/// can reach them. The address may be of any device. Host addresses are returned as they are.
void *emulatorAccess(const void *address, size_t bytes, int write);

/// Only while an operation runs: replaces its duration on the virtual clock.
void emulatorTakes(int64_t nanoseconds);

/// If ranks are processes (CUDA_EMU_SHARED): memory that every process of the job finds by this name, at the same
/// address, zero at first. Null otherwise. The words in it count as pinned memory.
void *emulatorSharedMemory(const char *name, size_t bytes);

/// The batched stream memory operations of the driver, found by cudaGetDriverEntryPointByVersion under the name
/// cuStreamBatchMemOp: waits until `*address == value` (operation 1) or writes (operation 2), in order.
struct EmulatorMemOp {
  unsigned operation;
  unsigned pad;
  uint64_t address;
  uint64_t value;
  unsigned flags;
  unsigned pad2;
  uint64_t alias;
  uint64_t reserved;
};
static_assert(sizeof(EmulatorMemOp) == 48);
typedef int (*emulatorBatchMemOpFn)(cudaStream_t stream, unsigned count, EmulatorMemOp *operations, unsigned flags);
}
#pragma GCC visibility pop

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_HOOKS_H
