//===- Arguments.h - Arguments of the kernels ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each kernel takes one structure by value. Types are numbers of commrt_dtype, reductions those of commrt_reduction.
// Sizes and strides are in elements; an output that has no strides is dense. Padding has a name, so that it is zero:
// the emulated CUDA runtime looks for addresses in arguments.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_ARGUMENTS_H
#define COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_ARGUMENTS_H

#include "Functions.h"

namespace commsched::runtime::device {
/// Dimensions after those that lie together were merged.
constexpr int mostDims = 8;
/// Pieces of one launch: with them an argument stays below 4 KiB, CUDA's limit before compute capability 7.0.
constexpr int mostPieces = 40;

/// out[i] = function(first, second).
struct Elementwise {
  const char *inputs[2];
  char *out;
  int64_t elements;
  int64_t sizes[mostDims], strides[2][mostDims];
  int32_t types[2], outType;
  int32_t numInputs, rank;
  Function function;
};

/// out[i] = the element of the input at i's index times the strides. Elements are `width` bytes.
struct Strided {
  const char *in;
  char *out;
  int64_t elements;
  int64_t sizes[mostDims], strides[mostDims];
  int32_t width, rank;
};

/// Rows of `rowElements`, at two distances. What the input does not have is zero.
struct Piece {
  const char *from;
  char *to;
  int64_t rows, rowElements, fromPitch, toPitch;
  int64_t fromElements; ///< of the input
  int32_t fromType, toType;
};
/// Pieces of different types and sizes. `first` is indexed by piece: the number of elements before it.
struct Pieces {
  Piece pieces[mostPieces];
  int64_t first[mostPieces + 1];
  int32_t count, padding;
};

/// For each row of `length` elements.
struct Rows {
  const char *inputs[2];
  char *out;
  int64_t rows, length;
  int32_t types[2], outType, padding;
};

/// Each output is the sum, in order, of the inputs that differ in the reduced dimensions alone, divided by `divisor`.
struct Sum {
  const char *in;
  char *out;
  int64_t outputs, inputsPerOutput;
  int64_t keptSizes[mostDims], keptStrides[mostDims], reducedSizes[mostDims], reducedStrides[mostDims];
  double divisor; ///< 0: none
  int32_t keptRank, reducedRank, inType, outType;
};

/// The inputs of a collective's members, one after the other, reduced in the order of the members.
struct Members {
  const char *in;
  char *out;
  int64_t count, members;
  double scale;
  int32_t type, reduction;
};

/// result (+)= left * right for each index of the batch dimensions.
struct Product {
  const char *left, *right;
  char *result;
  int64_t m, n, k, batches;
  int64_t leftStrides[2], rightStrides[2], resultStrides[2]; ///< of rows and columns
  int64_t batchSizes[mostDims], batchStrides[3][mostDims];
  int32_t batchRank, leftType, rightType, resultType;
  int32_t accumulates; ///< adds to what the result holds
  int32_t isWide;      ///< sums in f64 instead of f32
};

/// *sum += a value that depends on each bit of `data` and on `bytes`.
struct Digest {
  const char *data;
  int64_t bytes;
  uint64_t *sum;
};
/// sums[count] = the sums chained after `seed`.
struct Chain {
  uint64_t *sums;
  int64_t count;
  uint64_t seed;
};
/// Small values that depend on `*hash`, on `number` and on the index.
struct Fill {
  char *out;
  const uint64_t *hash;
  uint64_t number;
  int64_t elements;
  int32_t type, padding;
};

/// Stamp: *clock = the device's clock. Pace: ends `ns` after that.
struct Pace {
  int64_t *clock;
  int64_t ns;
};
} // namespace commsched::runtime::device

#endif // COMMSCHED_LIB_RUNTIME_KERNELS_DEVICE_ARGUMENTS_H
