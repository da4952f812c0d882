//===- DeviceLauncher.cpp - Launches of the runtime's own kernels -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Blocks of 256 threads, and not more of them than keep every multiprocessor busy: the kernels loop.
//
//===------------------------------------------------------------------------------------------===//

#include "DeviceLauncher.h"
#include <algorithm>

using namespace commsched::runtime;

static constexpr int64_t blockThreads = 256;
/// Eight blocks on each of the 132 multiprocessors of an H100 are 1056.
static constexpr int64_t mostBlocks = 2048;

bool DeviceLauncher::isPossible(std::string &reason) {
  if (!COMMRT_REACHES(ops, commrt_device_ops, kernels) || !ops->kernels || !ops->launch) {
    reason = "the backend has none";
    return false;
  }
  char text[1024] = "";
  if (ops->kernels(context->peer, &image, text, sizeof(text)) == COMMRT_OK)
    return true;
  reason = text;
  return false;
}

void DeviceLauncher::note(int32_t result, const std::string &what) {
  if (int32_t earlier = latched(context))
    status = earlier;
  else if (result != COMMRT_OK)
    status = fail(context, result, what);
}

void DeviceLauncher::launchKernel(const char *kernel, const void *arguments, int64_t elements) {
  if (status != COMMRT_OK || elements <= 0)
    return;
  void *pointers[] = {const_cast<void *>(arguments)};
  commrt_kernel_call call = {};
  call.struct_size = sizeof(call);
  call.kernel = kernel;
  int64_t blocks = std::min(mostBlocks, (elements + blockThreads - 1) / blockThreads);
  call.grid[0] = static_cast<uint32_t>(blocks);
  call.block[0] = static_cast<uint32_t>(blockThreads);
  call.grid[1] = call.grid[2] = call.block[1] = call.block[2] = 1;
  call.arguments = pointers;
  char text[1024] = "";
  int32_t result = ops->launch(context->peer, image, &call, stream, text, sizeof(text));
  note(result, "kernel '" + std::string(kernel) + "': " + text);
}

void *DeviceLauncher::scratch(int64_t bytes) {
  void *memory = nullptr;
  if (status != COMMRT_OK)
    return nullptr;
  note(ops->alloc(context->peer, bytes, stream, &memory),
       "no memory for " + std::to_string(bytes) + " bytes of a computation's workspace");
  if (!memory)
    return nullptr;
  scratches.push_back(memory);
  note(ops->fill(context->peer, memory, 0, bytes, stream), "cannot clear a computation's workspace");
  return memory;
}

DeviceLauncher::~DeviceLauncher() {
  for (void *memory : scratches)
    ops->free(context->peer, memory, stream);
}
