//===- OutputFile.h - Atomically replaced output file -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// llvm::ToolOutputFile truncates its file when it is opened and removes it on failure. `comm-opt x.mlir -o x.mlir`
// would then read a file that has just been emptied, and a failing pass would delete the user's input. This one writes
// to a file without a name, which replaces the target on success and vanishes if the process ends before, even by
// SIGKILL. On file systems without such files (O_TMPFILE of Linux) the file has a temporary name, and SIGKILL leaves
// it.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_SUPPORT_OUTPUTFILE_H
#define COMMSCHED_SUPPORT_OUTPUTFILE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace commsched {

/// Calls `write` with a stream whose contents replace `path` on success; otherwise `path` does not change. "-" is the
/// standard output; that its reader has gone away is no failure, but stays as an error of llvm::outs(), which runTool()
/// reads. An existing path that is not a regular file (a device, a pipe) is written directly. Fails before it
/// calls `write` if `path` cannot be written.
llvm::Error writeWhole(llvm::StringRef path, llvm::function_ref<llvm::Error(llvm::raw_ostream &)> write);

} // namespace commsched

#endif // COMMSCHED_SUPPORT_OUTPUTFILE_H
