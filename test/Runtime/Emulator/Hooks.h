//===- Hooks.h - Functions of the emulator beside the vendor's --------------------------------===//
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

/// Only while an operation runs: says what it competes for in a model that has contention (README.md): 0 nothing, 1 as
/// a collective of so many thread blocks, 2 as a matrix product, 3 as a kernel that is bound by memory.
void emulatorContends(int how, int ctas);

/// Only while an operation runs: when it began on the virtual clock, ns.
int64_t emulatorNow();

/// If ranks are processes (CUDA_EMU_SHARED): memory that every process of the job finds by this name, at the same
/// address, zero at first. Null otherwise. The words in it count as pinned memory.
void *emulatorSharedMemory(const char *name, size_t bytes);

/// Of libnccl_emu: the numbers of CTAs and the policy of the last communicator of that name (`commName`) that was made;
/// INT_MIN: not set. Returns 0 if there was none.
int emulatorCtasOf(const char *name, int *least, int *most, int *policy);
/// Of libnccl_emu: the most identifiers that a communicator was made from.
int emulatorMostIdentifiers();

/// While the stream is captured: calls the function once the graph, what was instantiated from it, and their launches
/// are gone. From any thread, with locks held: it must not call CUDA.
void emulatorKeepWithGraph(cudaStream_t stream, void (*release)(void *), void *argument);

/// A 32-bit word of pinned memory and a value.
struct EmulatorWord {
  uint32_t *word;
  uint32_t value;
};
/// One operation of a stream: waits until all words of `waits` have their values, runs the kernel (null: none) as
/// cudaLaunchKernel does with one thread, and then sets the words of `writes`.
cudaError_t emulatorLaunchBetween(const void *kernel, void **arguments, const EmulatorWord *waits, size_t waitCount,
                                  const EmulatorWord *writes, size_t writeCount, cudaStream_t stream);
}
#pragma GCC visibility pop

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_HOOKS_H
