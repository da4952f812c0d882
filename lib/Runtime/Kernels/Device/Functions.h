//===- Functions.h - Elementwise functions ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// In double precision, for the kernels of the host and of devices.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_FUNCTIONS_H
#define COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_FUNCTIONS_H

#include "Portable.h"

namespace commsched::runtime::device {
// clang-format off
COMMRT_DEVICE double relu(double x) { return x < 0 ? 0 : x; }
COMMRT_DEVICE double negate(double x) { return -x; }
COMMRT_DEVICE double exponential(double x) { return ::exp(x); }
COMMRT_DEVICE double hyperbolicTangent(double x) { return ::tanh(x); }
COMMRT_DEVICE double squareRoot(double x) { return ::sqrt(x); }
COMMRT_DEVICE double reciprocal(double x) { return 1 / x; }
COMMRT_DEVICE double magnitude(double x) { return ::fabs(x); }
COMMRT_DEVICE double logarithm(double x) { return ::log(x); }
COMMRT_DEVICE double sine(double x) { return ::sin(x); }
COMMRT_DEVICE double cosine(double x) { return ::cos(x); }
COMMRT_DEVICE double reciprocalRoot(double x) { return 1 / ::sqrt(x); }
COMMRT_DEVICE double sigmoid(double x) { return 1 / (1 + ::exp(-x)); }
COMMRT_DEVICE double silu(double x) { return x / (1 + ::exp(-x)); }
// 1 + erf(y) as erfc(-y): where the sum cancels, it keeps no correct digit, and libraries differ by more than their last bits.
COMMRT_DEVICE double gelu(double x) { return 0.5 * x * ::erfc(x * -0.70710678118654752); }
COMMRT_DEVICE double same(double x) { return x; }
COMMRT_DEVICE double add(double x, double y) { return x + y; }
COMMRT_DEVICE double subtract(double x, double y) { return x - y; }
COMMRT_DEVICE double multiply(double x, double y) { return x * y; }
COMMRT_DEVICE double divide(double x, double y) { return x / y; }
COMMRT_DEVICE double maximum(double x, double y) { return x < y ? y : x; }
COMMRT_DEVICE double minimum(double x, double y) { return y < x ? y : x; }
COMMRT_DEVICE double power(double x, double y) { return ::pow(x, y); }
COMMRT_DEVICE double reluBackward(double gradient, double x) { return x > 0 ? gradient : 0; }

#define COMMRT_UNARY_FUNCTIONS(X)                                                                                      \
  X(relu) X(negate) X(exponential) X(hyperbolicTangent) X(squareRoot) X(reciprocal) X(magnitude) X(logarithm) X(sine)  \
  X(cosine) X(reciprocalRoot) X(sigmoid) X(silu) X(gelu) X(same)
#define COMMRT_BINARY_FUNCTIONS(X)                                                                                     \
  X(add) X(subtract) X(multiply) X(divide) X(maximum) X(minimum) X(power) X(reluBackward)
// clang-format on

/// Which function an elementwise kernel computes.
enum class Function : int32_t {
#define COMMRT_CASE(name) name,
  COMMRT_UNARY_FUNCTIONS(COMMRT_CASE) COMMRT_BINARY_FUNCTIONS(COMMRT_CASE)
#undef COMMRT_CASE
};

COMMRT_DEVICE double apply(Function function, double x, double y) {
  switch (function) {
#define COMMRT_CASE(name)                                                                                              \
  case Function::name:                                                                                                 \
    return name(x);
    COMMRT_UNARY_FUNCTIONS(COMMRT_CASE)
#undef COMMRT_CASE
#define COMMRT_CASE(name)                                                                                              \
  case Function::name:                                                                                                 \
    return name(x, y);
    COMMRT_BINARY_FUNCTIONS(COMMRT_CASE)
#undef COMMRT_CASE
  }
  return 0;
}

/// 64-bit mixing for fingerprints and signatures (the finaliser of splitmix64).
COMMRT_DEVICE uint64_t mix(uint64_t hash, uint64_t value) {
  uint64_t x = hash * 0x9e3779b97f4a7c15ull + value + 0x632be59bd9b4e019ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
} // namespace commsched::runtime::device

#endif // COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_FUNCTIONS_H
