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

static void copyElements(const device::Piece &piece, int64_t fromAt, int64_t toAt, int64_t count) {
  Operand from{const_cast<char *>(piece.from), piece.fromType, 0, {}, 0}, to{piece.to, piece.toType, 0, {}, 0};
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

/// Carries the copies out.
template <FsdpPlan plan> Outcome commsched::runtime::copyPieces(Call &call) {
  std::vector<device::Piece> pieces;
  if (Outcome outcome = plan(call, pieces); outcome != Outcome::ran)
    return outcome;
  for (const device::Piece &piece : pieces)
    for (int64_t row = 0; row < piece.rows; ++row) {
      int64_t from = std::min(row * piece.fromPitch, piece.fromElements), to = row * piece.toPitch;
      int64_t count = std::min(piece.rowElements, piece.fromElements - from), size = commrt_dtype_size(piece.toType);
      copyElements(piece, from, to, count);
      if (count < piece.rowElements)
        std::memset(piece.to + (to + count) * size, 0, (piece.rowElements - count) * size);
    }
  return Outcome::ran;
}
template Outcome commsched::runtime::copyPieces<planPack>(Call &);
template Outcome commsched::runtime::copyPieces<planChunkCat>(Call &);
template Outcome commsched::runtime::copyPieces<planSplitCopy>(Call &);

/// All elements of the input, in one row.
static device::Piece wholePiece(const Operand &input, char *to, int32_t toType) {
  return {input.data, to, 1, input.elements, 0, 0, input.elements, input.dtype, toType};
}

/// extra: for each input the type as whose bytes it is packed.
static Outcome planPackBytes(Call &call, std::vector<device::Piece> &pieces) {
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
    auto type = static_cast<int32_t>(call.extra[k]);
    pieces.push_back(wholePiece(*call.inputs[k], to, type));
    to += call.inputs[k]->elements * commrt_dtype_size(type);
  }
  return Outcome::ran;
}

/// extra: nothing, or the types of planPackBytes. Inputs, flattened and converted, one after the other.
Outcome commsched::runtime::planPack(Call &call, std::vector<device::Piece> &pieces) {
  if (call.outputs.size() != 1)
    return Outcome::invalid;
  if (!call.extra.empty())
    return planPackBytes(call, pieces);
  int64_t total = 0;
  for (Operand *input : call.inputs)
    if (__builtin_add_overflow(total, input->elements, &total))
      return Outcome::invalid;
  Operand &out = *call.outputs[0];
  if (total != out.elements)
    return Outcome::invalid;
  char *to = out.data;
  for (Operand *input : call.inputs) {
    pieces.push_back(wholePiece(*input, to, out.dtype));
    to += input->elements * commrt_dtype_size(out.dtype);
  }
  return Outcome::ran;
}

/// extra: [chunks]. Row c of the output is piece c, along dimension 0 and padded with zeros, of each input.
Outcome commsched::runtime::planChunkCat(Call &call, std::vector<device::Piece> &pieces) {
  if (call.outputs.size() != 1 || call.extra.size() != 1)
    return Outcome::invalid;
  Operand &out = *call.outputs[0];
  int64_t chunks = call.extra[0], row = 0;
  if (chunks < 1 || chunks > std::max<int64_t>(1, out.elements))
    return Outcome::invalid;
  char *to = out.data;
  for (Operand *input : call.inputs) {
    int64_t rows = input->sizes.empty() ? 1 : input->sizes[0], rowElements = rows ? input->elements / rows : 0;
    int64_t elements;
    if (__builtin_mul_overflow(rows / chunks + (rows % chunks != 0), rowElements, &elements) ||
        __builtin_add_overflow(row, elements, &row) || row > out.elements)
      return Outcome::invalid;
    pieces.push_back({input->data, to, chunks, elements, elements, 0, input->elements, input->dtype, out.dtype});
    to += elements * commrt_dtype_size(out.dtype);
  }
  int64_t total;
  if (__builtin_mul_overflow(row, chunks, &total) || total != out.elements)
    return Outcome::invalid;
  for (device::Piece &piece : pieces)
    piece.toPitch = row;
  return Outcome::ran;
}

/// extra: [number of sizes, sizes..., members...]. Output k is piece members[k] of each rank's row. Bytes are copied:
/// the outputs are of the source's type, or the source is of bytes.
Outcome commsched::runtime::planSplitCopy(Call &call, std::vector<device::Piece> &pieces) {
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
    int64_t offset = offsets[members[k]], size = sizes[members[k]];
    pieces.push_back({source.data + offset * width, call.outputs[k]->data, size ? ranks : 0, size, row, size,
                      source.elements - offset, source.dtype, source.dtype});
  }
  return Outcome::ran;
}
