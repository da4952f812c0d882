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
#include <cstdlib>

using namespace commsched::runtime;

static constexpr int64_t blockThreads = 256;
/// Eight blocks on each of the 132 multiprocessors of an H100 are 1056.
static constexpr int64_t mostBlocks = 2048;
/// About one on each multiprocessor of a large GPU.
static constexpr int64_t defaultPacedBlocks = 128;

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
  launchBlocks(kernel, arguments, std::min(mostBlocks, (elements + blockThreads - 1) / blockThreads));
}

void DeviceLauncher::launchBlocks(const char *kernel, const void *arguments, int64_t blocks) {
  if (status != COMMRT_OK || blocks <= 0)
    return;
  void *pointers[] = {const_cast<void *>(arguments)};
  commrt_kernel_call call = {};
  call.struct_size = sizeof(call);
  call.kernel = kernel;
  call.grid[0] = static_cast<uint32_t>(blocks);
  call.block[0] = static_cast<uint32_t>(blockThreads);
  call.grid[1] = call.grid[2] = call.block[1] = call.block[2] = 1;
  call.arguments = pointers;
  char text[1024] = "";
  int32_t result = ops->launch(context->peer, image, &call, stream, text, sizeof(text));
  note(result, "kernel '" + std::string(kernel) + "': " + text);
}

/// The same in the terms of the backend.
static commrt_product describe(const device::Product &a) {
  commrt_product result = {};
  result.struct_size = sizeof(result);
  result.left_type = a.leftType;
  result.right_type = a.rightType;
  result.result_type = a.resultType;
  result.left = a.left;
  result.right = a.right;
  result.result = a.result;
  result.m = a.m;
  result.n = a.n;
  result.k = a.k;
  for (int i = 0; i < 2; ++i) {
    result.left_strides[i] = a.leftStrides[i];
    result.right_strides[i] = a.rightStrides[i];
    result.result_strides[i] = a.resultStrides[i];
  }
  result.batch_rank = a.batchRank;
  result.accumulates = a.accumulates;
  static_assert(sizeof(a.batchSizes) == sizeof(result.batch_sizes), "expected as many dimensions");
  std::copy(std::begin(a.batchSizes), std::end(a.batchSizes), result.batch_sizes);
  for (int i = 0; i < 3; ++i)
    std::copy(std::begin(a.batchStrides[i]), std::end(a.batchStrides[i]), result.batch_strides[i]);
  return result;
}

void DeviceLauncher::multiply(const device::Product &product) {
  int64_t elements = product.m * product.n * product.batches;
  if (status != COMMRT_OK || elements == 0)
    return;
  if (!commrt_job_is_rank_ordered(context->job) && COMMRT_REACHES(ops, commrt_device_ops, product) && ops->product) {
    char text[1024] = "";
    commrt_product what = describe(product);
    int32_t result = ops->product(context->peer, &what, stream, text, sizeof(text));
    if (result != COMMRT_ERR_UNSUPPORTED)
      return note(result, std::string("a matrix product: ") + text);
  }
  launch("multiplyMatrices", product, elements);
}

void DeviceLauncher::beginPace() {
  begun = static_cast<int64_t *>(allocate(sizeof(int64_t)));
  if (begun)
    launch("stampClock", device::Pace{begun, 0}, 1);
}

/// How many blocks of threads wait: COMMRT_PACED_CTAS.
static int64_t pacedBlocks() {
  const char *text = std::getenv("COMMRT_PACED_CTAS");
  int64_t blocks = text ? std::strtoll(text, nullptr, 10) : 0;
  return blocks >= 1 && blocks <= mostBlocks ? blocks : defaultPacedBlocks;
}

void DeviceLauncher::endPace(int64_t ns) {
  if (!begun)
    return;
  device::Pace pace = {begun, ns};
  launchBlocks("paceUntil", &pace, pacedBlocks());
}

void *DeviceLauncher::allocate(int64_t bytes) {
  void *memory = nullptr;
  if (status != COMMRT_OK)
    return nullptr;
  note(ops->alloc(context->peer, bytes, stream, &memory),
       "no memory for " + std::to_string(bytes) + " bytes of a computation's workspace");
  if (memory)
    scratches.push_back(memory);
  return memory;
}

void *DeviceLauncher::scratch(int64_t bytes) {
  void *memory = allocate(bytes);
  if (!memory)
    return nullptr;
  note(ops->fill(context->peer, memory, 0, bytes, stream), "cannot clear a computation's workspace");
  return memory;
}

DeviceLauncher::~DeviceLauncher() {
  for (void *memory : scratches)
    ops->free(context->peer, memory, stream);
}
