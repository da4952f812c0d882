//===- HloFuzz.cpp - Fuzz target of the reader of XLA's modules -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// libFuzzer calls this with bytes that it makes from the inputs of the other tests. The module is refused, or scheduled
// and rewritten to something that is a module again. The address sanitizer's build makes and runs it.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Pjrt/PjrtTransform.h"
#include "CommSched/Frontends/Hlo/Reader/HloModule.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // The search is not what is tested.
  static const TransformOptions options = cantFail(parseTransformOptions(R"({"donation": "drop", "effort": 100})"));
  TransformResult result = transformModule(StringRef(reinterpret_cast<const char *>(data), size), options);
  if (!result.module.empty())
    cantFail(readModule(result.module).takeError());
  return 0;
}
