//===- Formats.h - The bits of f16 and bf16 ---------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Conversions by integer arithmetic, equal on every processor: to the nearest value, ties to even.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_FORMATS_H
#define COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_FORMATS_H

#include "Portable.h"

namespace commsched::runtime::device {
COMMRT_DEVICE float floatOfHalf(uint16_t half) {
  uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = (half >> 10) & 31, mantissa = half & 1023;
  if (exponent == 31)
    return bitsToFloat(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) // zero or subnormal: mantissa * 2^-24
    return bitsToFloat(sign | floatToBits(float(mantissa) * 0x1p-24f));
  return bitsToFloat(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

COMMRT_DEVICE uint16_t halfOfFloat(float value) {
  uint32_t bits = floatToBits(value), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) // NaN stays quiet
    return uint16_t(sign | 0x7e00 | ((magnitude >> 13) & 1023));
  if (magnitude >= 0x477ff000) // rounds to 65536 or above
    return uint16_t(sign | 0x7c00);
  if (magnitude < 0x38800000) // below 2^-14: adding 0.5 leaves the subnormal, rounded, in the low bits
    return uint16_t(sign | (floatToBits(bitsToFloat(magnitude) + 0.5f) - 0x3f000000u));
  return uint16_t(sign | ((magnitude - 0x38000000u + 0xfff + ((magnitude >> 13) & 1)) >> 13));
}

COMMRT_DEVICE float floatOfBrain(uint16_t brain) { return bitsToFloat(uint32_t(brain) << 16); }

COMMRT_DEVICE uint16_t brainOfFloat(float value) {
  uint32_t bits = floatToBits(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return uint16_t((bits >> 16) | 0x40);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
} // namespace commsched::runtime::device

#endif // COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_FORMATS_H
