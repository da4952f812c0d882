//===- Image.cpp - The host builds of the kernels ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The text of Kernels.h compiled for the host.
//
//===------------------------------------------------------------------------------------------===//

#include "Image.h"
#include "Kernels.h"
#include <algorithm>
#include <atomic>
#include <iterator>

using namespace commsched::runtime;

static std::atomic<int64_t (*)()> emulatedNow{nullptr};
static std::atomic<void (*)(int64_t)> emulatedTakes{nullptr};

void device::setEmulatedClock(const EmulatedClock &clock) {
  emulatedNow = clock.now;
  emulatedTakes = clock.takes;
}

int64_t device::deviceClock() {
  auto now = emulatedNow.load();
  return now ? now() : 0;
}

void device::waitUntil(int64_t time) {
  if (auto takes = emulatedTakes.load())
    takes(std::max<int64_t>(0, time - deviceClock()));
}

template <typename Arguments, void (*kernel)(const Arguments &)>
static void runOnHost(void *const *arguments, const uint32_t *, const uint32_t *) {
  kernel(*static_cast<const Arguments *>(arguments[0]));
}

commrt_image_info device::hostImage() {
#define KERNEL(name, Arguments) {#name, &sizes[__COUNTER__ - first], 1, runOnHost<device::Arguments, device::name>}
#define SIZE(name, Arguments) sizeof(device::Arguments)
#define KERNELS(X)                                                                                                     \
  X(runElementwise, Elementwise), X(copyStrided, Strided), X(copyPieces, Pieces), X(softmaxRows, Rows),                \
      X(softmaxBackwardRows, Rows), X(sumDims, Sum), X(reduceMembers, Members), X(multiplyMatrices, Product),          \
      X(digestBytes, Digest), X(chainDigests, Chain), X(fillOpaque, Fill), X(stampClock, Pace), X(paceUntil, Pace)
  static constexpr int64_t sizes[] = {KERNELS(SIZE)};
  static constexpr int first = __COUNTER__ + 1;
  static constexpr commrt_image_kernel kernels[] = {KERNELS(KERNEL)};
#undef KERNEL
#undef SIZE
#undef KERNELS
  return {sizeof(commrt_image_info), "commrt.kernels", nullptr, 0, kernels, std::size(kernels)};
}
