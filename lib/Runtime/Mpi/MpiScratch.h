//===- MpiScratch.h - Memory for what a reduction receives ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The system takes the pages of a large buffer back when it is freed, and fills those of the next one with zeros, which
// costs more than receiving the data. So buffers are kept for the next reduction of about their size.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_MPI_MPISCRATCH_H
#define COMMSCHED_LIB_RUNTIME_MPI_MPISCRATCH_H

#include <cstdint>
#include <map>
#include <memory>

namespace commsched::runtime {
/// Not synchronised: the job's mutex guards it.
class MpiScratch {
public:
  struct Buffer {
    std::unique_ptr<char[]> data; ///< not initialised
    int64_t bytes = 0;
  };

  /// A buffer of at least that many bytes, and at most twice as many. Without memory, `data` is null.
  Buffer take(int64_t bytes);
  /// Takes a buffer back.
  void giveBack(Buffer buffer);
  /// Bytes that are kept for later.
  int64_t spareBytes() const { return spare; }

private:
  /// Frees kept buffers, the smallest first, until all together have at most as many bytes as were once in use.
  void trim();

  std::multimap<int64_t, std::unique_ptr<char[]>> buffers; ///< kept ones, by their bytes
  int64_t used = 0, peak = 0, spare = 0;                   ///< bytes
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_MPI_MPISCRATCH_H
