//===- NcclFault.cpp - Faults on demand in the emulated NCCL ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL_EMU_FAULT has any of these, separated by semicolons. Ranks are those of the first communicator, and calls are
// counted for each rank from 1 over all its communicators.
//
//     lose:RANK:CALL        from this call on, the rank's operations wait for ever
//     error:RANK:CALL       this call returns ncclSystemError
//     remote:RANK:CALL      from this call on, ncclCommGetAsyncError gives ncclRemoteError
//     late:RANK:CALL        from this call on, calls of a communicator that does not block stay in progress, and are
//     put
//                           on their streams when it is revoked or aborted: by then a thread of NCCL's may do so
//     hang-abort:RANK       ncclCommAbort does not return
//     hang-revoke:RANK      a communicator that is revoked stays in progress
//
//===------------------------------------------------------------------------------------------===//

#include "NcclComm.h"
#include <cstdio>

namespace emulator {
static std::vector<Fault> readFaults() {
  std::vector<Fault> faults;
  std::string text = optionText("NCCL_EMU_FAULT", "");
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find(';', begin), text.size());
    std::string one = text.substr(begin, end - begin);
    char name[32];
    Fault fault;
    int fields = sscanf(one.c_str(), "%31[a-z-]:%d:%llu", name, &fault.rank, &fault.call);
    fault.name = fields > 0 ? name : "";
    bool needsCall = fault.name == "lose" || fault.name == "error" || fault.name == "remote" || fault.name == "late";
    if (fields != (needsCall ? 3 : 2) || (!needsCall && fault.name != "hang-abort" && fault.name != "hang-revoke"))
      report("NCCL_EMU_FAULT: expected 'lose:RANK:CALL', 'error:RANK:CALL', 'remote:RANK:CALL', 'late:RANK:CALL', "
             "'hang-abort:RANK' or 'hang-revoke:RANK', got '" +
             one + "'");
    faults.push_back(fault);
    begin = end + 1;
  }
  return faults;
}

const Fault *faultOf(const char *name, int rank, unsigned long long call) {
  static const auto *faults = new std::vector<Fault>(readFaults());
  for (const Fault &fault : *faults) {
    bool isFrom = fault.name != "error";
    if (fault.name == name && fault.rank == rank && (call == fault.call || (isFrom && call > fault.call)))
      return &fault;
  }
  return nullptr;
}
} // namespace emulator
