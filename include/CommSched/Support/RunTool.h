//===- RunTool.h - Frame of the command-line tools --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A reader of the standard streams may end before the tool does, as in `comm-opt in.mlir -o out.mlir 2>&1 | head`. The
// signal SIGPIPE would then end the tool in the middle of its work, before it has written the files that were asked
// for.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_SUPPORT_RUNTOOL_H
#define COMMSCHED_SUPPORT_RUNTOOL_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CommandLine.h"
#include <functional>
#include <initializer_list>

namespace commsched {

/// The exit code of a tool that did its work, but whose standard output was closed by the reader before all was
/// written. A shell reports the same number for a process that SIGPIPE ended.
inline constexpr int kClosedOutput = 128 + 13;

/// Returns true if the command line requests the short help, in which upstream's passes do not appear.
bool asksForShortHelp(int argc, char **argv);

/// Hides the options that libraries have registered so far, except --help and --version, so that --help lists those
/// that a tool adds from here on; --help-hidden still lists all.
void hideInheritedOptions();

/// The options of a tool, which the parser knows only when that tool runs: the Python package holds all tools in one
/// library, and options of several of them have one name. A static object, behind the options in their file.
class OwnOptions {
public:
  /// Takes all options of the category, and those without a name, from the parser.
  OwnOptions(llvm::cl::OptionCategory &category,
             std::initializer_list<std::reference_wrapper<llvm::cl::Option>> positional = {});

  /// Adds the options to the parser, and hides all others from --help.
  void offer();

private:
  llvm::cl::OptionCategory &category;
  llvm::SmallVector<llvm::cl::Option *> options;
};

/// Initializes LLVM, makes --version print the project's version, and returns what `work` returns: the exit code of the
/// tool. A closed standard stream does not end the process: `work` goes on and writes its files. If the standard output
/// was closed and `work` returned 0, the result is kClosedOutput. What the standard error stream loses does not matter.
/// Nothing is printed about either. To be called once, by `main`.
int runTool(int argc, char **argv, llvm::function_ref<int(int argc, char **argv)> work);

} // namespace commsched

#endif // COMMSCHED_SUPPORT_RUNTOOL_H
