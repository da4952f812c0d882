//===- FsdpKernels.cpp - Packing and unpacking of sharded parameters --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The kernels of the comm.fsdp operations. Every offset is within its operand, or nothing is copied.
//
//===------------------------------------------------------------------------------------------===//

#include "Kernels.h"
#include <algorithm>
#include <cstring>

using namespace commsched::runtime;

static void copyElements(const Operand &from, int64_t fromAt, Operand &to, int64_t toAt, int64_t count) {
  int64_t size = commrt_dtype_size(from.dtype);
  if (count <= 0)
    return;
  if (from.dtype == to.dtype) {
    std::memmove(to.data + toAt * size, from.data + fromAt * size, count * size);
    return;
  }
  constexpr int64_t most = 512;
  double block[most];
  for (int64_t i = 0; i < count; i += most) {
    int64_t n = std::min(most, count - i);
    loadElements(from, fromAt + i, n, block);
    storeElements(to, toAt + i, n, block);
  }
}

/// extra: for each input the type as whose bytes it is packed.
static Outcome packBytes(Call &call) {
  Operand &out = *call.outputs[0];
  if (call.extra.size() != call.inputs.size())
    return Outcome::invalid;
  int64_t bytes = 0;
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    int64_t piece, width = commrt_dtype_size(static_cast<int32_t>(call.extra[k]));
    if (width <= 0 || __builtin_mul_overflow(call.inputs[k]->elements, width, &piece) ||
        __builtin_add_overflow(bytes, piece, &bytes))
      return Outcome::invalid;
  }
  if (bytes != out.bytes())
    return Outcome::invalid;
  char *to = out.data;
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const Operand &input = *call.inputs[k];
    Operand piece{to, static_cast<int32_t>(call.extra[k]), 0, {}, input.elements};
    copyElements(input, 0, piece, 0, input.elements);
    to += piece.bytes();
  }
  return Outcome::ran;
}

/// extra: nothing, or the types of packBytes. Inputs, flattened and converted, one after the other.
Outcome commsched::runtime::pack(Call &call) {
  if (call.outputs.size() != 1)
    return Outcome::invalid;
  if (!call.extra.empty())
    return packBytes(call);
  int64_t total = 0;
  for (Operand *input : call.inputs)
    if (__builtin_add_overflow(total, input->elements, &total))
      return Outcome::invalid;
  if (total != call.outputs[0]->elements)
    return Outcome::invalid;
  int64_t at = 0;
  for (Operand *input : call.inputs) {
    copyElements(*input, 0, *call.outputs[0], at, input->elements);
    at += input->elements;
  }
  return Outcome::ran;
}

/// extra: [chunks]. Row c of the output is piece c, along dimension 0 and padded with zeros, of each input.
Outcome commsched::runtime::chunkCat(Call &call) {
  if (call.outputs.size() != 1 || call.extra.size() != 1)
    return Outcome::invalid;
  Operand &out = *call.outputs[0];
  int64_t chunks = call.extra[0], row = 0;
  if (chunks < 1 || chunks > std::max<int64_t>(1, out.elements))
    return Outcome::invalid;
  struct Piece {
    int64_t rows, rowElements, pieceRows;
  };
  std::vector<Piece> pieces;
  for (Operand *input : call.inputs) {
    int64_t rows = input->sizes.empty() ? 1 : input->sizes[0];
    Piece piece = {rows, rows ? input->elements / rows : 0, rows / chunks + (rows % chunks != 0)};
    int64_t elements;
    if (__builtin_mul_overflow(piece.pieceRows, piece.rowElements, &elements) ||
        __builtin_add_overflow(row, elements, &row))
      return Outcome::invalid;
    pieces.push_back(piece);
  }
  int64_t total;
  if (__builtin_mul_overflow(row, chunks, &total) || total != out.elements)
    return Outcome::invalid;
  std::memset(out.data, 0, out.bytes());
  int64_t at = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (size_t k = 0; k < pieces.size(); ++k) {
      auto [rows, rowElements, pieceRows] = pieces[k];
      int64_t begin = std::min(rows, chunk * pieceRows), end = std::min(rows, begin + pieceRows);
      copyElements(*call.inputs[k], begin * rowElements, out, at, (end - begin) * rowElements);
      at += pieceRows * rowElements;
    }
  return Outcome::ran;
}

/// extra: [number of sizes, sizes..., members...]. Output k is piece members[k] of each rank's row. Bytes are copied:
/// the outputs are of the source's type, or the source is of bytes.
Outcome commsched::runtime::splitCopy(Call &call) {
  if (call.inputs.size() != 1 || call.extra.empty())
    return Outcome::invalid;
  int64_t numSizes = call.extra[0], row = 0;
  if (numSizes < 0 || call.extra.size() - 1 < call.outputs.size() ||
      static_cast<uint64_t>(numSizes) != call.extra.size() - 1 - call.outputs.size())
    return Outcome::invalid;
  const int64_t *sizes = call.extra.data() + 1, *members = sizes + numSizes;
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < numSizes; ++i) {
    offsets.push_back(row);
    if (sizes[i] < 0 || __builtin_add_overflow(row, sizes[i], &row))
      return Outcome::invalid;
  }
  const Operand &source = *call.inputs[0];
  if (row ? source.elements % row != 0 : source.elements != 0)
    return Outcome::invalid;
  int64_t ranks = row ? source.elements / row : 0, width = commrt_dtype_size(source.dtype);
  for (size_t k = 0; k < call.outputs.size(); ++k)
    if (members[k] < 0 || members[k] >= numSizes || call.outputs[k]->bytes() != ranks * sizes[members[k]] * width)
      return Outcome::invalid;
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    int64_t bytes = sizes[members[k]] * width;
    for (int64_t rank = 0; bytes > 0 && rank < ranks; ++rank)
      std::memmove(call.outputs[k]->data + rank * bytes, source.data + (rank * row + offsets[members[k]]) * width,
                   bytes);
  }
  return Outcome::ran;
}
