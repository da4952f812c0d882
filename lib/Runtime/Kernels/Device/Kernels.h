//===- Kernels.h - The kernels of named computations ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One text for NVRTC and for the host: loops over elements with the distance of the whole grid, no shared memory. Each
// result is computed by one thread, in the order of the kernels of the host, and rounded where they round, so that the
// bits are the same (with FMA contraction off; NaNs may have other bits). The functions of the mathematics library
// (exp, log, sin, cos, tanh, erf, pow) are those of CUDA and may differ in the last bits of f64.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_KERNELS_H
#define COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_KERNELS_H

#include "Arguments.h"
#include "Formats.h"

namespace commsched::runtime::device {
/// The numbers of commrt_dtype and commrt_reduction; NVRTC does not see Runtime.h.
enum Type { f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, i1 };
enum Reduction { sumOf, productOf, minimumOf, maximumOf, averageOf, scaledSumOf };

//===-----------------------------------------------------------------------------------------===//
// Elements
//===-----------------------------------------------------------------------------------------===//

/// An element type that is not one of C++: how it is stored, and the type it is computed in.
struct Half {
  typedef uint16_t Stored;
  typedef float Value;
  COMMRT_DEVICE static Value load(Stored bits) { return floatOfHalf(bits); }
  COMMRT_DEVICE static Stored store(Value value) { return halfOfFloat(value); }
};
struct Brain {
  typedef uint16_t Stored;
  typedef float Value;
  COMMRT_DEVICE static Value load(Stored bits) { return floatOfBrain(bits); }
  COMMRT_DEVICE static Stored store(Value value) { return brainOfFloat(value); }
};
struct Boolean {
  typedef uint8_t Stored;
  typedef uint8_t Value;
  COMMRT_DEVICE static Value load(Stored bits) { return bits != 0; }
  COMMRT_DEVICE static Stored store(Value value) { return value; }
};
template <typename S, typename V> struct Plain {
  typedef S Stored;
  typedef V Value;
  COMMRT_DEVICE static V load(S value) { return static_cast<V>(value); }
  COMMRT_DEVICE static S store(V value) { return static_cast<S>(value); }
};

template <typename V> COMMRT_DEVICE V fromDouble(double value) { return static_cast<V>(value); }
/// Truncated; out of range and NaN have no meaning in C++.
COMMRT_DEVICE int64_t clamped(double value) {
  return static_cast<int64_t>(::fmin(::fmax(value != value ? 0 : value, -9.2e18), 9.2e18));
}
template <> COMMRT_DEVICE int64_t fromDouble<int64_t>(double value) { return clamped(value); }
template <> COMMRT_DEVICE uint64_t fromDouble<uint64_t>(double value) { return static_cast<uint64_t>(clamped(value)); }
template <> COMMRT_DEVICE uint8_t fromDouble<uint8_t>(double value) { return value != 0; }

/// Calls body.run(E()) for the element type E.
template <typename Body> COMMRT_DEVICE void withElement(int32_t type, Body &body) {
  switch (type) {
  case f16:
    return body.run(Half());
  case bf16:
    return body.run(Brain());
  case f32:
    return body.run(Plain<float, float>());
  case f64:
    return body.run(Plain<double, double>());
  case i8:
    return body.run(Plain<int8_t, int64_t>());
  case i16:
    return body.run(Plain<int16_t, int64_t>());
  case i32:
    return body.run(Plain<int32_t, int64_t>());
  case i64:
    return body.run(Plain<int64_t, int64_t>());
  case u8:
    return body.run(Plain<uint8_t, uint64_t>());
  case u16:
    return body.run(Plain<uint16_t, uint64_t>());
  case u32:
    return body.run(Plain<uint32_t, uint64_t>());
  case u64:
    return body.run(Plain<uint64_t, uint64_t>());
  default:
    return body.run(Boolean());
  }
}

struct LoadNumber {
  const char *data;
  int64_t at;
  double value;
  template <typename E> COMMRT_DEVICE void run(E) {
    typedef typename E::Stored Stored;
    value = static_cast<double>(E::load(readElement<Stored>(data + at * int64_t(sizeof(Stored)))));
  }
};
/// Exact for all floating-point types and for integers below 2^53.
COMMRT_DEVICE double loadNumber(const char *data, int32_t type, int64_t at) {
  LoadNumber load = {data, at, 0};
  withElement(type, load);
  return load.value;
}

struct StoreNumber {
  char *data;
  int64_t at;
  double value;
  template <typename E> COMMRT_DEVICE void run(E) {
    typedef typename E::Stored Stored;
    writeElement<Stored>(data + at * int64_t(sizeof(Stored)), E::store(fromDouble<typename E::Value>(value)));
  }
};
/// Rounds once; integers are truncated, and clamped to what an int64_t holds.
COMMRT_DEVICE void storeNumber(char *data, int32_t type, int64_t at, double value) {
  StoreNumber store = {data, at, value};
  withElement(type, store);
}

COMMRT_DEVICE int64_t widthOf(int32_t type) {
  return type == f64 || type == i64 || type == u64   ? 8
         : type == f32 || type == i32 || type == u32 ? 4
         : type == i8 || type == u8 || type == i1    ? 1
                                                     : 2;
}

COMMRT_DEVICE void copyElement(char *to, const char *from, int64_t width) {
  if (width == 8)
    writeElement<uint64_t>(to, readElement<uint64_t>(from));
  else if (width == 4)
    writeElement<uint32_t>(to, readElement<uint32_t>(from));
  else if (width == 2)
    writeElement<uint16_t>(to, readElement<uint16_t>(from));
  else
    *to = *from;
}

/// Where element `index` of a dense array of the given sizes lies by other strides.
COMMRT_DEVICE int64_t placeOf(int64_t index, int32_t rank, const int64_t *sizes, const int64_t *strides) {
  int64_t at = 0;
  for (int32_t dim = rank - 1; dim > 0; --dim) {
    at += index % sizes[dim] * strides[dim];
    index /= sizes[dim];
  }
  return rank > 0 ? at + index * strides[0] : 0;
}

//===-----------------------------------------------------------------------------------------===//
// Elementwise and copies
//===-----------------------------------------------------------------------------------------===//

COMMRT_KERNEL(runElementwise, Elementwise) {
  for (int64_t i = firstElement(); i < a.elements; i += elementStep()) {
    double values[2] = {0, 0};
    for (int32_t k = 0; k < a.numInputs; ++k)
      values[k] = loadNumber(a.inputs[k], a.types[k], placeOf(i, a.rank, a.sizes, a.strides[k]));
    storeNumber(a.out, a.outType, i, apply(a.function, values[0], values[1]));
  }
}

COMMRT_KERNEL(copyStrided, Strided) {
  for (int64_t i = firstElement(); i < a.elements; i += elementStep())
    copyElement(a.out + i * a.width, a.in + placeOf(i, a.rank, a.sizes, a.strides) * a.width, a.width);
}

COMMRT_DEVICE void copyPieceElement(const Piece &piece, int64_t index) {
  int64_t row = index / piece.rowElements, column = index % piece.rowElements;
  int64_t from = row * piece.fromPitch + column, to = row * piece.toPitch + column;
  int64_t width = widthOf(piece.toType);
  if (from >= piece.fromElements)
    storeNumber(piece.to, piece.toType, to, 0);
  else if (piece.fromType == piece.toType)
    copyElement(piece.to + to * width, piece.from + from * width, width);
  else
    storeNumber(piece.to, piece.toType, to, loadNumber(piece.from, piece.fromType, from));
}

COMMRT_KERNEL(copyPieces, Pieces) {
  int32_t piece = 0;
  for (int64_t i = firstElement(); i < a.first[a.count]; i += elementStep()) {
    while (i >= a.first[piece + 1])
      ++piece;
    copyPieceElement(a.pieces[piece], i - a.first[piece]);
  }
}

//===-----------------------------------------------------------------------------------------===//
// Rows and sums
//===-----------------------------------------------------------------------------------------===//

COMMRT_KERNEL(softmaxRows, Rows) {
  for (int64_t row = firstElement(); row < a.rows; row += elementStep()) {
    int64_t begin = row * a.length;
    double largest = loadNumber(a.inputs[0], a.types[0], begin), sum = 0;
    for (int64_t i = 0; i < a.length; ++i)
      largest = ::fmax(largest, loadNumber(a.inputs[0], a.types[0], begin + i));
    for (int64_t i = 0; i < a.length; ++i)
      sum += ::exp(loadNumber(a.inputs[0], a.types[0], begin + i) - largest);
    for (int64_t i = 0; i < a.length; ++i)
      storeNumber(a.out, a.outType, begin + i, ::exp(loadNumber(a.inputs[0], a.types[0], begin + i) - largest) / sum);
  }
}

COMMRT_KERNEL(softmaxBackwardRows, Rows) {
  for (int64_t row = firstElement(); row < a.rows; row += elementStep()) {
    int64_t begin = row * a.length;
    double sum = 0;
    for (int64_t i = 0; i < a.length; ++i)
      sum += loadNumber(a.inputs[0], a.types[0], begin + i) * loadNumber(a.inputs[1], a.types[1], begin + i);
    for (int64_t i = 0; i < a.length; ++i) {
      double result = loadNumber(a.inputs[1], a.types[1], begin + i);
      storeNumber(a.out, a.outType, begin + i, result * (loadNumber(a.inputs[0], a.types[0], begin + i) - sum));
    }
  }
}

COMMRT_KERNEL(sumDims, Sum) {
  for (int64_t i = firstElement(); i < a.outputs; i += elementStep()) {
    int64_t begin = placeOf(i, a.keptRank, a.keptSizes, a.keptStrides);
    double sum = 0;
    for (int64_t k = 0; k < a.inputsPerOutput; ++k)
      sum += loadNumber(a.in, a.inType, begin + placeOf(k, a.reducedRank, a.reducedSizes, a.reducedStrides));
    storeNumber(a.out, a.outType, i, a.divisor != 0 ? sum / a.divisor : sum);
  }
}

//===-----------------------------------------------------------------------------------------===//
// Reductions of collectives
//===-----------------------------------------------------------------------------------------===//

COMMRT_DEVICE float plus(float x, float y) { return x + y; }
COMMRT_DEVICE double plus(double x, double y) { return x + y; }
COMMRT_DEVICE float times(float x, float y) { return x * y; }
COMMRT_DEVICE double times(double x, double y) { return x * y; }
// Integers wrap.
COMMRT_DEVICE uint64_t plus(uint64_t x, uint64_t y) { return x + y; }
COMMRT_DEVICE int64_t plus(int64_t x, int64_t y) { return int64_t(uint64_t(x) + uint64_t(y)); }
COMMRT_DEVICE uint8_t plus(uint8_t x, uint8_t y) { return uint8_t(x | y); }
COMMRT_DEVICE uint64_t times(uint64_t x, uint64_t y) { return x * y; }
COMMRT_DEVICE int64_t times(int64_t x, int64_t y) { return int64_t(uint64_t(x) * uint64_t(y)); }
COMMRT_DEVICE uint8_t times(uint8_t x, uint8_t y) { return uint8_t(x & y); }

struct ReduceElement {
  const Members &a;
  int64_t at;
  template <typename V> COMMRT_DEVICE V combine(V sum, V value, V scale) const {
    switch (a.reduction) {
    case productOf:
      return times(sum, value);
    case minimumOf:
      return value < sum ? value : sum;
    case maximumOf:
      return sum < value ? value : sum;
    case scaledSumOf:
      return plus(sum, times(value, scale));
    default:
      return plus(sum, value);
    }
  }
  template <typename E> COMMRT_DEVICE void run(E) {
    typedef typename E::Stored Stored;
    typedef typename E::Value Value;
    const Stored *in = reinterpret_cast<const Stored *>(a.in) + at;
    auto scale = static_cast<Value>(a.scale);
    Value sum = E::load(in[0]);
    if (a.reduction == scaledSumOf)
      sum = times(sum, scale);
    for (int64_t k = 1; k < a.members; ++k)
      sum = combine(sum, E::load(in[k * a.count]), scale);
    if (a.reduction == averageOf)
      sum = static_cast<Value>(sum / static_cast<Value>(a.members));
    reinterpret_cast<Stored *>(a.out)[at] = E::store(sum);
  }
};

COMMRT_KERNEL(reduceMembers, Members) {
  for (int64_t i = firstElement(); i < a.count; i += elementStep()) {
    ReduceElement reduce = {a, i};
    withElement(a.type, reduce);
  }
}

//===-----------------------------------------------------------------------------------------===//
// Matrix products
//===-----------------------------------------------------------------------------------------===//

/// One element of the result, in order of k.
template <typename T> COMMRT_DEVICE void multiplyElement(const Product &a, int64_t index) {
  int64_t column = index % a.n, row = index / a.n % a.m, batch = index / a.n / a.m;
  int64_t left = placeOf(batch, a.batchRank, a.batchSizes, a.batchStrides[0]) + row * a.leftStrides[0];
  int64_t right = placeOf(batch, a.batchRank, a.batchSizes, a.batchStrides[1]) + column * a.rightStrides[1];
  int64_t result = placeOf(batch, a.batchRank, a.batchSizes, a.batchStrides[2]) + row * a.resultStrides[0] +
                   column * a.resultStrides[1];
  T sum = a.accumulates ? static_cast<T>(loadNumber(a.result, a.resultType, result)) : T(0);
  for (int64_t k = 0; k < a.k; ++k) {
    T x = static_cast<T>(loadNumber(a.left, a.leftType, left + k * a.leftStrides[1]));
    T y = static_cast<T>(loadNumber(a.right, a.rightType, right + k * a.rightStrides[0]));
    sum = sum + x * y;
  }
  storeNumber(a.result, a.resultType, result, static_cast<double>(sum));
}

COMMRT_KERNEL(multiplyMatrices, Product) {
  int64_t elements = a.m * a.n * a.batches;
  for (int64_t i = firstElement(); i < elements; i += elementStep())
    if (a.isWide)
      multiplyElement<double>(a, i);
    else
      multiplyElement<float>(a, i);
}

//===-----------------------------------------------------------------------------------------===//
// Opaque computations
//===-----------------------------------------------------------------------------------------===//

/// Word `index` of the data; what the data does not have is zero.
COMMRT_DEVICE uint64_t wordOf(const char *data, int64_t bytes, int64_t index) {
  if (index * 8 + 8 <= bytes)
    return readElement<uint64_t>(data + index * 8);
  uint64_t word = 0;
  for (int64_t i = index * 8; i < bytes; ++i)
    word |= uint64_t(static_cast<unsigned char>(data[i])) << (i % 8 * 8);
  return word;
}

COMMRT_KERNEL(digestBytes, Digest) {
  int64_t first = firstElement();
  uint64_t sum = first == 0 ? mix(~uint64_t(0), a.bytes) : 0;
  for (int64_t i = first; i * 8 < a.bytes; i += elementStep())
    sum += mix(i, wordOf(a.data, a.bytes, i));
  addTo(a.sum, sum);
}

COMMRT_KERNEL(chainDigests, Chain) {
  if (firstElement() != 0)
    return;
  uint64_t hash = a.seed;
  for (int64_t i = 0; i < a.count; ++i)
    hash = mix(hash, a.sums[i]);
  a.sums[a.count] = hash;
}

COMMRT_KERNEL(fillOpaque, Fill) {
  uint64_t seed = mix(*a.hash, a.number);
  for (int64_t i = firstElement(); i < a.elements; i += elementStep()) {
    int64_t bits = int64_t(mix(seed, i) >> 57); // 0..127
    storeNumber(a.out, a.type, i, a.type <= f64 ? double(bits - 64) / 64 : double(bits & 7));
  }
}

COMMRT_KERNEL(stampClock, Pace) {
  if (firstElement() == 0)
    *a.clock = deviceClock();
}

COMMRT_KERNEL(paceUntil, Pace) { waitUntil(*a.clock + a.ns); }
} // namespace commsched::runtime::device

#endif // COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_KERNELS_H
