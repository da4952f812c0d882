//===- Count.h - Numbers of things as text ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// How reports, remarks and diagnostics count.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_COUNT_H
#define COMMSCHED_SUPPORT_COUNT_H

#include <cstdint>
#include <string>

namespace commsched {

/// "1 operation", "2 operations"; with `rest`, "1 collective keeps" of ("collective", " keeps", " keep").
inline std::string formatCount(int64_t number, const std::string &thing, const char *restOfOne = "",
                               const char *restOfMany = "") {
  return std::to_string(number) + " " + thing + (number == 1 ? restOfOne : std::string("s") + restOfMany);
}

} // namespace commsched

#endif // COMMSCHED_SUPPORT_COUNT_H
