//===- MemoryBudget.cpp - Memory limit of a schedule ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// From the two options to the number.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/MemoryBudget.h"
#include "llvm/Support/FormatVariadic.h"
#include <algorithm>
#include <cmath>

using namespace commsched;

llvm::Expected<MemoryBudget> MemoryBudget::parse(double ratio, int64_t limitBytes) {
  constexpr double kLargestRatio = 1e6;
  // A NaN fails both comparisons.
  if (!(ratio > -1 && ratio <= kLargestRatio))
    return llvm::createStringError(
        llvm::formatv("memory-budget-ratio={0}: expected a fraction above -1 and at most 1e6", ratio).str());
  if (limitBytes < -1)
    return llvm::createStringError(
        llvm::formatv("memory-limit-bytes={0}: expected a number of bytes, or -1 for no limit", limitBytes).str());
  MemoryBudget budget;
  budget.ppm = std::llround(ratio * static_cast<double>(kMillion));
  if (limitBytes >= 0)
    budget.limit = limitBytes;
  return budget;
}

Bytes MemoryBudget::limitFor(Bytes inputPeak) const {
  // Neither term of the sum is beyond kLargestAmount, so that it does not overflow.
  return std::min(limit ? *limit : inputPeak + mulDiv(inputPeak, ppm, kMillion), kUnlimited);
}
