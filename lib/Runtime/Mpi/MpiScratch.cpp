//===- MpiScratch.cpp - Memory for what a reduction receives ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Buffers are found by their size.
//
//===------------------------------------------------------------------------------------------===//

#include "MpiScratch.h"
#include <algorithm>
#include <new>
#include <utility>

using namespace commsched::runtime;

MpiScratch::Buffer MpiScratch::take(int64_t bytes) {
  Buffer result;
  auto found = buffers.lower_bound(bytes);
  if (found != buffers.end() && found->first / 2 <= bytes) {
    result = {std::move(found->second), found->first};
    spare -= found->first;
    buffers.erase(found);
  } else {
    result = {std::unique_ptr<char[]>(new (std::nothrow) char[bytes]), bytes};
    if (!result.data)
      return {};
  }
  used += result.bytes;
  peak = std::max(peak, used);
  trim();
  return result;
}

void MpiScratch::giveBack(Buffer buffer) {
  used -= buffer.bytes;
  spare += buffer.bytes;
  buffers.emplace(buffer.bytes, std::move(buffer.data));
  trim();
}

void MpiScratch::trim() {
  while (used + spare > peak) {
    spare -= buffers.begin()->first;
    buffers.erase(buffers.begin());
  }
}
