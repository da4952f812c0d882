//===- MemoryBudget.h - Memory limit of a schedule --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one place where `memory-budget-ratio` and `memory-limit-bytes` become a number of bytes. Passes, the pipeline,
// the solver, the peak-preserving rules, the bounds and the report all carry this struct or the number that it gives.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_MEMORYBUDGET_H
#define COMMSCHED_SUPPORT_MEMORYBUDGET_H

#include "CommSched/Support/Arithmetic.h"
#include "CommSched/Support/Units.h"
#include "llvm/Support/Error.h"
#include <optional>

namespace commsched {

/// A limit on bytes that nothing reaches: no sum of the sizes of a valid Problem is larger. It is the only encoding of
/// "no limit" behind the options.
inline constexpr Bytes kUnlimited = kLargestAmount;

/// What a limit on memory is about.
enum class LimitedMemory : uint8_t {
  /// The largest sum of the bytes of buffers that are live together.
  Live,
  /// One arena that holds all buffers of the block at fixed offsets, with the largest workspace beside it: what a
  /// program
  /// with planned buffers allocates.
  Arena,
};

/// What a schedule's peak of live bytes may be. Arguments that live throughout do not count.
struct MemoryBudget {
  /// The part of the input's peak that may be added to it, in millionths; negative if it has to be taken away.
  int64_t ppm = 0;
  /// If set, the limit in bytes, whatever the input's peak is; `ppm` does not count.
  std::optional<Bytes> limit = std::nullopt;

  /// The budget of the options `memory-budget-ratio` (a fraction above -1 and at most 1e6) and `memory-limit-bytes` (-1
  /// for none). Fails, in one line that names the option and its value, if one of them is out of range.
  static llvm::Expected<MemoryBudget> parse(double ratio, int64_t limitBytes);

  /// The highest peak, bytes, of an answer to an input whose peak is `inputPeak`. At most kUnlimited.
  Bytes limitFor(Bytes inputPeak) const;
};

} // namespace commsched

#endif // COMMSCHED_SUPPORT_MEMORYBUDGET_H
