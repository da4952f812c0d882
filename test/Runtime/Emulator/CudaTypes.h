//===- CudaTypes.h - The CUDA runtime's types and numbers, without its headers ----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The types, enumerations and flags of CUDA 13.0's runtime that the emulator uses, by their own names. When
// EMULATOR_WITH_CUDA_HEADERS is defined, the vendor's header takes the place of these declarations, and each number
// below becomes an assertion: HeadersTest.cpp compiles this file in that way.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_CUDATYPES_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_CUDATYPES_H

#include <cstddef>
#include <cstdint>

// X(name, value): every number of the runtime that the emulator knows.
#define EMULATOR_CUDA_ERRORS(X)                                                                                        \
  X(cudaSuccess, 0)                                                                                                    \
  X(cudaErrorInvalidValue, 1)                                                                                          \
  X(cudaErrorMemoryAllocation, 2)                                                                                      \
  X(cudaErrorInitializationError, 3)                                                                                   \
  X(cudaErrorInvalidConfiguration, 9)                                                                                  \
  X(cudaErrorInsufficientDriver, 35)                                                                                   \
  X(cudaErrorInvalidDeviceFunction, 98)                                                                                \
  X(cudaErrorNoDevice, 100)                                                                                            \
  X(cudaErrorInvalidDevice, 101)                                                                                       \
  X(cudaErrorInvalidResourceHandle, 400)                                                                               \
  X(cudaErrorSymbolNotFound, 500)                                                                                      \
  X(cudaErrorNotReady, 600)                                                                                            \
  X(cudaErrorIllegalAddress, 700)                                                                                      \
  X(cudaErrorPeerAccessAlreadyEnabled, 704)                                                                            \
  X(cudaErrorLaunchFailure, 719)                                                                                       \
  X(cudaErrorNotPermitted, 800)                                                                                        \
  X(cudaErrorNotSupported, 801)                                                                                        \
  X(cudaErrorStreamCaptureUnsupported, 900)                                                                            \
  X(cudaErrorStreamCaptureInvalidated, 901)                                                                            \
  X(cudaErrorStreamCaptureMerge, 902)                                                                                  \
  X(cudaErrorStreamCaptureUnmatched, 903)                                                                              \
  X(cudaErrorStreamCaptureUnjoined, 904)                                                                               \
  X(cudaErrorStreamCaptureIsolation, 905)                                                                              \
  X(cudaErrorStreamCaptureImplicit, 906)                                                                               \
  X(cudaErrorCapturedEvent, 907)                                                                                       \
  X(cudaErrorStreamCaptureWrongThread, 908)                                                                            \
  X(cudaErrorUnknown, 999)
#define EMULATOR_CUDA_COPY_KINDS(X)                                                                                    \
  X(cudaMemcpyHostToHost, 0)                                                                                           \
  X(cudaMemcpyHostToDevice, 1)                                                                                         \
  X(cudaMemcpyDeviceToHost, 2)                                                                                         \
  X(cudaMemcpyDeviceToDevice, 3)                                                                                       \
  X(cudaMemcpyDefault, 4)
#define EMULATOR_CUDA_ATTRIBUTES(X)                                                                                    \
  X(cudaDevAttrMaxThreadsPerBlock, 1)                                                                                  \
  X(cudaDevAttrClockRate, 13)                                                                                          \
  X(cudaDevAttrMultiProcessorCount, 16)                                                                                \
  X(cudaDevAttrPciBusId, 33)                                                                                           \
  X(cudaDevAttrPciDeviceId, 34)                                                                                        \
  X(cudaDevAttrMemoryClockRate, 36)                                                                                    \
  X(cudaDevAttrGlobalMemoryBusWidth, 37)                                                                               \
  X(cudaDevAttrL2CacheSize, 38)                                                                                        \
  X(cudaDevAttrUnifiedAddressing, 41)                                                                                  \
  X(cudaDevAttrPciDomainId, 50)                                                                                        \
  X(cudaDevAttrComputeCapabilityMajor, 75)                                                                             \
  X(cudaDevAttrComputeCapabilityMinor, 76)                                                                             \
  X(cudaDevAttrMemoryPoolsSupported, 115)
#define EMULATOR_CUDA_MEMORY_TYPES(X)                                                                                  \
  X(cudaMemoryTypeUnregistered, 0)                                                                                     \
  X(cudaMemoryTypeHost, 1)                                                                                             \
  X(cudaMemoryTypeDevice, 2)                                                                                           \
  X(cudaMemoryTypeManaged, 3)
#define EMULATOR_CUDA_POOL_ATTRIBUTES(X)                                                                               \
  X(cudaMemPoolReuseFollowEventDependencies, 1)                                                                        \
  X(cudaMemPoolReuseAllowOpportunistic, 2)                                                                             \
  X(cudaMemPoolReuseAllowInternalDependencies, 3)                                                                      \
  X(cudaMemPoolAttrReleaseThreshold, 4)                                                                                \
  X(cudaMemPoolAttrReservedMemCurrent, 5)                                                                              \
  X(cudaMemPoolAttrReservedMemHigh, 6)                                                                                 \
  X(cudaMemPoolAttrUsedMemCurrent, 7)                                                                                  \
  X(cudaMemPoolAttrUsedMemHigh, 8)
#define EMULATOR_CUDA_CAPTURE_MODES(X)                                                                                 \
  X(cudaStreamCaptureModeGlobal, 0)                                                                                    \
  X(cudaStreamCaptureModeThreadLocal, 1)                                                                               \
  X(cudaStreamCaptureModeRelaxed, 2)
#define EMULATOR_CUDA_CAPTURE_STATES(X)                                                                                \
  X(cudaStreamCaptureStatusNone, 0)                                                                                    \
  X(cudaStreamCaptureStatusActive, 1)                                                                                  \
  X(cudaStreamCaptureStatusInvalidated, 2)
#define EMULATOR_CUDA_ENTRY_POINT_RESULTS(X)                                                                           \
  X(cudaDriverEntryPointSuccess, 0)                                                                                    \
  X(cudaDriverEntryPointSymbolNotFound, 1)                                                                             \
  X(cudaDriverEntryPointVersionNotSufficent, 2)
// Numbers that the header defines by the preprocessor.
#define EMULATOR_CUDA_FLAGS(X)                                                                                         \
  X(cudaStreamDefault, 0)                                                                                              \
  X(cudaStreamNonBlocking, 1)                                                                                          \
  X(cudaEventDefault, 0)                                                                                               \
  X(cudaEventBlockingSync, 1)                                                                                          \
  X(cudaEventDisableTiming, 2)                                                                                         \
  X(cudaEventInterprocess, 4)                                                                                          \
  X(cudaEventRecordDefault, 0)                                                                                         \
  X(cudaEventRecordExternal, 1)                                                                                        \
  X(cudaEventWaitDefault, 0)                                                                                           \
  X(cudaEventWaitExternal, 1)

#ifdef EMULATOR_WITH_CUDA_HEADERS
#include <cuda_runtime_api.h>
#define EMULATOR_SAME_NUMBER(name, value) static_assert(int(name) == (value), #name " has another value");
EMULATOR_CUDA_ERRORS(EMULATOR_SAME_NUMBER)
EMULATOR_CUDA_COPY_KINDS(EMULATOR_SAME_NUMBER)
EMULATOR_CUDA_ATTRIBUTES(EMULATOR_SAME_NUMBER)
EMULATOR_CUDA_MEMORY_TYPES(EMULATOR_SAME_NUMBER)
EMULATOR_CUDA_POOL_ATTRIBUTES(EMULATOR_SAME_NUMBER)
EMULATOR_CUDA_CAPTURE_MODES(EMULATOR_SAME_NUMBER)
EMULATOR_CUDA_CAPTURE_STATES(EMULATOR_SAME_NUMBER)
EMULATOR_CUDA_ENTRY_POINT_RESULTS(EMULATOR_SAME_NUMBER)
EMULATOR_CUDA_FLAGS(EMULATOR_SAME_NUMBER)
#else
// NOLINTBEGIN(readability-identifier-naming): the vendor's names.
#define EMULATOR_ENUMERATOR(name, value) name = (value),
enum cudaError { EMULATOR_CUDA_ERRORS(EMULATOR_ENUMERATOR) };
enum cudaMemcpyKind { EMULATOR_CUDA_COPY_KINDS(EMULATOR_ENUMERATOR) };
enum cudaDeviceAttr { EMULATOR_CUDA_ATTRIBUTES(EMULATOR_ENUMERATOR) };
enum cudaMemoryType { EMULATOR_CUDA_MEMORY_TYPES(EMULATOR_ENUMERATOR) };
enum cudaMemPoolAttr { EMULATOR_CUDA_POOL_ATTRIBUTES(EMULATOR_ENUMERATOR) };
enum cudaStreamCaptureMode { EMULATOR_CUDA_CAPTURE_MODES(EMULATOR_ENUMERATOR) };
enum cudaStreamCaptureStatus { EMULATOR_CUDA_CAPTURE_STATES(EMULATOR_ENUMERATOR) };
enum cudaDriverEntryPointQueryResult { EMULATOR_CUDA_ENTRY_POINT_RESULTS(EMULATOR_ENUMERATOR) };
enum : unsigned { EMULATOR_CUDA_FLAGS(EMULATOR_ENUMERATOR) };
enum cudaJitOption : unsigned;
enum cudaLibraryOption : unsigned;
#undef EMULATOR_ENUMERATOR

using cudaError_t = cudaError;
using cudaStream_t = struct CUstream_st *;
using cudaEvent_t = struct CUevent_st *;
using cudaGraph_t = struct CUgraph_st *;
using cudaGraphNode_t = struct CUgraphNode_st *;
using cudaGraphExec_t = struct CUgraphExec_st *;
using cudaKernel_t = struct CUkern_st *;
using cudaLibrary_t = struct CUlib_st *;
using cudaMemPool_t = struct CUmemPoolHandle_st *;
using cudaHostFn_t = void (*)(void *userData);

#define cudaStreamLegacy (reinterpret_cast<cudaStream_t>(1))
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(2))

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer;
  void *hostPointer;
  long reserved[8];
};
// NOLINTEND(readability-identifier-naming)
#endif

// The layouts, of our declarations and of the vendor's alike.
static_assert(sizeof(dim3) == 12 && alignof(dim3) == 4);
static_assert(offsetof(cudaPointerAttributes, type) == 0 && offsetof(cudaPointerAttributes, device) == 4 &&
              offsetof(cudaPointerAttributes, devicePointer) == 8 &&
              offsetof(cudaPointerAttributes, hostPointer) == 16 && sizeof(cudaPointerAttributes) == 88);

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_CUDATYPES_H
