//===- Main.cpp - The executable of a tool ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Compiled once for each tool, with COMMSCHED_TOOL_MAIN as its function. See Mains.h.
//
//===------------------------------------------------------------------------------------------===//

#include "Mains.h"

int main(int argc, char **argv) { return COMMSCHED_TOOL_MAIN(argc, argv); }
