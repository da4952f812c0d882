//===- OutputFile.cpp - Atomically replaced output file ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See OutputFile.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/OutputFile.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Path.h"
#include <fcntl.h>
#include <unistd.h>

using namespace llvm;

/// Temporary names, with a random digit for each percent sign.
static constexpr StringLiteral kTemporary = ".tmp-%%%%%%";

/// Flushes `os` and turns its sticky error, if any, into an Error that names `path`.
static Error finish(raw_fd_ostream &os, StringRef path) {
  os.flush();
  std::error_code code = os.error();
  os.clear_error();
  return code ? createFileError(path, code) : Error::success();
}

/// Writes to a target that a rename cannot replace: a device or a pipe.
static Error writeDirectly(StringRef path, function_ref<Error(raw_ostream &)> write) {
  std::error_code code;
  raw_fd_ostream os(path, code);
  if (code)
    return createFileError(path, code);
  Error failed = write(os);
  return joinErrors(std::move(failed), finish(os, path));
}

#if defined(__linux__) && defined(O_TMPFILE)
/// Opens a file without a name in the folder of `target`, which vanishes with its descriptor, however the process ends.
/// Returns -1 if the file system has no such files, or if the file could not be given a name later.
static int openNameless(StringRef target) {
  StringRef folder = sys::path::parent_path(target);
  int descriptor = ::open(folder.empty() ? "." : folder.str().c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (descriptor >= 0 && ::access(("/proc/self/fd/" + Twine(descriptor)).str().c_str(), F_OK) != 0) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

/// Gives the file the name `target`. A file that has it is replaced by a rename, and only between the two calls the new
/// file, which is complete, bears a temporary name.
static std::error_code nameFile(int descriptor, const std::string &target) {
  std::string source = "/proc/self/fd/" + std::to_string(descriptor);
  if (::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, target.c_str(), AT_SYMLINK_FOLLOW) == 0)
    return {};
  SmallString<256> name;
  do {
    if (errno != EEXIST)
      return errnoAsErrorCode();
    sys::fs::createUniquePath(target + kTemporary, name, /*MakeAbsolute=*/false);
  } while (::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0);
  FileRemover remover(name);
  std::error_code code = sys::fs::rename(name, target);
  if (!code)
    remover.releaseFile();
  return code;
}
#else
static int openNameless(StringRef) { return -1; }
static std::error_code nameFile(int, const std::string &) { return std::make_error_code(std::errc::not_supported); }
#endif

Error commsched::writeWhole(StringRef path, function_ref<Error(raw_ostream &)> write) {
  if (path == "-") {
    Error failed = write(outs());
    outs().flush();
    if (outs().error() == std::errc::broken_pipe)
      return failed;
    return joinErrors(std::move(failed), finish(outs(), "standard output"));
  }

  SmallString<256> target(path);
  sys::fs::file_status status;
  if (!sys::fs::status(path, status)) {
    if (!sys::fs::is_regular_file(status))
      return writeDirectly(path, write);
    // Replaces the target of a symbolic link, not the link, and does not write read-only files.
    if (std::error_code code = sys::fs::access(path, sys::fs::AccessMode::Write))
      return createFileError(path, code);
    if (std::error_code code = sys::fs::real_path(path, target))
      return createFileError(path, code);
  }

  if (int descriptor = openNameless(target); descriptor >= 0) {
    raw_fd_ostream os(descriptor, /*shouldClose=*/true);
    Error failed = write(os);
    failed = joinErrors(std::move(failed), finish(os, path));
    if (failed)
      return failed;
    std::error_code code = nameFile(descriptor, target.str().str());
    return code ? createFileError(path, code) : Error::success();
  }

  Expected<sys::fs::TempFile> temp =
      sys::fs::TempFile::create(target + kTemporary, sys::fs::all_read | sys::fs::all_write);
  if (!temp)
    return createFileError(path, temp.takeError());
  raw_fd_ostream os(temp->FD, /*shouldClose=*/false);
  Error failed = write(os);
  failed = joinErrors(std::move(failed), finish(os, path));
  if (failed)
    return joinErrors(std::move(failed), temp->discard());
  return temp->keep(target);
}
