//===- ToolOptions.h - Help text of comm-opt --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// libLLVM adds about five hundred options, and MLIR adds hundreds of passes. `--help` shows the options of this
// project; `--help-hidden` shows all others.
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

/// Moves the project's own options, including the list of passes, into their category, and hides every other registered
/// option that is not one of MLIR's common ones. Call it after all options are registered and before the command line
/// is parsed.
void hideUncommonOptions();

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMOPT_TOOLOPTIONS_H
