//===- Durations.cpp - Modelled durations -----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long operations take on the virtual clock, so that a program that measures can be checked against a truth that is
// known. A copy or a fill takes a latency, and its bytes over a bandwidth; a kernel takes a constant unless it says
// otherwise (emulatorTakes). With CUDA_EMU_NOISE_PERMILLE each operation takes up to so much more, evenly spread; of
// CUDA_EMU_OUTLIER_PERMILLE in a thousand operations, each takes CUDA_EMU_OUTLIER_FACTOR times as long.
//
//===------------------------------------------------------------------------------------------===//

#include "Machine.h"

namespace emulator {
int64_t copyNs(size_t bytes, bool isOnDevice) {
  static const int64_t latency = option("CUDA_EMU_COPY_NS", 2000);
  static const int64_t device = option("CUDA_EMU_DEVICE_BYTES_PER_US", 1500000);
  static const int64_t host = option("CUDA_EMU_HOST_BYTES_PER_US", 25000);
  return latency + int64_t(bytes) * 1000 / (isOnDevice ? device : host);
}

int64_t kernelNs() {
  static const int64_t duration = option("CUDA_EMU_KERNEL_NS", 2000);
  return duration;
}

/// A well mixed number from three, by the finalizer of splitmix64.
static uint64_t mix(uint64_t seed, uint64_t stream, uint64_t number) {
  uint64_t x = seed * 0x9E3779B97F4A7C15 + (stream << 40) + number;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

int64_t withNoise(int64_t durationNs, const Op &op) {
  static const int64_t noise = option("CUDA_EMU_NOISE_PERMILLE", 0), outliers = option("CUDA_EMU_OUTLIER_PERMILLE", 0),
                       factor = option("CUDA_EMU_OUTLIER_FACTOR", 10), seed = option("CUDA_EMU_SEED", 0);
  if (durationNs == 0 || (noise == 0 && outliers == 0))
    return durationNs;
  uint64_t drawn = mix(uint64_t(seed), op.streamId, op.number);
  constexpr int64_t whole = 1000;
  if (int64_t(drawn % whole) < outliers)
    durationNs *= factor;
  return durationNs + durationNs * noise / whole * int64_t(drawn / whole % whole) / whole;
}
} // namespace emulator
