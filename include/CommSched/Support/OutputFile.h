//===- OutputFile.h - An output file that appears whole or not at all -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// llvm::ToolOutputFile truncates its file when it is opened and removes it on failure. `comm-opt x.mlir -o x.mlir`
// would then read a file that has just been emptied, and a failing pass would delete the user's input. This one writes
// beside the target and renames over it on success.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_SUPPORT_OUTPUTFILE_H
#define COMMSCHED_SUPPORT_OUTPUTFILE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace commsched {

/// Calls `write` with a stream that ends up in `path` if it succeeds; otherwise `path` keeps what it had. "-" is the
/// standard output. A path that exists and is no regular file (a device, a pipe) is written directly. Whether `path`
/// can be written is checked before `write` is called.
llvm::Error writeWhole(llvm::StringRef path, llvm::function_ref<llvm::Error(llvm::raw_ostream &)> write);

} // namespace commsched

#endif // COMMSCHED_SUPPORT_OUTPUTFILE_H
