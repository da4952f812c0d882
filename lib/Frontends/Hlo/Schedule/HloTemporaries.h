//===- HloTemporaries.h - Estimate of XLA's temporary memory for an order ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The peak of live bytes is what no assignment can go below. XLA's own number differs in two ways: it puts temporaries
// where a result is going to be, as long as that result is not there yet, and what is left goes to fixed offsets in one
// arena, with holes. Both depend on the order, so an order with a lower peak may need more.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_HLOTEMPORARIES_H
#define COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_HLOTEMPORARIES_H

#include "CommSched/Frontends/Hlo/Schedule/HloScheduler.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <optional>

namespace commsched::hlo {

/// Bytes of temporaries that XLA's buffer assignment finds for a module, about: the rules are those of BufferAssigner
/// (temporaries by decreasing size into the memory of results) and of GlobalDecreasingSizeBestFitHeap (the better one
/// of placing large buffers first and of placing long-lived ones first). `sequences` has other orders by computation;
/// an empty one, or none, is the module's own. None if the module has more than kMaxPlacedBuffers temporaries, or some
/// that no memory holds. O(instructions log + buffers^2), of which the square is bounded by kMaxPlacedBuffers.
std::optional<Bytes> temporariesOf(const HloModule &module, llvm::ArrayRef<std::vector<int32_t>> sequences = {});

/// Limit on the number of buffers that are placed: some tenths of a second.
inline constexpr size_t kMaxPlacedBuffers = 8192;

/// A limit on the temporaries of what is made of a module, by temporariesOf().
class TemporariesLimit {
public:
  /// The temporaries of the given module, what the options allow, and a tolerance. The tolerance is
  /// wider if the program runs loops, where the estimate is further off (docs/research/results/jax.md).
  TemporariesLimit(const HloModule &module, const HloOptions &options);

  /// The temporaries of an answer above the limit, in millionths of the limit; 0 if they are within it.
  /// O(temporariesOf).
  int64_t excessPpm(const HloModule &answer, llvm::ArrayRef<std::vector<int32_t>> sequences = {}) const;

private:
  std::optional<Bytes> limit;
};

/// Reduction of the next limit beyond the excess, in millionths. In the programs of
/// benchmarks/jax_overlap.py, lower steps give orders with the same holes, and 2 % cost no time.
inline constexpr int64_t kSqueezeStepPpm = 20'000;

/// Effort of a short search. Among 33 modules of random programs, three had no answer that fitted at the default
/// effort, nor with less live memory, and all three had one at this effort.
inline constexpr int64_t kShortEffort = 10'000;

/// What a search came to: an answer that is taken, one whose temporaries are too many by `excessPpm`, or none that is
/// faster.
struct TemporariesOutcome {
  bool isFaster = false;
  /// See TemporariesLimit::excessPpm().
  int64_t excessPpm = 0;
};

/// Calls `search` until XLA has room for its answer: with the options as they are, with less live memory, and both once
/// more with a short search, whose answers leave other holes. Returns whether one was taken. Fails if a search does.
llvm::Expected<bool>
searchWithinTemporaries(const HloOptions &options,
                        llvm::function_ref<llvm::Expected<TemporariesOutcome>(const HloOptions &)> search);

/// Reduction of the limits of a search after one whose answer was `excess` bytes above `limit`, in millionths.
inline int64_t squeezeFor(Bytes excess, Bytes limit) {
  return std::min<int64_t>(mulDivUp(excess, kMillion, std::max<Bytes>(limit, 1)) + kSqueezeStepPpm, kMillion);
}

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_HLOTEMPORARIES_H
