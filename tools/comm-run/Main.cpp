//===- Main.cpp - The executable comm-run -----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See RunMain.h.
//
//===------------------------------------------------------------------------------------------===//

#include "RunMain.h"

int main(int argc, char **argv) { return commschedRunMain(argc, argv); }
