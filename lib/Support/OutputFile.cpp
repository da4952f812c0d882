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

using namespace llvm;

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

Error commsched::writeWhole(StringRef path, function_ref<Error(raw_ostream &)> write) {
  if (path == "-") {
    Error failed = write(outs());
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

  Expected<sys::fs::TempFile> temp =
      sys::fs::TempFile::create(target + ".tmp-%%%%%%", sys::fs::all_read | sys::fs::all_write);
  if (!temp)
    return createFileError(path, temp.takeError());
  raw_fd_ostream os(temp->FD, /*shouldClose=*/false);
  Error failed = write(os);
  failed = joinErrors(std::move(failed), finish(os, path));
  if (failed)
    return joinErrors(std::move(failed), temp->discard());
  return temp->keep(target);
}
