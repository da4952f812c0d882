//===- KernelCompiler.h - The runtime's kernels as machine code -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// NVRTC compiles the kernels on the machine of the device, once: the code is kept in a folder of the user.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_KERNELCOMPILER_H
#define COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_KERNELCOMPILER_H

#include <cstddef>
#include <string>

namespace commsched::runtime {
struct nvrtcProgram; // opaque

/// NVRTC's functions. Types and numbers are those of nvrtc.h 13.
struct NvrtcApi {
  int (*version)(int *major, int *minor);
  const char *(*getErrorString)(int result);
  int (*getNumSupportedArchs)(int *count);
  int (*getSupportedArchs)(int *archs);
  int (*createProgram)(nvrtcProgram **program, const char *source, const char *name, int numHeaders,
                       const char *const *headers, const char *const *includeNames);
  int (*destroyProgram)(nvrtcProgram **program);
  int (*compileProgram)(nvrtcProgram *program, int numOptions, const char *const *options);
  int (*getPtxSize)(nvrtcProgram *program, size_t *size);
  int (*getPtx)(nvrtcProgram *program, char *text);
  int (*getCubinSize)(nvrtcProgram *program, size_t *size);
  int (*getCubin)(nvrtcProgram *program, char *code);
  int (*getProgramLogSize)(nvrtcProgram *program, size_t *size);
  int (*getProgramLog)(nvrtcProgram *program, char *log);
};

/// Gives the kernels of Kernels/Device for a compute capability (90 is 9.0): machine code, or PTX if NVRTC is older
/// than the device. An empty text, or one line that says why there are none. Any thread; compiles at most once per
/// process and capability.
std::string compileKernels(int capability, std::string &code);

/// The same without the process's memory of earlier calls: from the file of the cache, or by NVRTC.
std::string compileKernelsAnew(int capability, std::string &code);

/// The file in which the code for a capability is kept: in COMMRT_KERNEL_CACHE, or in commsched/kernels of
/// XDG_CACHE_HOME or ~/.cache; empty if there is no such folder. The name is a hash of the kernels' text and the
/// options.
std::string kernelCacheFile(int capability);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_KERNELCOMPILER_H
