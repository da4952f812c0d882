//===- NcclSymbols.cpp - NCCL and the CUDA runtime without their headers ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Names, versions, and the numbers of types and reductions.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclSymbols.h"
#include "CommSched/Runtime/Runtime.h"
#include "SymbolTable.h"
#include <dlfcn.h>

using namespace commsched::runtime;

static SymbolLibrary describeNccl(NcclApi &api) {
  return {"NCCL",
          "COMMRT_NCCL_LIBRARY",
          {"libnccl.so.2", "libnccl.so"},
          {
              {"ncclGetVersion", slotOf(api.getVersion)},
              {"ncclGetErrorString", slotOf(api.getErrorString)},
              {"ncclGetLastError", slotOf(api.getLastError)},
              {"ncclGetUniqueId", slotOf(api.getUniqueId)},
              {"ncclCommInitRankConfig", slotOf(api.commInitRankConfig)},
              {"ncclCommSplit", slotOf(api.commSplit)},
              {"ncclCommFinalize", slotOf(api.commFinalize)},
              {"ncclCommDestroy", slotOf(api.commDestroy)},
              {"ncclCommAbort", slotOf(api.commAbort)},
              {"ncclCommGetAsyncError", slotOf(api.commGetAsyncError)},
              {"ncclAllGather", slotOf(api.allGather)},
              {"ncclReduceScatter", slotOf(api.reduceScatter)},
              {"ncclAllReduce", slotOf(api.allReduce)},
              {"ncclBroadcast", slotOf(api.broadcast)},
              {"ncclReduce", slotOf(api.reduce)},
              {"ncclSend", slotOf(api.send)},
              {"ncclRecv", slotOf(api.recv)},
              {"ncclGroupStart", slotOf(api.groupStart)},
              {"ncclGroupEnd", slotOf(api.groupEnd)},
              {"ncclRedOpCreatePreMulSum", slotOf(api.redOpCreatePreMulSum)},
              {"ncclRedOpDestroy", slotOf(api.redOpDestroy)},
              {"ncclCommInitRankScalable", slotOf(api.commInitRankScalable), false},
              {"ncclCommRevoke", slotOf(api.commRevoke), false},
              {"ncclMemAlloc", slotOf(api.memAlloc), false},
              {"ncclMemFree", slotOf(api.memFree), false},
              {"ncclCommWindowRegister", slotOf(api.commWindowRegister), false},
              {"ncclCommWindowDeregister", slotOf(api.commWindowDeregister), false},
              {"ncclAlltoAll", slotOf(api.alltoAll), false},
              {"ncclGather", slotOf(api.gather), false},
              {"ncclScatter", slotOf(api.scatter), false},
          }};
}

static SymbolLibrary describeCuda(CudaApi &api) {
  return {"the CUDA runtime",
          "COMMRT_CUDART_LIBRARY",
          {"libcudart.so.13", "libcudart.so.12", "libcudart.so"},
          {
              {"cudaRuntimeGetVersion", slotOf(api.runtimeGetVersion)},
              {"cudaGetDeviceCount", slotOf(api.getDeviceCount)},
              {"cudaSetDevice", slotOf(api.setDevice)},
              {"cudaGetErrorString", slotOf(api.getErrorString)},
              {"cudaGetLastError", slotOf(api.getLastError)},
              {"cudaMalloc", slotOf(api.malloc)},
              {"cudaFree", slotOf(api.free)},
              {"cudaMallocAsync", slotOf(api.mallocAsync)},
              {"cudaFreeAsync", slotOf(api.freeAsync)},
              {"cudaHostAlloc", slotOf(api.hostAlloc)},
              {"cudaFreeHost", slotOf(api.freeHost)},
              {"cudaMemcpyAsync", slotOf(api.memcpyAsync)},
              {"cudaMemcpy2DAsync", slotOf(api.memcpy2DAsync)},
              {"cudaMemsetAsync", slotOf(api.memsetAsync)},
              {"cudaLaunchHostFunc", slotOf(api.launchHostFunc)},
              {"cudaDeviceGetStreamPriorityRange", slotOf(api.deviceGetStreamPriorityRange)},
              {"cudaStreamCreateWithPriority", slotOf(api.streamCreateWithPriority)},
              {"cudaStreamDestroy", slotOf(api.streamDestroy)},
              {"cudaStreamWaitEvent", slotOf(api.streamWaitEvent)},
              {"cudaEventCreateWithFlags", slotOf(api.eventCreateWithFlags)},
              {"cudaEventRecord", slotOf(api.eventRecord)},
              {"cudaEventQuery", slotOf(api.eventQuery)},
              {"cudaEventElapsedTime", slotOf(api.eventElapsedTime)},
              {"cudaEventDestroy", slotOf(api.eventDestroy)},
              {"cudaThreadExchangeStreamCaptureMode", slotOf(api.threadExchangeStreamCaptureMode), false},
              {"cudaEventRecordWithFlags", slotOf(api.eventRecordWithFlags), false},
              {"cudaStreamBeginCapture", slotOf(api.streamBeginCapture), false},
              {"cudaStreamEndCapture", slotOf(api.streamEndCapture), false},
              {"cudaGraphInstantiateWithFlags", slotOf(api.graphInstantiate), false},
              {"cudaGraphLaunch", slotOf(api.graphLaunch), false},
              {"cudaGraphExecDestroy", slotOf(api.graphExecDestroy), false},
              {"cudaGraphDestroy", slotOf(api.graphDestroy), false},
              {"cudaDeviceGetDefaultMemPool", slotOf(api.deviceGetDefaultMemPool), false},
              {"cudaMemPoolSetAttribute", slotOf(api.memPoolSetAttribute), false},
              {"cudaDeviceGetAttribute", slotOf(api.deviceGetAttribute), false},
              {"cudaDriverGetVersion", slotOf(api.driverGetVersion), false},
              {"cudaGetDeviceProperties", slotOf(api.getDeviceProperties), false},
              {"cudaLibraryLoadData", slotOf(api.libraryLoadData), false},
              {"cudaLibraryUnload", slotOf(api.libraryUnload), false},
              {"cudaLibraryGetKernel", slotOf(api.libraryGetKernel), false},
              {"cudaLaunchKernel", slotOf(api.launchKernel), false},
              {"cudaFuncSetAttribute", slotOf(api.funcSetAttribute), false},
              {"emulatorRegisterKernel", slotOf(api.emulatorRegisterKernel), false},
              {"emulatorNow", slotOf(api.emulatorNow), false},
              {"emulatorTakes", slotOf(api.emulatorTakes), false},
          }};
}

std::string commsched::runtime::ncclVersionText(int version) {
  // Since 2.9: major * 10000 + minor * 100 + patch; before: major * 1000 + minor * 100 + patch.
  int major = version >= 10000 ? version / 10000 : version / 1000;
  int rest = version >= 10000 ? version % 10000 : version % 1000;
  return std::to_string(major) + "." + std::to_string(rest / 100) + "." + std::to_string(rest % 100);
}

/// CUDA's number: major * 1000 + minor * 10.
static std::string cudaVersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// A library may export what its version does not have yet.
static void forgetLaterFunctions(NcclApi &api, int version) {
  if (version < 21900) {
    api.memAlloc = nullptr;
    api.memFree = nullptr;
  }
  if (version < 22700) {
    api.commWindowRegister = nullptr;
    api.commWindowDeregister = nullptr;
  }
  if (version < 22300)
    api.commInitRankScalable = nullptr;
  if (version < 22807)
    api.commRevoke = nullptr;
  if (version < 22800) {
    api.alltoAll = nullptr;
    api.gather = nullptr;
    api.scatter = nullptr;
  }
}

std::string NcclLibraries::load() {
  if (std::string error = loadSymbols(describeNccl(nccl), &ncclHandle); !error.empty())
    return error;
  if (int result = nccl.getVersion(&ncclVersion))
    return std::string("ncclGetVersion failed: ") + nccl.getErrorString(result);
  if (ncclVersion < leastNcclVersion)
    return "NCCL is version " + ncclVersionText(ncclVersion) + "; at least " + ncclVersionText(leastNcclVersion) +
           " is needed";
  forgetLaterFunctions(nccl, ncclVersion);
  if (std::string error = loadSymbols(describeCuda(cuda), &cudaHandle); !error.empty())
    return error;
  int runtime = 0;
  if (int result = cuda.runtimeGetVersion(&runtime))
    return std::string("cudaRuntimeGetVersion failed: ") + cuda.getErrorString(result);
  if (runtime < leastCudaVersion)
    return "the CUDA runtime is version " + cudaVersionText(runtime) + "; at least " +
           cudaVersionText(leastCudaVersion) + " is needed";
  if (int result = cuda.getDeviceCount(&devices))
    return std::string("no GPU can be used: ") + cuda.getErrorString(result);
  if (devices == 0)
    return "this machine has no GPU";
  return "";
}

NcclLibraries::~NcclLibraries() {
  if (cudaHandle)
    dlclose(cudaHandle);
  if (ncclHandle)
    dlclose(ncclHandle);
}

namespace {
enum NcclNumber {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
};
enum NcclOperation { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
} // namespace

NcclType commsched::runtime::ncclTypeOf(int32_t dtype) {
  switch (dtype) {
  case COMMRT_F16:
    return {ncclFloat16, 1, true};
  case COMMRT_BF16:
    return {ncclBfloat16, 1, true};
  case COMMRT_F32:
    return {ncclFloat32, 1, true};
  case COMMRT_F64:
    return {ncclFloat64, 1, true};
  case COMMRT_I8:
    return {ncclInt8, 1, true};
  case COMMRT_I16:
  case COMMRT_U16:
    return {ncclUint8, 2, false};
  case COMMRT_I32:
    return {ncclInt32, 1, true};
  case COMMRT_I64:
    return {ncclInt64, 1, true};
  case COMMRT_U8:
    return {ncclUint8, 1, true};
  case COMMRT_U32:
    return {ncclUint32, 1, true};
  case COMMRT_U64:
    return {ncclUint64, 1, true};
  case COMMRT_I1: // bytes of 0 and 1
    return {ncclUint8, 1, true};
  default:
    return {-1, 0, false};
  }
}

int commsched::runtime::ncclReductionOf(int32_t reduction, int32_t dtype) {
  if (!ncclTypeOf(dtype).isReducible)
    return -1;
  bool isBoolean = dtype == COMMRT_I1;
  switch (reduction) {
  case COMMRT_SUM:
    return isBoolean ? ncclMax : ncclSum; // "or"
  case COMMRT_PRODUCT:
    return isBoolean ? ncclMin : ncclProd; // "and"
  case COMMRT_MIN:
    return ncclMin;
  case COMMRT_MAX:
    return ncclMax;
  case COMMRT_AVG:
    // NCCL multiplies by 1/n in the type itself, which is off by up to 0.2 % in bf16 unless n is a power of two.
    return dtype == COMMRT_F32 || dtype == COMMRT_F64 ? ncclAvg : -1;
  default:
    return -1;
  }
}
