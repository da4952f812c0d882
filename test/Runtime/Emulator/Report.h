//===- Report.h - Reports and options of the emulators ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rule that is broken ends the process with one line, so that no test can overlook it.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_REPORT_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_REPORT_H

#include <cstdint>
#include <string>

namespace emulator {

/// The exit status of a process that broke a rule.
constexpr int reportedStatus = 97;

/// Writes "emulator: <function>: <text>" to standard error and leaves the process at once with `reportedStatus`.
[[noreturn]] void report(const std::string &text);

/// The vendor's function that this thread is in, for report(). Restores the caller's on destruction.
class InFunction {
public:
  explicit InFunction(const char *name);
  ~InFunction();
  InFunction(const InFunction &) = delete;
  InFunction &operator=(const InFunction &) = delete;

private:
  const char *outer;
};

/// An integer of the environment, or the given value.
int64_t option(const char *name, int64_t otherwise);
/// A text of the environment, or the given one.
std::string optionText(const char *name, const char *otherwise);

} // namespace emulator

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_REPORT_H
