//===- NcclControl.h - The control plane beneath the nccl backend -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Ranks find each other, compare schedules and tell each other of errors over mpi, over the runtime's own control
// plane (tcp), or over threads where all ranks live in this process. It moves no data.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_NCCL_NCCLCONTROL_H
#define COMMSCHED_LIB_RUNTIME_NCCL_NCCLCONTROL_H

#include "CommSched/Runtime/Backend.h"
#include <string>

namespace commsched::runtime {
struct NcclControl {
  const commrt_backend *backend = nullptr;
  void *state = nullptr;
  int32_t localRank = -1; ///< among the processes of this machine; -1: all ranks are in this process

  /// Opens the backend that COMMRT_NCCL_CONTROL names, or the one that fits the launcher. A status with its text.
  int32_t open(const commrt_backend_config &config, int32_t &ranks, int32_t &localRank, std::string &error);
  void close();
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_NCCL_NCCLCONTROL_H
