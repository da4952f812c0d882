//===- CudaHeadersTest.cpp - Our declarations against CUDA's -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// CMake compiles this file once for each release of CUDA whose headers it finds, and defines COMMSCHED_CUDA_RELEASE.
// Only cuda_runtime_api.h is included: cuda_runtime.h, which nccl.h includes, adds overloads in C++, and others in each
// release.
//
//===------------------------------------------------------------------------------------------===//

#include "Nccl/Libraries/NcclSymbols.h"
#include "SameCall.h"
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace {
using commsched::runtime::CudaApi;
SAME(CudaApi, runtimeGetVersion, cudaRuntimeGetVersion);
SAME(CudaApi, getDeviceCount, cudaGetDeviceCount);
SAME(CudaApi, setDevice, cudaSetDevice);
SAME(CudaApi, getErrorString, cudaGetErrorString);
SAME(CudaApi, free, cudaFree);
SAME(CudaApi, getLastError, cudaGetLastError);
SAME(CudaApi, freeAsync, cudaFreeAsync);
SAME(CudaApi, freeHost, cudaFreeHost);
SAME(CudaApi, memcpyAsync, cudaMemcpyAsync);
SAME(CudaApi, memcpy2DAsync, cudaMemcpy2DAsync);
SAME(CudaApi, memsetAsync, cudaMemsetAsync);
SAME(CudaApi, launchHostFunc, cudaLaunchHostFunc);
SAME(CudaApi, deviceGetStreamPriorityRange, cudaDeviceGetStreamPriorityRange);
SAME(CudaApi, threadExchangeStreamCaptureMode, cudaThreadExchangeStreamCaptureMode);
SAME(CudaApi, eventRecordWithFlags, cudaEventRecordWithFlags);
SAME(CudaApi, streamBeginCapture, cudaStreamBeginCapture);
SAME(CudaApi, streamEndCapture, cudaStreamEndCapture);
SAME(CudaApi, graphInstantiate, cudaGraphInstantiateWithFlags);
SAME(CudaApi, graphLaunch, cudaGraphLaunch);
SAME(CudaApi, graphExecDestroy, cudaGraphExecDestroy);
SAME(CudaApi, graphDestroy, cudaGraphDestroy);
SAME(CudaApi, memPoolSetAttribute, cudaMemPoolSetAttribute);
SAME(CudaApi, deviceGetAttribute, cudaDeviceGetAttribute);
SAME(CudaApi, driverGetVersion, cudaDriverGetVersion);
SAME(CudaApi, deviceGetDefaultMemPool, cudaDeviceGetDefaultMemPool);
SAME(CudaApi, streamCreateWithPriority, cudaStreamCreateWithPriority);
SAME(CudaApi, streamDestroy, cudaStreamDestroy);
SAME(CudaApi, streamWaitEvent, cudaStreamWaitEvent);
SAME(CudaApi, eventCreateWithFlags, cudaEventCreateWithFlags);
SAME(CudaApi, eventQuery, cudaEventQuery);
SAME(CudaApi, eventElapsedTime, cudaEventElapsedTime);
#if CUDART_VERSION >= 12080
SAME(CudaApi, libraryLoadData, cudaLibraryLoadData);
SAME(CudaApi, libraryUnload, cudaLibraryUnload);
SAME(CudaApi, libraryGetKernel, cudaLibraryGetKernel);
#endif
SAME(CudaApi, eventDestroy, cudaEventDestroy);
SAME(CudaApi, malloc, cudaMalloc);
SAME(CudaApi, mallocAsync, cudaMallocAsync);
SAME(CudaApi, hostAlloc, cudaHostAlloc);
SAME(CudaApi, launchKernel, cudaLaunchKernel);
SAME(CudaApi, funcSetAttribute, cudaFuncSetAttribute);
SAME(CudaApi, eventRecord, cudaEventRecord);
static_assert(!IsSameCall<decltype(CudaApi::setDevice), decltype(&cudaGetDeviceCount)>::value);

#define NAME_OF(release) NAME_OF_2(release)
#define NAME_OF_2(release) CudaHeaders_##release
TEST(NAME_OF(COMMSCHED_CUDA_RELEASE), DeclarationsAreThoseOfTheHeaders) {
  EXPECT_GT(CUDART_VERSION, 0); // The functions were compared when this was compiled.
}
} // namespace
