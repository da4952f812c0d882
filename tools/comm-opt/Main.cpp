//===- Main.cpp - The executable comm-opt -----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See OptMain.h.
//
//===------------------------------------------------------------------------------------------===//

#include "OptMain.h"

int main(int argc, char **argv) { return commschedOptMain(argc, argv); }
