//===- NcclTypes.h - NCCL's types and numbers, without its header -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The types, enumerations and flags of nccl.h 2.32 that the emulator uses, by their own names. As in CudaTypes.h the
// vendor's header takes their place when EMULATOR_WITH_NCCL_HEADERS is defined, and each number becomes an assertion.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_NCCLTYPES_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_NCCLTYPES_H

#include "CudaTypes.h"
#include <climits>

#define EMULATOR_NCCL_RESULTS(X)                                                                                       \
  X(ncclSuccess, 0)                                                                                                    \
  X(ncclUnhandledCudaError, 1)                                                                                         \
  X(ncclSystemError, 2)                                                                                                \
  X(ncclInternalError, 3)                                                                                              \
  X(ncclInvalidArgument, 4)                                                                                            \
  X(ncclInvalidUsage, 5)                                                                                               \
  X(ncclRemoteError, 6)                                                                                                \
  X(ncclInProgress, 7)
#define EMULATOR_NCCL_DATA_TYPES(X)                                                                                    \
  X(ncclInt8, 0)                                                                                                       \
  X(ncclUint8, 1)                                                                                                      \
  X(ncclInt32, 2)                                                                                                      \
  X(ncclUint32, 3)                                                                                                     \
  X(ncclInt64, 4)                                                                                                      \
  X(ncclUint64, 5)                                                                                                     \
  X(ncclFloat16, 6)                                                                                                    \
  X(ncclFloat32, 7)                                                                                                    \
  X(ncclFloat64, 8)                                                                                                    \
  X(ncclBfloat16, 9)
// Since 2.24.
#define EMULATOR_NCCL_FLOAT8_TYPES(X)                                                                                  \
  X(ncclFloat8e4m3, 10)                                                                                                \
  X(ncclFloat8e5m2, 11)
#define EMULATOR_NCCL_REDUCTIONS(X)                                                                                    \
  X(ncclSum, 0)                                                                                                        \
  X(ncclProd, 1)                                                                                                       \
  X(ncclMax, 2)                                                                                                        \
  X(ncclMin, 3)                                                                                                        \
  X(ncclAvg, 4)                                                                                                        \
  X(ncclNumOps, 5)                                                                                                     \
  X(ncclMaxRedOp, 0x7fffffff)
#define EMULATOR_NCCL_RESIDENCES(X)                                                                                    \
  X(ncclScalarDevice, 0)                                                                                               \
  X(ncclScalarHostImmediate, 1)

#ifdef EMULATOR_WITH_NCCL_HEADERS
#include <nccl.h>
EMULATOR_NCCL_RESULTS(EMULATOR_SAME_NUMBER)
EMULATOR_NCCL_DATA_TYPES(EMULATOR_SAME_NUMBER)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
EMULATOR_NCCL_FLOAT8_TYPES(EMULATOR_SAME_NUMBER)
#endif
EMULATOR_NCCL_REDUCTIONS(EMULATOR_SAME_NUMBER)
EMULATOR_NCCL_RESIDENCES(EMULATOR_SAME_NUMBER)
static_assert(NCCL_CONFIG_UNDEF_INT == INT_MIN && NCCL_SPLIT_NOCOLOR == -1 && NCCL_API_MAGIC == 0xcafebeef);
#else
// NOLINTBEGIN(readability-identifier-naming): the vendor's names.
#define EMULATOR_ENUMERATOR(name, value) name = (value),
enum ncclResult_t { EMULATOR_NCCL_RESULTS(EMULATOR_ENUMERATOR) };
enum ncclDataType_t { EMULATOR_NCCL_DATA_TYPES(EMULATOR_ENUMERATOR) EMULATOR_NCCL_FLOAT8_TYPES(EMULATOR_ENUMERATOR) };
enum ncclRedOp_t { EMULATOR_NCCL_REDUCTIONS(EMULATOR_ENUMERATOR) };
enum ncclScalarResidence_t { EMULATOR_NCCL_RESIDENCES(EMULATOR_ENUMERATOR) };
#undef EMULATOR_ENUMERATOR
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_API_MAGIC 0xcafebeef
#define NCCL_WIN_COLL_SYMMETRIC 1

using ncclComm_t = struct ncclComm *;
using ncclWindow_t = struct ncclWindow_vidmem *;
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare, trafficClass;
  const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
  int nChannelsPerNetPeer, nvlinkCentricSched, graphUsageMode, numRmaCtx;
  int maxP2pPeers, graphStreamOrdering, launchOrderImplicit, numRmaSig;
  int rmaEagerInit, hostCftMode, nvlsHostMode;
};
// NOLINTEND(readability-identifier-naming)
#endif

// The layouts, of our declarations and of the vendor's alike. Members that a header lacks are at the end.
static_assert(sizeof(ncclUniqueId) == 128 && alignof(ncclUniqueId) == 1);
static_assert(offsetof(ncclConfig_t, magic) == 8 && offsetof(ncclConfig_t, version) == 12 &&
              offsetof(ncclConfig_t, blocking) == 16 && offsetof(ncclConfig_t, maxCTAs) == 28 &&
              offsetof(ncclConfig_t, netName) == 32 && offsetof(ncclConfig_t, splitShare) == 40 &&
              offsetof(ncclConfig_t, trafficClass) == 44 && offsetof(ncclConfig_t, commName) == 48 &&
              offsetof(ncclConfig_t, collnetEnable) == 56 && offsetof(ncclConfig_t, CTAPolicy) == 60);

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_NCCLTYPES_H
