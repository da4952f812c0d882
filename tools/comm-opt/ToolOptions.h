//===- ToolOptions.h - What comm-opt's command line shows -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// libLLVM brings about five hundred options of its own, and MLIR brings hundreds of passes. `--help` shows what a user
// of this project needs; `--help-hidden` shows the rest.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TOOLS_COMMOPT_TOOLOPTIONS_H
#define COMMSCHED_TOOLS_COMMOPT_TOOLOPTIONS_H

namespace llvm::cl {
class OptionCategory;
} // namespace llvm::cl

namespace commsched {

/// The category of the project's own options, which --help shows first.
llvm::cl::OptionCategory &projectOptions();

/// Whether the command line asks for the short help, in which upstream's passes do not appear.
bool asksForShortHelp(int argc, char **argv);

/// Puts the project's own options, the list of passes among them, into their category, and hides every other registered
/// option that is not one of MLIR's common ones. To be called after all options are registered and before the command
/// line is parsed.
void hideUncommonOptions();

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMOPT_TOOLOPTIONS_H
