//===- Report.cpp - Reports and options of the emulators --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One line by one system call, then the end: nothing of the broken program runs again.
//
//===------------------------------------------------------------------------------------------===//

#include "Report.h"
#include <cstdlib>
#include <sys/syscall.h>
#include <unistd.h>

namespace emulator {
static thread_local const char *current = nullptr;

InFunction::InFunction(const char *name) : outer(current) { current = name; }
InFunction::~InFunction() { current = outer; }

void report(const std::string &text) {
  std::string line = "emulator: " + (current ? std::string(current) + ": " : std::string()) + text + "\n";
  ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  // The system call itself: a sanitizer would first look at what this thread is in the middle of.
  syscall(SYS_exit_group, written < 0 ? reportedStatus + 1 : reportedStatus);
  __builtin_unreachable();
}

int64_t option(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  if (!text || !*text)
    return otherwise;
  char *end = nullptr;
  int64_t value = strtoll(text, &end, 10);
  if (*end)
    report(std::string("expected an integer in ") + name + ", got '" + text + "'");
  return value;
}

std::string optionText(const char *name, const char *otherwise) {
  const char *text = getenv(name);
  return text && *text ? text : otherwise;
}
} // namespace emulator
