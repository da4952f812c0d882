//===- EstimateStore.h - Measured times by name, kept for later runs --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What was measured of computations and of contention, each under a text that says what it is. All ranks hold the same
// times. Rank 0 alone reads and writes the cache.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_ESTIMATESTORE_H
#define COMMSCHED_CALIBRATION_ESTIMATESTORE_H

#include "CommSched/Calibration/Bench.h"
#include "CommSched/Calibration/Cache.h"
#include "CommSched/Calibration/Statistics.h"
#include <map>

namespace commsched {

/// A time that all ranks agreed on.
struct StoredEstimate {
  Estimate time;
  /// Medians of the ranks lay more than a tenth apart.
  bool isSkewed = false;
};

class EstimateStore {
public:
  /// Keeps references to the bench and the cache, which may be null. `fingerprint` is the same on all ranks.
  EstimateStore(Bench &bench, const CalibrationCache *cache, llvm::StringRef fingerprint)
      : bench(bench), cache(cache), fingerprint(fingerprint) {}

  /// Reads what the cache has, unless `fresh`. Collective over all ranks.
  llvm::Error load(bool fresh);

  /// What is known under this text. O(log n).
  std::optional<StoredEstimate> find(const std::string &key) const;
  /// Keeps a time, on rank 0 also in the cache.
  void put(const std::string &key, const StoredEstimate &estimate);

  /// What went wrong with the cache. Nothing of it stops a calibration.
  const std::vector<std::string> &getWarnings() const { return warnings; }

private:
  std::string toText(const std::map<std::string, StoredEstimate> &all) const;
  llvm::Expected<std::map<std::string, StoredEstimate>> parse(llvm::StringRef text) const;

  Bench &bench;
  const CalibrationCache *cache;
  std::string fingerprint;
  std::map<std::string, StoredEstimate> known;
  std::vector<std::string> warnings;
};

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_ESTIMATESTORE_H
