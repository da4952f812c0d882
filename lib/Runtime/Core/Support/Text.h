//===- Text.h - Texts that cross the C ABI ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Messages go into buffers of the caller, cut to their size.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_TEXT_H
#define COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_TEXT_H

#include <algorithm>
#include <cstring>
#include <string>

namespace commsched::runtime {
/// Writes at most size - 1 characters and a terminating zero, and nothing where there is no room. Returns the number of
/// characters.
inline size_t copyText(const std::string &from, char *to, size_t size) {
  if (!to || size == 0)
    return 0;
  size_t length = std::min(from.size(), size - 1);
  std::memcpy(to, from.data(), length);
  to[length] = 0;
  return length;
}
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_TEXT_H
