//===- Cache.h - Measurements that outlive a process ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One file per fingerprint of machine, library and ranks. A file appears whole or not at all; a file that cannot be
// read is set aside, and measuring goes on without it. Nothing here is an error of a calibration: what cannot be cached
// is said.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_CACHE_H
#define COMMSCHED_CALIBRATION_CACHE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <chrono>
#include <optional>
#include <string>

namespace commsched {

class CalibrationCache {
public:
  /// `folder` is made when something is stored. `fingerprint` is any text; its SHA-256 is the file's name.
  CalibrationCache(llvm::StringRef folder, llvm::StringRef fingerprint);

  /// COMMSCHED_CALIBRATION_CACHE, else $XDG_CACHE_HOME/commsched, else ~/.cache/commsched; empty where there is no
  /// home.
  static std::string defaultFolder();

  const std::string &path() const { return file; }
  /// The stored text; none if there is none.
  std::optional<std::string> load() const;
  /// Renames the stored file to PATH.broken, so that nobody reads it again.
  void setAside() const;
  /// Replaces the stored text by `merge(text now stored)`, under a lock that other processes respect. The file has mode
  /// 0600. The error says what failed: no folder, a lock that others hold beyond `deadline`, a disk that is full.
  llvm::Error update(llvm::function_ref<std::string(std::optional<std::string>)> merge,
                     std::chrono::milliseconds deadline) const;

private:
  std::string folder, file;
};

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_CACHE_H
