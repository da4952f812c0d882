//===- NcclBackend.cpp - Where a backend over NCCL plugs in -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The table that libcommrt_nccl.so gives to the core. It finds NCCL and the CUDA runtime, checks their versions and the
// devices, and says in one line what is missing. It carries no collectives: `open` refuses also where everything is
// there, so no other function of the table is ever called; they refuse, too.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Backend.h"
#include "Core/Text.h"
#include "NcclSymbols.h"

using namespace commsched::runtime;

static int32_t openNccl(const commrt_backend_config *config, void **job, int32_t *ranks, int32_t *localRank,
                        char *message, size_t size) {
  *job = nullptr;
  NcclLibraries libraries;
  std::string text = libraries.load();
  int32_t status = COMMRT_ERR_BACKEND;
  if (text.empty()) {
    status = COMMRT_ERR_UNSUPPORTED;
    text = "NCCL " + ncclVersionText(libraries.ncclVersion) + " and " + std::to_string(libraries.devices) +
           " GPUs are there, but this backend carries no collectives yet; use threads or mpi";
  }
  copyText(text, message, size);
  return status;
}

static void doNothing(void *) {}

template <typename... Arguments> static int32_t refuse(Arguments...) { return COMMRT_ERR_UNSUPPORTED; }

extern "C" COMMRT_API const commrt_backend *commrt_backend_entry(uint32_t version) {
  static const commrt_backend table = [] {
    commrt_backend result = {};
    result.abi_version = COMMRT_BACKEND_ABI_VERSION;
    result.struct_size = sizeof(commrt_backend);
    result.name = "nccl";
    result.flags = COMMRT_BACKEND_PER_PROCESS;
    result.open = openNccl;
    result.close = doNothing;
    result.attach = refuse;
    result.detach = doNothing;
    result.group_create = refuse;
    result.group_destroy = doNothing;
    result.submit = refuse;
    result.progress = refuse;
    result.combine = refuse;
    result.abort = [](void *, int32_t, const char *) {};
    result.describe = refuse;
    return result;
  }();
  return version == COMMRT_BACKEND_ABI_VERSION ? &table : nullptr;
}
