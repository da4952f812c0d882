//===- Units.h - The units that every model of the project counts in --------------------------===//
//
// Times and sizes are 64-bit integers, so that equal input gives equal output on every rank, bit for bit.
//
//===-----------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_UNITS_H
#define COMMSCHED_SUPPORT_UNITS_H

#include <cstdint>

namespace commsched {

/// A size or an amount of traffic, in bytes.
using Bytes = int64_t;

/// A time or a duration, in nanoseconds.
using Ns = int64_t;

} // namespace commsched

#endif // COMMSCHED_SUPPORT_UNITS_H
