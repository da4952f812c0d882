//===- NvidiaHeadersTest.cpp - Our declarations against the vendor's headers ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The part of each library is compiled if its headers are found, and skipped with the reason otherwise.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Runtime.h"
#include "Core/Trace/Ranges.h"
#include "Nccl/Libraries/KernelCompiler.h"
#include "Nccl/Libraries/MatrixLibrary.h"
#include "Nccl/Libraries/NcclSymbols.h"
#include "SameCall.h"
#include <gtest/gtest.h>
#ifdef COMMSCHED_HAS_NCCL_HEADERS
#include <nccl.h>
#endif
#ifdef COMMSCHED_HAS_NVTX_HEADERS
#include <nvtx3/nvToolsExt.h>
#endif
#ifdef COMMSCHED_HAS_NVRTC_HEADERS
#include <nvrtc.h>
#endif
#ifdef COMMSCHED_HAS_CUBLASLT_HEADERS
#include <cublasLt.h>
#endif

namespace {
using commsched::runtime::NcclApi;
#ifdef COMMSCHED_HAS_NCCL_HEADERS
SAME(NcclApi, getVersion, ncclGetVersion);
SAME(NcclApi, getErrorString, ncclGetErrorString);
SAME(NcclApi, getLastError, ncclGetLastError);
SAME(NcclApi, getUniqueId, ncclGetUniqueId);
SAME(NcclApi, commInitRankConfig, ncclCommInitRankConfig);
SAME(NcclApi, commSplit, ncclCommSplit);
SAME(NcclApi, commFinalize, ncclCommFinalize);
SAME(NcclApi, commDestroy, ncclCommDestroy);
SAME(NcclApi, commAbort, ncclCommAbort);
SAME(NcclApi, commGetAsyncError, ncclCommGetAsyncError);
SAME(NcclApi, allGather, ncclAllGather);
SAME(NcclApi, reduceScatter, ncclReduceScatter);
SAME(NcclApi, allReduce, ncclAllReduce);
SAME(NcclApi, broadcast, ncclBroadcast);
SAME(NcclApi, reduce, ncclReduce);
SAME(NcclApi, send, ncclSend);
SAME(NcclApi, recv, ncclRecv);
SAME(NcclApi, groupStart, ncclGroupStart);
SAME(NcclApi, groupEnd, ncclGroupEnd);
SAME(NcclApi, redOpCreatePreMulSum, ncclRedOpCreatePreMulSum);
SAME(NcclApi, redOpDestroy, ncclRedOpDestroy);
SAME(NcclApi, memAlloc, ncclMemAlloc);
SAME(NcclApi, memFree, ncclMemFree);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
SAME(NcclApi, commInitRankScalable, ncclCommInitRankScalable);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
SAME(NcclApi, commRevoke, ncclCommRevoke);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
SAME(NcclApi, commWindowRegister, ncclCommWindowRegister);
SAME(NcclApi, commWindowDeregister, ncclCommWindowDeregister);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
SAME(NcclApi, alltoAll, ncclAlltoAll);
SAME(NcclApi, gather, ncclGather);
SAME(NcclApi, scatter, ncclScatter);
#endif
static_assert(!IsSameCall<decltype(NcclApi::send), decltype(&ncclAllGather)>::value);
#endif
#ifdef COMMSCHED_HAS_NVRTC_HEADERS
using commsched::runtime::NvrtcApi;
SAME(NvrtcApi, version, nvrtcVersion);
SAME(NvrtcApi, getErrorString, nvrtcGetErrorString);
SAME(NvrtcApi, getNumSupportedArchs, nvrtcGetNumSupportedArchs);
SAME(NvrtcApi, getSupportedArchs, nvrtcGetSupportedArchs);
SAME(NvrtcApi, createProgram, nvrtcCreateProgram);
SAME(NvrtcApi, destroyProgram, nvrtcDestroyProgram);
SAME(NvrtcApi, compileProgram, nvrtcCompileProgram);
SAME(NvrtcApi, getPtxSize, nvrtcGetPTXSize);
SAME(NvrtcApi, getPtx, nvrtcGetPTX);
SAME(NvrtcApi, getCubinSize, nvrtcGetCUBINSize);
SAME(NvrtcApi, getCubin, nvrtcGetCUBIN);
SAME(NvrtcApi, getProgramLogSize, nvrtcGetProgramLogSize);
SAME(NvrtcApi, getProgramLog, nvrtcGetProgramLog);
#endif
#ifdef COMMSCHED_HAS_CUBLASLT_HEADERS
using commsched::runtime::CublasLtApi;
SAME(CublasLtApi, getStatusString, cublasLtGetStatusString);
SAME(CublasLtApi, create, cublasLtCreate);
SAME(CublasLtApi, destroy, cublasLtDestroy);
SAME(CublasLtApi, matmulDescCreate, cublasLtMatmulDescCreate);
SAME(CublasLtApi, matmulDescDestroy, cublasLtMatmulDescDestroy);
SAME(CublasLtApi, matmulDescSetAttribute, cublasLtMatmulDescSetAttribute);
SAME(CublasLtApi, layoutCreate, cublasLtMatrixLayoutCreate);
SAME(CublasLtApi, layoutDestroy, cublasLtMatrixLayoutDestroy);
SAME(CublasLtApi, layoutSetAttribute, cublasLtMatrixLayoutSetAttribute);
SAME(CublasLtApi, preferenceCreate, cublasLtMatmulPreferenceCreate);
SAME(CublasLtApi, preferenceDestroy, cublasLtMatmulPreferenceDestroy);
SAME(CublasLtApi, preferenceSetAttribute, cublasLtMatmulPreferenceSetAttribute);
SAME(CublasLtApi, algoGetHeuristic, cublasLtMatmulAlgoGetHeuristic);
SAME(CublasLtApi, matmul, cublasLtMatmul);
using commsched::runtime::CublasLtHeuristic;
static_assert(sizeof(CublasLtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(CublasLtHeuristic, workspaceBytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(CublasLtHeuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
#endif
#ifdef COMMSCHED_HAS_NVTX_HEADERS
namespace nvtx = commsched::runtime::nvtx;
static_assert(nvtx::moduleCore2 == NVTX_CB_MODULE_CORE2 && nvtx::core2Size == NVTX_CBID_CORE2_SIZE &&
              nvtx::domainRangePushEx == NVTX_CBID_CORE2_DomainRangePushEx &&
              nvtx::domainRangePop == NVTX_CBID_CORE2_DomainRangePop &&
              nvtx::domainCreateA == NVTX_CBID_CORE2_DomainCreateA && nvtx::callbacksTable == NVTX_ETID_CALLBACKS &&
              nvtx::versionTable == NVTX_ETID_VERSIONINFO && nvtx::version == NVTX_VERSION &&
              nvtx::messageAscii == NVTX_MESSAGE_TYPE_ASCII);
#define SAME_PLACE(Ours, ours, Theirs, theirs)                                                                         \
  static_assert(offsetof(Ours, ours) == offsetof(Theirs, theirs) && sizeof(Ours::ours) == sizeof(Theirs::theirs))
SAME_PLACE(nvtx::EventAttributes, version, nvtxEventAttributes_t, version);
SAME_PLACE(nvtx::EventAttributes, size, nvtxEventAttributes_t, size);
SAME_PLACE(nvtx::EventAttributes, category, nvtxEventAttributes_t, category);
SAME_PLACE(nvtx::EventAttributes, colorType, nvtxEventAttributes_t, colorType);
SAME_PLACE(nvtx::EventAttributes, color, nvtxEventAttributes_t, color);
SAME_PLACE(nvtx::EventAttributes, payloadType, nvtxEventAttributes_t, payloadType);
SAME_PLACE(nvtx::EventAttributes, payload, nvtxEventAttributes_t, payload);
SAME_PLACE(nvtx::EventAttributes, messageType, nvtxEventAttributes_t, messageType);
SAME_PLACE(nvtx::EventAttributes, message, nvtxEventAttributes_t, message);
SAME_PLACE(nvtx::Callbacks, getModuleFunctionTable, NvtxExportTableCallbacks, GetModuleFunctionTable);
SAME_PLACE(nvtx::VersionInfo, version, NvtxExportTableVersionInfo, version);
SAME_PLACE(nvtx::VersionInfo, setInjectionVersion, NvtxExportTableVersionInfo, SetInjectionNvtxVersion);
static_assert(sizeof(nvtx::EventAttributes) == sizeof(nvtxEventAttributes_t) &&
              sizeof(nvtx::Callbacks) == sizeof(NvtxExportTableCallbacks) &&
              sizeof(nvtx::VersionInfo) == sizeof(NvtxExportTableVersionInfo));
static_assert(IsSameCall<nvtx::InitializeInjection, NvtxInitializeInjectionNvtxFunc_t>::value &&
              IsSameCall<nvtx::GetExportTable, NvtxGetExportTableFunc_t>::value &&
              IsSameCall<nvtx::CreateDomain, nvtxDomainCreateA_impl_fntype>::value &&
              IsSameCall<nvtx::PushRange, nvtxDomainRangePushEx_impl_fntype>::value &&
              IsSameCall<nvtx::PopRange, nvtxDomainRangePop_impl_fntype>::value &&
              IsSameCall<decltype(nvtx::Callbacks::getModuleFunctionTable),
                         decltype(NvtxExportTableCallbacks::GetModuleFunctionTable)>::value);
#endif
// The comparison can fail.
static_assert(!IsSameCall<int (*)(int), int (*)(size_t)>::value);

TEST(Nvrtc, DeclarationsAreThoseOfTheHeaders) {
#ifdef COMMSCHED_HAS_NVRTC_HEADERS
  EXPECT_EQ(NVRTC_SUCCESS, 0); // the functions were compared when this was compiled
#else
  GTEST_SKIP() << "nvrtc.h was not found, or does not compile: scripts/setup.sh installs it, or "
                  "COMMSCHED_NVIDIA_INCLUDE_DIRS names its folder";
#endif
}

TEST(CublasLt, DeclarationsAreThoseOfTheHeaders) {
#ifdef COMMSCHED_HAS_CUBLASLT_HEADERS
  // MatrixLibrary.cpp has these numbers.
  EXPECT_EQ(CUDA_R_32F, 0);
  EXPECT_EQ(CUDA_R_64F, 1);
  EXPECT_EQ(CUDA_R_16F, 2);
  EXPECT_EQ(CUDA_R_16BF, 14);
  EXPECT_EQ(CUBLAS_COMPUTE_32F, 68);
  EXPECT_EQ(CUBLAS_COMPUTE_64F, 70);
  EXPECT_EQ(CUBLAS_OP_N, 0);
  EXPECT_EQ(CUBLAS_OP_T, 1);
  EXPECT_EQ(CUBLASLT_MATMUL_DESC_TRANSA, 3);
  EXPECT_EQ(CUBLASLT_MATMUL_DESC_TRANSB, 4);
  EXPECT_EQ(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5);
  EXPECT_EQ(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6);
  EXPECT_EQ(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1);
  EXPECT_EQ(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5);
  EXPECT_EQ(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8);
  EXPECT_EQ(CUBLAS_STATUS_NOT_SUPPORTED, 15);
#else
  GTEST_SKIP() << "cublasLt.h was not found, or does not compile; its package is too large for scripts/setup.sh: "
                  "COMMSCHED_NVIDIA_INCLUDE_DIRS names its folder";
#endif
}

TEST(Nvtx, DeclarationsAreThoseOfTheHeaders) {
#ifdef COMMSCHED_HAS_NVTX_HEADERS
  EXPECT_EQ(NVTX_VERSION, 3); // they were compared when this was compiled
#else
  GTEST_SKIP() << "nvtx3/nvToolsExt.h was not found: scripts/setup.sh installs it, or COMMSCHED_NVIDIA_INCLUDE_DIRS "
                  "names its folder";
#endif
}

TEST(Nccl, DeclarationsAreThoseOfTheHeaders) {
#ifdef COMMSCHED_HAS_NCCL_HEADERS
  using commsched::runtime::ncclReductionOf;
  using commsched::runtime::ncclTypeOf;
  EXPECT_EQ(ncclTypeOf(COMMRT_F16).number, ncclFloat16);
  EXPECT_EQ(ncclTypeOf(COMMRT_BF16).number, ncclBfloat16);
  EXPECT_EQ(ncclTypeOf(COMMRT_F32).number, ncclFloat32);
  EXPECT_EQ(ncclTypeOf(COMMRT_F64).number, ncclFloat64);
  EXPECT_EQ(ncclTypeOf(COMMRT_I8).number, ncclInt8);
  EXPECT_EQ(ncclTypeOf(COMMRT_I32).number, ncclInt32);
  EXPECT_EQ(ncclTypeOf(COMMRT_I64).number, ncclInt64);
  EXPECT_EQ(ncclTypeOf(COMMRT_U8).number, ncclUint8);
  EXPECT_EQ(ncclTypeOf(COMMRT_U32).number, ncclUint32);
  EXPECT_EQ(ncclTypeOf(COMMRT_U64).number, ncclUint64);
  EXPECT_EQ(ncclReductionOf(COMMRT_SUM, COMMRT_F32), ncclSum);
  EXPECT_EQ(ncclReductionOf(COMMRT_PRODUCT, COMMRT_F32), ncclProd);
  EXPECT_EQ(ncclReductionOf(COMMRT_MIN, COMMRT_F32), ncclMin);
  EXPECT_EQ(ncclReductionOf(COMMRT_MAX, COMMRT_F32), ncclMax);
  EXPECT_EQ(ncclReductionOf(COMMRT_AVG, COMMRT_F32), ncclAvg);
#else
  GTEST_SKIP() << "nccl.h was not found, or does not compile: scripts/setup.sh installs it, or "
                  "COMMSCHED_NVIDIA_INCLUDE_DIRS names its folder";
#endif
}
} // namespace
