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

/// A sum over words, so that devices may take them in any order.
static uint64_t digest(const Operand &operand) {
  int64_t bytes = operand.bytes(), i = 0;
  uint64_t word, sum = mix(~uint64_t(0), bytes);
  for (; i * 8 + 8 <= bytes; ++i) {
    std::memcpy(&word, operand.data + i * 8, 8);
    sum += mix(i, word);
  }
  word = 0;
  if (bytes > i * 8) {
    std::memcpy(&word, operand.data + i * 8, bytes - i * 8);
    sum += mix(i, word);
  }
  return sum;
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

uint64_t commsched::runtime::hashOfName(std::string_view name) {
  uint64_t hash = 0;
  for (char c : name)
    hash = mix(hash, static_cast<unsigned char>(c));
  return hash;
}

void commsched::runtime::runOpaque(Call &call) {
  uint64_t hash = hashOfName(call.name);
  for (Operand *input : call.inputs)
    hash = mix(hash, digest(*input));
  uint64_t number = 0;
  for (auto *list : {&call.mutated, &call.outputs})
    for (Operand *operand : *list)
      fill(*operand, mix(hash, ++number));
}
