//===- ProgramCall.h - The call of a program's entry ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_EXECUTION_PROGRAMCALL_H
#define COMMSCHED_LIB_EXECUTION_PROGRAMCALL_H

#include "CommSched/Execution/Program.h"
#include "DeviceMemory.h"

namespace commsched {

/// The call of a program's entry on one rank: arguments and room for results as compiled code takes them. It is
/// prepared once and may be made any number of times.
class ProgramCall {
public:
  /// All outlive this object.
  ProgramCall(const Program &program, commrt_context *context, std::vector<HostValue> &arguments);
  ProgramCall(const ProgramCall &) = delete;
  ProgramCall &operator=(const ProgramCall &) = delete;

  /// On a device, copies the arguments there. Returns the runtime's status.
  int32_t create();
  /// Makes the call. An error latches in the context.
  void invoke() { program.entryFunction(packed.data()); }
  /// Copies the results of the last call.
  llvm::Error readResults(std::vector<HostValue> &results) const;
  /// On a device, copies the arguments back and releases the memory there. Returns the runtime's status.
  int32_t fetchArguments() { return memory.fetch(); }

private:
  const Program &program;
  commrt_context *context;
  std::vector<HostValue> &arguments;
  ArgumentMemory memory;
  /// Descriptors of buffers, and their addresses. Indexed by argument.
  std::vector<std::vector<int64_t>> descriptors;
  std::vector<void *> pointers;
  /// The results in one struct, each member naturally aligned, and the offset of each.
  std::vector<int64_t> storage;
  std::vector<size_t> offsets;
  void *resultPointer = nullptr;
  bool returnsByValue = false;
  /// What the packed form of the entry takes: addresses of its arguments and of its result.
  std::vector<void *> packed;
};

} // namespace commsched

#endif // COMMSCHED_LIB_EXECUTION_PROGRAMCALL_H
