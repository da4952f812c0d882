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

/// Nothing more can be done about it if the rename fails: the file is read again, and refused again.
void CalibrationCache::setAside() const { [[maybe_unused]] std::error_code code = fs::rename(file, file + ".broken"); }

static llvm::Error failure(const llvm::Twine &what, std::error_code code) {
  return llvm::createStringError(what + ": " + code.message());
}

namespace {
/// A lock on a file of its own, which stays: the stored file is replaced, and a lock on it would be lost with it.
class FileLock {
public:
  FileLock() = default;
  FileLock(const FileLock &) = delete;
  FileLock &operator=(const FileLock &) = delete;
  /// Closing the file releases the lock.
  ~FileLock() {
    if (descriptor >= 0)
      ::close(descriptor);
  }

  llvm::Error take(const std::string &path, std::chrono::milliseconds deadline) {
    if (std::error_code code = fs::openFileForReadWrite(path, descriptor, fs::CD_OpenAlways, fs::OF_None, 0600))
      return failure("cannot open '" + path + "'", code);
    if (std::error_code code = fs::tryLockFile(descriptor, deadline))
      return failure("'" + path + "' is held by another process", code);
    return llvm::Error::success();
  }

private:
  int descriptor = -1;
};
} // namespace

/// Writes all of `text` to the file and to the disk.
static std::error_code writeThrough(int descriptor, llvm::StringRef text) {
  llvm::raw_fd_ostream os(descriptor, /*shouldClose=*/false);
  os << text;
  os.flush();
  std::error_code code = os.error();
  os.clear_error();
  return code || ::fsync(descriptor) == 0 ? code : llvm::errnoAsErrorCode();
}

/// Writes beside the file, then renames.
static llvm::Error replaceFile(const std::string &path, llvm::StringRef text) {
  llvm::Expected<fs::TempFile> made = fs::TempFile::create(path + ".%%%%%%", 0600);
  if (!made)
    return made.takeError();
  if (std::error_code code = writeThrough(made->FD, text))
    return llvm::joinErrors(failure("cannot write '" + made->TmpName + "'", code), made->discard());
  return made->keep(path);
}

llvm::Error CalibrationCache::update(llvm::function_ref<std::string(std::optional<std::string>)> merge,
                                     std::chrono::milliseconds deadline) const {
  // Locks of files keep processes apart, not the threads of one process.
  static std::mutex mutex;
  std::lock_guard<std::mutex> guard(mutex);
  if (std::error_code code = fs::create_directories(folder))
    return failure("cannot make the folder '" + folder + "'", code);
  FileLock lock;
  if (llvm::Error error = lock.take(file + ".lock", deadline))
    return error;
  return replaceFile(file, merge(load()));
}
