//===- HloTestSupport.h - The inputs and the machine of the tests ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_FRONTENDS_HLOTESTSUPPORT_H
#define COMMSCHED_TEST_FRONTENDS_HLOTESTSUPPORT_H

#include "CommSched/Frontends/Hlo/Schedule/HloScheduler.h"
#include "llvm/Support/MemoryBuffer.h"
#include <string>

namespace commsched::hlo::test {

/// Modules of XLA's in Inputs, each as NAME.pb.
inline constexpr const char *kModules[] = {"small-fsdp", "small-scan", "small-moe"};

/// A file of Inputs; empty if there is none of that name.
inline std::string readInput(const llvm::Twine &name) {
  auto buffer = llvm::MemoryBuffer::getFile(COMMSCHED_HLO_INPUTS "/" + name, false, false);
  return buffer ? (*buffer)->getBuffer().str() : "";
}

/// The costs of profile h100-sxm.
inline const CostModel &h100() {
  static CostModel model(llvm::cantFail(MachineModel::load("h100-sxm")));
  return model;
}

} // namespace commsched::hlo::test

#endif // COMMSCHED_TEST_FRONTENDS_HLOTESTSUPPORT_H
