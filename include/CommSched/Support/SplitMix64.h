//===- SplitMix64.h - Numbers that are equal on every machine -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Steele, Lea and Flood's SplitMix64 ("Fast splittable pseudorandom number generators", OOPSLA 2014): the search, the
// values of comm-run's arguments, and tests draw from it, because the standard library's distributions differ between
// implementations. The runtime, which links no library of this project, has its own mixing function in Core.h.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_SPLITMIX64_H
#define COMMSCHED_SUPPORT_SPLITMIX64_H

#include <cstdint>

namespace commsched {

/// A sequence of 64-bit numbers that its seed decides.
class SplitMix64 {
public:
  explicit constexpr SplitMix64(uint64_t seed) : state(seed) {}

  constexpr uint64_t next() { return finish(state += kIncrement); }

  /// Uniform in [0, bound), up to a bias of bound / 2^64; 0 if bound <= 0.
  constexpr int64_t below(int64_t bound) {
    return bound <= 0 ? 0 : static_cast<int64_t>(next() % static_cast<uint64_t>(bound));
  }

  /// Mixes `value` into `hash`, for values that follow from several numbers.
  static constexpr uint64_t mix(uint64_t hash, uint64_t value) {
    return finish(hash * kIncrement + value + 0x632be59bd9b4e019ull);
  }

private:
  static constexpr uint64_t kIncrement = 0x9e3779b97f4a7c15ull;

  static constexpr uint64_t finish(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

  uint64_t state;
};

} // namespace commsched

#endif // COMMSCHED_SUPPORT_SPLITMIX64_H
