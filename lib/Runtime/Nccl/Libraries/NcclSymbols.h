//===- NcclSymbols.h - NCCL and the CUDA runtime without their headers ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The functions of NCCL and of the CUDA runtime that a backend over them calls, as pointers that are filled at run
// time. Types and numbers are those of nccl.h 2.28 and cuda_runtime_api.h 13; both promise to keep them within a major
// version.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_NCCLSYMBOLS_H
#define COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_NCCLSYMBOLS_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace commsched::runtime {
struct ncclComm; // opaque
struct cudaStream;
struct cudaEvent;
struct cudaLibrary;
struct cudaKernel;

/// Passed by value, as in nccl.h.
struct NcclUniqueId {
  char internal[128];
};

/// Passed by value: CUDA's dim3.
struct CudaDim3 {
  unsigned x, y, z;
};
/// The host build of a kernel, as the emulated CUDA runtime calls it for a whole grid.
using EmulatedKernelFn = void (*)(void **arguments, CudaDim3 grid, CudaDim3 block);

/// NCCL's functions. The optional ones appeared in later versions and may be null.
struct NcclApi {
  int (*getVersion)(int *version);
  const char *(*getErrorString)(int result);
  const char *(*getLastError)(ncclComm *comm);
  int (*getUniqueId)(NcclUniqueId *id);
  int (*commInitRankConfig)(ncclComm **comm, int ranks, NcclUniqueId id, int rank, void *config);
  int (*commSplit)(ncclComm *comm, int color, int key, ncclComm **result, void *config);
  int (*commFinalize)(ncclComm *comm);
  int (*commDestroy)(ncclComm *comm);
  int (*commAbort)(ncclComm *comm);
  int (*commGetAsyncError)(ncclComm *comm, int *result);
  int (*allGather)(const void *in, void *out, size_t count, int type, ncclComm *comm, cudaStream *stream);
  int (*reduceScatter)(const void *in, void *out, size_t count, int type, int op, ncclComm *comm, cudaStream *stream);
  int (*allReduce)(const void *in, void *out, size_t count, int type, int op, ncclComm *comm, cudaStream *stream);
  int (*broadcast)(const void *in, void *out, size_t count, int type, int root, ncclComm *comm, cudaStream *stream);
  int (*reduce)(const void *in, void *out, size_t count, int type, int op, int root, ncclComm *comm,
                cudaStream *stream);
  int (*send)(const void *in, size_t count, int type, int peer, ncclComm *comm, cudaStream *stream);
  int (*recv)(void *out, size_t count, int type, int peer, ncclComm *comm, cudaStream *stream);
  int (*groupStart)();
  int (*groupEnd)();
  int (*redOpCreatePreMulSum)(int *op, void *scalar, int type, int residence, ncclComm *comm);
  int (*redOpDestroy)(int op, ncclComm *comm);
  // Optional.
  int (*commInitRankScalable)(ncclComm **comm, int ranks, int rank, int ids, NcclUniqueId *id, void *config); ///< 2.23
  int (*commRevoke)(ncclComm *comm, int flags);                                                           ///< 2.28.7
  int (*memAlloc)(void **pointer, size_t bytes);                                                          ///< 2.19
  int (*memFree)(void *pointer);                                                                          ///< 2.19
  int (*commWindowRegister)(ncclComm *comm, void *data, size_t bytes, void **window, int flags);          ///< 2.27
  int (*commWindowDeregister)(ncclComm *comm, void *window);                                              ///< 2.27
  int (*alltoAll)(const void *in, void *out, size_t count, int type, ncclComm *comm, cudaStream *stream); ///< 2.28
  int (*gather)(const void *in, void *out, size_t count, int type, int root, ncclComm *comm,
                cudaStream *stream); ///< 2.28
  int (*scatter)(const void *in, void *out, size_t count, int type, int root, ncclComm *comm,
                 cudaStream *stream); ///< 2.28
};

/// The CUDA runtime's functions.
struct CudaApi {
  int (*runtimeGetVersion)(int *version);
  int (*getDeviceCount)(int *count);
  int (*setDevice)(int device);
  const char *(*getErrorString)(int error);
  int (*getLastError)(); ///< also forgets it
  int (*malloc)(void **pointer, size_t bytes);
  int (*free)(void *pointer);
  int (*mallocAsync)(void **pointer, size_t bytes, cudaStream *stream);
  int (*freeAsync)(void *pointer, cudaStream *stream);
  int (*hostAlloc)(void **pointer, size_t bytes, unsigned flags);
  int (*freeHost)(void *pointer);
  int (*memcpyAsync)(void *to, const void *from, size_t bytes, int kind, cudaStream *stream);
  int (*memcpy2DAsync)(void *to, size_t toPitch, const void *from, size_t fromPitch, size_t width, size_t height,
                       int kind, cudaStream *stream);
  int (*memsetAsync)(void *to, int value, size_t bytes, cudaStream *stream);
  int (*launchHostFunc)(cudaStream *stream, void (*function)(void *), void *argument);
  int (*deviceGetStreamPriorityRange)(int *least, int *greatest);
  int (*streamCreateWithPriority)(cudaStream **stream, unsigned flags, int priority);
  int (*streamDestroy)(cudaStream *stream);
  int (*streamWaitEvent)(cudaStream *stream, cudaEvent *event, unsigned flags);
  int (*eventCreateWithFlags)(cudaEvent **event, unsigned flags);
  int (*eventRecord)(cudaEvent *event, cudaStream *stream);
  int (*eventQuery)(cudaEvent *event);
  int (*eventElapsedTime)(float *milliseconds, cudaEvent *begin, cudaEvent *end);
  int (*eventDestroy)(cudaEvent *event);
  // Optional.
  int (*threadExchangeStreamCaptureMode)(int *mode);
  int (*eventRecordWithFlags)(cudaEvent *event, cudaStream *stream, unsigned flags); ///< 11.1
  int (*streamBeginCapture)(cudaStream *stream, int mode);
  int (*streamEndCapture)(cudaStream *stream, void **graph);
  int (*graphInstantiate)(void **exec, void *graph, unsigned long long flags); ///< 11.4
  int (*graphLaunch)(void *exec, cudaStream *stream);
  int (*graphExecDestroy)(void *exec);
  int (*graphDestroy)(void *graph);
  int (*deviceGetDefaultMemPool)(void **pool, int device);
  int (*memPoolSetAttribute)(void *pool, int attribute, void *value);
  int (*deviceGetAttribute)(int *value, int attribute, int device);
  int (*driverGetVersion)(int *version);
  /// The structure depends on the version; in all of them, it begins with the name of 256 bytes.
  int (*getDeviceProperties)(void *properties, int device);
  int (*libraryLoadData)(cudaLibrary **library, const void *code, void *jitOptions, void **jitValues, unsigned jitCount,
                         void *options, void **values, unsigned count);                 ///< 12.8
  int (*libraryUnload)(cudaLibrary *library);                                           ///< 12.8
  int (*libraryGetKernel)(cudaKernel **kernel, cudaLibrary *library, const char *name); ///< 12.8
  int (*launchKernel)(const void *function, CudaDim3 grid, CudaDim3 block, void **arguments, size_t sharedBytes,
                      cudaStream *stream);
  int (*funcSetAttribute)(const void *function, int attribute, int value);
  /// Of the emulated runtime alone.
  void (*emulatorRegisterKernel)(const char *name, EmulatedKernelFn function, int arguments,
                                 const size_t *argumentBytes);
  int64_t (*emulatorNow)();
  void (*emulatorTakes)(int64_t nanoseconds);
};

/// Both libraries, loaded and checked: a version that has what is needed, and at least one device.
struct NcclLibraries {
  NcclApi nccl = {};
  CudaApi cuda = {};
  int ncclVersion = 0; ///< as ncclGetVersion gives it: 22809 is 2.28.9
  int devices = 0;

  /// An empty text, or one line that says what is missing. The libraries stay loaded until the destructor.
  std::string load();
  NcclLibraries() = default;
  ~NcclLibraries();
  NcclLibraries(const NcclLibraries &) = delete;
  NcclLibraries &operator=(const NcclLibraries &) = delete;

private:
  void *ncclHandle = nullptr, *cudaHandle = nullptr;
};

/// The oldest NCCL that has every required function (ncclCommSplit).
constexpr int leastNcclVersion = 21800;
/// CUDA 12.0, the oldest major version that the declarations were compared with.
constexpr int leastCudaVersion = 12000;

/// "2.28.9".
std::string ncclVersionText(int version);

/// NCCL's number of an element type, and how many of it make one element; number -1 where NCCL has nothing to move it.
/// Types that NCCL cannot reduce are moved as bytes.
struct NcclType {
  int number;
  int perElement;
  bool isReducible;
};
NcclType ncclTypeOf(int32_t dtype);
/// NCCL's number of a reduction on the type; -1 where it has none (the scale of SCALED_SUM needs an operation made at
/// run time; AVG rounds differently on integers and on f16 and bf16).
int ncclReductionOf(int32_t reduction, int32_t dtype);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_NCCLSYMBOLS_H
