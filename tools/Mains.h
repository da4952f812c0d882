//===- Mains.h - The entries of the tools -----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The Python package holds all tools in one library, since each would bring the same 80 MB of MLIR and LLVM. So each
// tool is a function that parses the arguments and returns the exit code, and its executable (Main.cpp) only calls it.
// One of them may be called, once per process.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TOOLS_MAINS_H
#define COMMSCHED_TOOLS_MAINS_H

extern "C" {
int commschedCalibrateMain(int argc, char **argv);
int commschedHloMain(int argc, char **argv);
int commschedLspServerMain(int argc, char **argv);
int commschedOptMain(int argc, char **argv);
int commschedPlaceMain(int argc, char **argv);
int commschedReduceMain(int argc, char **argv);
int commschedRunMain(int argc, char **argv);
int commschedVerifySpmdMain(int argc, char **argv);
}

#endif // COMMSCHED_TOOLS_MAINS_H
