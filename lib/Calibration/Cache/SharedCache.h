//===- SharedCache.h - A cache that all ranks of a job share ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_CALIBRATION_CACHE_SHAREDCACHE_H
#define COMMSCHED_LIB_CALIBRATION_CACHE_SHAREDCACHE_H

#include "CommSched/Calibration/Bench.h"
#include "CommSched/Calibration/Cache.h"

namespace commsched {

/// A cache file of which rank 0 alone reads and writes. What goes wrong with it is a warning and stops nothing.
class SharedCache {
public:
  /// Keeps references to all; `cache` may be null.
  SharedCache(Bench &bench, const CalibrationCache *cache, std::vector<std::string> &warnings)
      : bench(bench), cache(cache), warnings(warnings) {}

  /// Gives the text that rank 0's file holds to `take` on all ranks, unless there is none or `fresh` is set. If `take`
  /// returns an error, the file is set aside. Collective over all ranks; the error says that they could not be reached.
  llvm::Error read(bool fresh, llvm::function_ref<llvm::Error(llvm::StringRef)> take);
  /// The same with a text of rank 0 that no file holds.
  llvm::Error share(const std::string &text, llvm::function_ref<llvm::Error(llvm::StringRef)> take);
  /// On rank 0: replaces the file by `merge(what other processes have stored meanwhile)`.
  void write(llvm::function_ref<std::string(std::optional<std::string>)> merge);

private:
  llvm::Error give(const std::string &text, bool isStored, llvm::function_ref<llvm::Error(llvm::StringRef)> take);

  Bench &bench;
  const CalibrationCache *cache;
  std::vector<std::string> &warnings;
};

} // namespace commsched

#endif // COMMSCHED_LIB_CALIBRATION_CACHE_SHAREDCACHE_H
