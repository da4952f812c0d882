//===- Cache.cpp - Measurements that outlive a process ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// LLVM's file locks and temporary files: write beside the file, flush, rename.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Cache.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>
#include <mutex>
#include <unistd.h>

using namespace commsched;

namespace fs = llvm::sys::fs;

CalibrationCache::CalibrationCache(llvm::StringRef folder, llvm::StringRef fingerprint) : folder(folder) {
  auto digest = llvm::SHA256::hash(llvm::arrayRefFromStringRef(fingerprint));
  llvm::SmallString<128> path(folder);
  llvm::sys::path::append(path, llvm::toHex(digest, /*LowerCase=*/true) + ".json");
  file = path.str().str();
}

std::string CalibrationCache::defaultFolder() {
  if (const char *own = std::getenv("COMMSCHED_CALIBRATION_CACHE"))
    return own;
  llvm::SmallString<128> path;
  if (const char *cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    path = cache;
  else if (llvm::sys::path::home_directory(path))
    llvm::sys::path::append(path, ".cache");
  else
    return "";
  llvm::sys::path::append(path, "commsched");
  return path.str().str();
}

std::optional<std::string> CalibrationCache::load() const {
  auto buffer = llvm::MemoryBuffer::getFile(file);
  if (!buffer)
    return std::nullopt;
  return (*buffer)->getBuffer().str();
}

void CalibrationCache::setAside() const { fs::rename(file, file + ".broken"); }

static llvm::Error failure(const llvm::Twine &what, std::error_code code) {
  return llvm::createStringError(what + ": " + code.message());
}

llvm::Error CalibrationCache::update(llvm::function_ref<std::string(std::optional<std::string>)> merge,
                                     std::chrono::milliseconds deadline) const {
  // Locks of files keep processes apart, not the threads of one process.
  static std::mutex mutex;
  std::lock_guard<std::mutex> guard(mutex);
  if (std::error_code code = fs::create_directories(folder))
    return failure("cannot make the folder '" + folder + "'", code);
  // The lock is a file of its own, which stays: the stored file is replaced, and a lock on it would be lost.
  int lock = -1;
  if (std::error_code code = fs::openFileForReadWrite(file + ".lock", lock, fs::CD_OpenAlways, fs::OF_None, 0600))
    return failure("cannot open '" + file + ".lock'", code);
  if (std::error_code code = fs::tryLockFile(lock, deadline)) {
    fs::file_t handle = fs::convertFDToNativeFile(lock);
    fs::closeFile(handle);
    return failure("'" + file + ".lock' is held by another process", code);
  }
  llvm::Error result = llvm::Error::success();
  llvm::Expected<fs::TempFile> made = fs::TempFile::create(file + ".%%%%%%", 0600);
  if (!made) {
    result = made.takeError();
  } else {
    {
      llvm::raw_fd_ostream os(made->FD, /*shouldClose=*/false);
      os << merge(load());
      os.flush();
      if (os.has_error()) {
        result = failure("cannot write '" + made->TmpName + "'", os.error());
        os.clear_error();
      }
    }
    if (!result && ::fsync(made->FD) != 0)
      result = failure("cannot write '" + made->TmpName + "'", llvm::errnoAsErrorCode());
    result = llvm::joinErrors(std::move(result), result ? made->discard() : made->keep(file));
  }
  fs::unlockFile(lock);
  fs::file_t handle = fs::convertFDToNativeFile(lock);
  fs::closeFile(handle);
  return result;
}
