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

#include <cstdint>

namespace commsched {

/// A size or an amount of traffic, in bytes.
using Bytes = int64_t;

/// A time or a duration, in nanoseconds.
using Ns = int64_t;

} // namespace commsched

#endif // COMMSCHED_SUPPORT_UNITS_H
