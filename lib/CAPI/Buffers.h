//===- Buffers.h - Texts that are handed to callers of the C API -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_CAPI_BUFFERS_H
#define COMMSCHED_LIB_CAPI_BUFFERS_H

#include "CommSched-c/CommSched.h"
#include "llvm/ADT/StringRef.h"
#include <cstdlib>
#include <cstring>

namespace commsched {

/// A copy of the bytes with a zero behind them, which commschedBufferDestroy frees; {null, 0} if there is no memory.
inline CommSchedBuffer toBuffer(llvm::StringRef bytes) {
  CommSchedBuffer buffer = {static_cast<char *>(std::malloc(bytes.size() + 1)), bytes.size()};
  if (!buffer.data)
    return {nullptr, 0};
  if (!bytes.empty())
    std::memcpy(buffer.data, bytes.data(), bytes.size());
  buffer.data[bytes.size()] = 0;
  return buffer;
}

} // namespace commsched

#endif // COMMSCHED_LIB_CAPI_BUFFERS_H
