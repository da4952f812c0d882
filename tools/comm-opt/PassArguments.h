//===- PassArguments.h - Messages about misspelt options of passes ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// `--comm-schedule=efort=3`: MLIR says that there is no such option. This says which one was probably meant.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TOOLS_COMMOPT_PASSARGUMENTS_H
#define COMMSCHED_TOOLS_COMMOPT_PASSARGUMENTS_H

#include "llvm/ADT/StringRef.h"
#include <string>
#include <vector>

namespace commsched {

/// The names of the options of a registered pass, without those of lists; empty if there is no such pass.
std::vector<std::string> optionNamesOf(llvm::StringRef pass);

/// What is wrong with the names of the options in `--PASS=OPTIONS`, or with the text in `--pass-pipeline=TEXT`; empty
/// if nothing is, or if `argument` is something else. The passes have to be registered.
std::string checkPassArgument(llvm::StringRef argument);

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMOPT_PASSARGUMENTS_H
