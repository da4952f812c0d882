//===- BackendLoader.h - Finds a backend by name ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// threads, sim and the control plane are part of the core; every other backend is a shared library of its own, so that
// the core needs neither MPI nor a GPU.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_BACKENDLOADER_H
#define COMMSCHED_LIB_RUNTIME_CORE_BACKENDLOADER_H

#include "CommSched/Runtime/Backend.h"
#include <string>

namespace commsched::runtime {
/// The table of backend `name`, or null with `error` set. *library gets the handle to unload, or null. Searches
/// $COMMRT_BACKEND_PATH, then the folder of libcommrt.so, then the loader's own path.
const commrt_backend *loadBackend(const std::string &name, void **library, std::string &error);
void unloadBackend(void *library);

const commrt_backend *threadsBackend();
const commrt_backend *simBackend();
/// Processes over plain sockets. It moves no data, so loadBackend refuses its name, `tcp`.
const commrt_backend *controlPlane();
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_BACKENDLOADER_H
