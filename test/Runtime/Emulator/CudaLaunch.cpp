//===- CudaLaunch.cpp - Kernels of the emulated runtime ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel is a function of the host that was registered under its name. Libraries carry no code of their own: every
// loaded library has every registered kernel.
//
//===------------------------------------------------------------------------------------------===//

#include "CudaApi.h"
#include "Hooks.h"
#include "Memory.h"
#include <cstring>

namespace emulator {
namespace {
struct Kernel {
  std::string name;
  emulatorKernelFn function;
  std::vector<size_t> argumentBytes;
};
} // namespace

static std::map<std::string, std::unique_ptr<Kernel>> &kernels() {
  static auto *map = new std::map<std::string, std::unique_ptr<Kernel>>;
  return *map;
}
static std::set<const void *> &kernelHandles() {
  static auto *set = new std::set<const void *>;
  return *set;
}
static std::set<const void *> &libraries() {
  static auto *set = new std::set<const void *>;
  return *set;
}

/// Every 8 aligned bytes of an argument that are a device address; `each` may change them.
template <typename F> static void eachAddress(char *argument, size_t bytes, F each) {
  for (size_t at = 0; at + sizeof(void *) <= bytes; at += sizeof(void *)) {
    void *pointer;
    memcpy(static_cast<void *>(&pointer), argument + at, sizeof(pointer));
    if (!isDeviceAddress(pointer))
      continue;
    each(pointer);
    memcpy(argument + at, static_cast<const void *>(&pointer), sizeof(pointer));
  }
}

/// The values of a launch one after the other, each aligned for any type.
using Arguments = std::vector<max_align_t>;
static size_t unitsOf(size_t bytes) { return (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t); }

static void runKernel(const Kernel *kernel, const Arguments &values, dim3 grid, dim3 block) {
  Arguments copies = values;
  std::vector<void *> pointers;
  max_align_t *next = copies.data();
  for (size_t bytes : kernel->argumentBytes) {
    eachAddress(reinterpret_cast<char *>(next), bytes, [](void *&pointer) { pointer = reach(pointer); });
    pointers.push_back(next);
    next += unitsOf(bytes);
  }
  kernel->function(pointers.data(), grid, block);
}

/// What a kernel competes for, unless it says so itself as NCCL's do: products by cuBLASLt's and the runtime's names.
static Contends contentionOf(const std::string &name) {
  if (name.rfind("nccl_emu", 0) == 0)
    return Contends::Nothing;
  for (const char *product : {"cublaslt_emu_product", "multiplyMatrices"})
    if (name.find(product) != std::string::npos)
      return Contends::Matrix;
  return Contends::Memory;
}

static void checkAccess(const Stream *stream, const Allocation &allocation) {
  if (allocation.kind == Allocation::Kind::Device && allocation.device != stream->device &&
      !machine().devices[size_t(stream->device)].peers.count(allocation.device))
    report("wrong device: a kernel on device " + std::to_string(stream->device) + " is given " + describe(allocation));
}
} // namespace emulator

using namespace emulator;

extern "C" {
void emulatorRegisterKernel(const char *name, emulatorKernelFn function, int arguments, const size_t *argumentBytes) {
  Held held;
  auto kernel = std::make_unique<Kernel>();
  kernel->name = name;
  kernel->function = function;
  kernel->argumentBytes.assign(argumentBytes, argumentBytes + arguments);
  std::unique_ptr<Kernel> &slot = kernels()[name];
  if (slot)
    *slot = std::move(*kernel); // handles stay good
  else
    slot = std::move(kernel);
  kernelHandles().insert(slot.get());
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, cudaJitOption *jitOptions, void **jitValues,
                                unsigned jitCount, cudaLibraryOption *options, void **values, unsigned count) {
  Entry entry("cudaLibraryLoadData");
  if (!code)
    return finish(cudaErrorInvalidValue);
  auto *made = new char;
  libraries().insert(made);
  *library = reinterpret_cast<cudaLibrary_t>(made);
  return cudaSuccess;
}

static void checkLibrary(cudaLibrary_t library) {
  if (!libraries().count(library))
    report("the library is unloaded, or was never loaded");
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  Entry entry("cudaLibraryUnload");
  checkLibrary(library);
  libraries().erase(library);
  delete reinterpret_cast<char *>(library);
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
  Entry entry("cudaLibraryGetKernel");
  checkLibrary(library);
  auto found = kernels().find(name);
  if (found == kernels().end())
    return finish(cudaErrorSymbolNotFound);
  *kernel = reinterpret_cast<cudaKernel_t>(found->second.get());
  return cudaSuccess;
}

/// The kernel with a copy of its arguments. Reports a handle that is no kernel.
static Work workOf(const void *function, dim3 grid, dim3 block, void **arguments, const Stream *stream) {
  const auto *kernel = static_cast<const Kernel *>(function);
  Work work;
  work.name = kernel->name.c_str();
  work.durationNs = kernelNs();
  work.contends = contentionOf(kernel->name);
  size_t units = 0;
  for (size_t bytes : kernel->argumentBytes)
    units += unitsOf(bytes);
  Arguments values(units);
  max_align_t *next = values.data();
  for (size_t i = 0; i < kernel->argumentBytes.size(); ++i) {
    size_t bytes = kernel->argumentBytes[i];
    char *value = reinterpret_cast<char *>(next);
    next += unitsOf(bytes);
    memcpy(value, arguments[i], bytes);
    eachAddress(value, bytes, [&](void *&pointer) {
      AllocationRef used = find(pointer, 1);
      checkAccess(stream, *used);
      work.uses.push_back({std::move(used), true});
    });
  }
  work.body = [kernel, values = std::move(values), grid, block] { runKernel(kernel, values, grid, block); };
  return work;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t sharedBytes,
                             cudaStream_t on) {
  Entry entry("cudaLaunchKernel");
  Stream *stream = streamOf(on);
  checkDevice(stream);
  if (!kernelHandles().count(function))
    return finish(cudaErrorInvalidDeviceFunction);
  uint64_t threads = uint64_t(block.x) * block.y * block.z;
  if (!grid.x || !grid.y || !grid.z || threads == 0 || threads > 1024)
    return finish(cudaErrorInvalidConfiguration);
  submit(stream, workOf(function, grid, block, arguments, stream));
  return cudaSuccess;
}

cudaError_t emulatorLaunchBetween(const void *function, void **arguments, const EmulatorWord *waits, size_t waitCount,
                                  const EmulatorWord *writes, size_t writeCount, cudaStream_t on) {
  Entry entry("emulatorLaunchBetween");
  Stream *stream = streamOf(on);
  checkDevice(stream);
  if (function && !kernelHandles().count(function))
    return finish(cudaErrorInvalidDeviceFunction);
  Work work;
  work.name = "emulatorLaunchBetween";
  if (function)
    work = workOf(function, {1, 1, 1}, {1, 1, 1}, arguments, stream);
  auto add = [](std::vector<Word> &words, const EmulatorWord *given, size_t count) {
    words.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      if (isPageable(given[i].word) || isDeviceAddress(given[i].word))
        report("the word is not in pinned memory");
      words.push_back({given[i].word, given[i].value});
    }
  };
  add(work.waits, waits, waitCount);
  add(work.writes, writes, writeCount);
  submit(stream, std::move(work));
  return cudaSuccess;
}
}
