//===- Portable.h - Common base of kernels for devices and for the host ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The kernels of this folder are compiled twice: by NVRTC for a GPU, and by the compiler of the runtime for the
// emulated one. This header hides the difference. NVRTC has no system headers.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_PORTABLE_H
#define COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_PORTABLE_H

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
#else
#include <cmath>
#include <cstdint>
#include <cstring>
#endif

#ifdef __CUDACC__
#define COMMRT_DEVICE __device__ inline
/// A kernel of one argument; its name is not mangled.
#define COMMRT_KERNEL(name, Arguments) extern "C" __global__ void name(const Arguments a)
#else
#define COMMRT_DEVICE inline
#define COMMRT_KERNEL(name, Arguments) static void name(const Arguments &a)
#endif

namespace commsched::runtime::device {
#ifdef __CUDACC__
/// The first element of a thread, and the distance to its next one.
COMMRT_DEVICE int64_t firstElement() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
COMMRT_DEVICE int64_t elementStep() { return int64_t(gridDim.x) * blockDim.x; }
COMMRT_DEVICE float bitsToFloat(uint32_t bits) { return __uint_as_float(bits); }
COMMRT_DEVICE uint32_t floatToBits(float value) { return __float_as_uint(value); }
COMMRT_DEVICE void addTo(uint64_t *sum, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long *>(sum), static_cast<unsigned long long>(value));
}
/// Nanoseconds of a clock that all kernels of the device share.
COMMRT_DEVICE int64_t deviceClock() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
COMMRT_DEVICE void waitUntil(int64_t time) {
  while (deviceClock() < time)
    __nanosleep(100);
}
#else
// The host does the work of the grid in one call, with one thread.
inline int64_t firstElement() { return 0; }
inline int64_t elementStep() { return 1; }
inline float bitsToFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t floatToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline void addTo(uint64_t *sum, uint64_t value) { *sum += value; }
/// The virtual clock of the emulated device (Image.cpp).
int64_t deviceClock();
void waitUntil(int64_t time);
#endif

/// An element at any address: buckets of mixed types place elements at any byte, which GPUs cannot read at once.
template <typename T> COMMRT_DEVICE T readElement(const char *from) {
  T value;
#ifdef __CUDACC__
  if (reinterpret_cast<uint64_t>(from) % sizeof(T) == 0)
    return *reinterpret_cast<const T *>(from);
  for (uint64_t i = 0; i < sizeof(T); ++i)
    reinterpret_cast<char *>(&value)[i] = from[i];
#else
  std::memcpy(&value, from, sizeof(T));
#endif
  return value;
}
template <typename T> COMMRT_DEVICE void writeElement(char *to, T value) {
#ifdef __CUDACC__
  if (reinterpret_cast<uint64_t>(to) % sizeof(T) == 0)
    *reinterpret_cast<T *>(to) = value;
  else
    for (uint64_t i = 0; i < sizeof(T); ++i)
      to[i] = reinterpret_cast<const char *>(&value)[i];
#else
  std::memcpy(to, &value, sizeof(T));
#endif
}
} // namespace commsched::runtime::device

#endif // COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_PORTABLE_H
