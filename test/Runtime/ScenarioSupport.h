//===- ScenarioSupport.h - Messages and waits of scenario processes ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A script reads the lines of the ranks' outputs and answers on their inputs, so that events decide about the order of
// what happens in several processes, and no clock.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TEST_RUNTIME_SCENARIOSUPPORT_H
#define COMMSCHED_TEST_RUNTIME_SCENARIOSUPPORT_H

#include <cstdio>
#include <cstdlib>
#include <string>

namespace commsched::test {

/// Writes a line that the script sees at once.
inline void say(const std::string &text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

/// Waits for a line from the script. Ends the process if there is none.
inline void awaitWord() {
  char line[64];
  if (!std::fgets(line, sizeof(line), stdin))
    std::exit(2);
}

} // namespace commsched::test

#endif // COMMSCHED_TEST_RUNTIME_SCENARIOSUPPORT_H
