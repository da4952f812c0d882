//===- OpaqueKernel.cpp - Computations without a kernel ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Outputs depend on the name and on each bit of the inputs, so that any wrong order, lost wait or wrong buffer shows in
// the results.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include "Kernels.h"
#include <algorithm>
#include <cstring>

using namespace commsched::runtime;

static uint64_t digest(uint64_t hash, const Operand &operand) {
  int64_t bytes = operand.bytes(), i = 0;
  uint64_t word;
  for (; i + 8 <= bytes; i += 8) {
    std::memcpy(&word, operand.data + i, 8);
    hash = mix(hash, word);
  }
  word = 0;
  if (bytes > i)
    std::memcpy(&word, operand.data + i, bytes - i);
  return mix(mix(hash, word), bytes);
}

/// Small values that every type holds exactly, different for each element.
static void fill(Operand &operand, uint64_t seed) {
  constexpr int64_t most = 512;
  double block[most];
  for (int64_t begin = 0; begin < operand.elements; begin += most) {
    int64_t count = std::min(most, operand.elements - begin);
    for (int64_t i = 0; i < count; ++i) {
      auto bits = static_cast<int64_t>(mix(seed, begin + i) >> 57); // 0..127
      block[i] = operand.isFloat() ? static_cast<double>(bits - 64) / 64 : static_cast<double>(bits & 7);
    }
    storeElements(operand, begin, count, block);
  }
}

void commsched::runtime::runOpaque(Call &call) {
  uint64_t hash = 0;
  for (char c : call.name)
    hash = mix(hash, static_cast<unsigned char>(c));
  for (Operand *input : call.inputs)
    hash = digest(hash, *input);
  uint64_t number = 0;
  for (auto *list : {&call.mutated, &call.outputs})
    for (Operand *operand : *list)
      fill(*operand, mix(hash, ++number));
}
