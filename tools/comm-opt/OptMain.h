//===- OptMain.h - The entry of comm-opt ------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The Python package holds comm-opt in its library, so the tool is a function, and its executable only calls it.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TOOLS_OPTMAIN_H
#define COMMSCHED_TOOLS_OPTMAIN_H

/// All of comm-opt: parses the arguments, and returns the exit code. May be called once per process.
extern "C" int commschedOptMain(int argc, char **argv);

#endif // COMMSCHED_TOOLS_OPTMAIN_H
