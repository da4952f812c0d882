//===- NcclControl.cpp - The control plane beneath the nccl backend ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Which backend the control plane is, from the variables that launchers set.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclControl.h"
#include "Core/Launcher.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace commsched::runtime;

/// mpirun's own processes can use its library; other launchers give the address at which rank 0 listens.
static std::string chooseControl(const Launch &launch) {
  if (const char *name = std::getenv("COMMRT_NCCL_CONTROL"); name && *name)
    return name;
  if (launch.launcher.empty())
    return "threads";
  return launch.launcher == "Open MPI" || launch.launcher == "PMIx" || launch.launcher == "PMI" ? "mpi" : "tcp";
}

int32_t NcclControl::open(const commrt_backend_config &config, int32_t &ranks, int32_t &localRank, std::string &error) {
  Launch launch;
  if (error = readLaunch(processEnvironment(), launch); !error.empty())
    return COMMRT_ERR_INVALID;
  std::string name = chooseControl(launch);
  if (name == "nccl") {
    error = "COMMRT_NCCL_CONTROL names this backend itself";
    return COMMRT_ERR_INVALID;
  }
  char text[1024] = "";
  if (int32_t status = commrt_backend_find(name.c_str(), &backend, text, sizeof(text))) {
    error = "no control plane: " + std::string(text);
    return status;
  }
  commrt_backend_config own = {};
  std::memcpy(&own, &config, std::min<size_t>(config.struct_size, sizeof(own)));
  own.workers = 1;
  own.virtual_clock = 0;
  if (int32_t status = backend->open(&own, &state, &ranks, &localRank, text, sizeof(text))) {
    error = "control plane '" + name + "': " + text;
    state = nullptr;
    return status;
  }
  this->localRank = launch.localRank >= 0 ? launch.localRank : localRank;
  return COMMRT_OK;
}

void NcclControl::close() {
  if (state)
    backend->close(state);
  state = nullptr;
}
