//===- Units.h - The units that every model of the project counts in --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Times and sizes are 64-bit integers, so that equal input gives equal output on every rank, bit for bit.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_UNITS_H
#define COMMSCHED_SUPPORT_UNITS_H

#include <algorithm>
#include <cstdint>

namespace commsched {

/// A size or an amount of traffic, in bytes.
using Bytes = int64_t;

/// A time or a duration, in nanoseconds.
using Ns = int64_t;

/// The tighter of two limits on a size, bytes; a negative one is no limit.
inline Bytes tighterCap(Bytes a, Bytes b) { return a < 0 ? b : b < 0 ? a : std::min(a, b); }

} // namespace commsched

#endif // COMMSCHED_SUPPORT_UNITS_H
