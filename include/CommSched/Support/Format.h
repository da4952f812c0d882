//===- Format.h - Sizes and times as text -----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The format of bytes and nanoseconds in reports, remarks and diagnostics.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_FORMAT_H
#define COMMSCHED_SUPPORT_FORMAT_H

#include "CommSched/Support/Units.h"
#include <string>

namespace commsched {

/// "4.91 GiB", "1.50 ms": three significant digits.
std::string formatBytes(Bytes bytes);
std::string formatNs(Ns ns);

/// "2.38 %" for the fraction 0.02376: two decimals, rounded up, for what is at most that.
std::string formatAtMost(double fraction);

} // namespace commsched

#endif // COMMSCHED_SUPPORT_FORMAT_H
