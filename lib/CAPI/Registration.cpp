//===- Registration.cpp - CommSched for users of MLIR's C API ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See CommSched-c/Registration.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched-c/Registration.h"

#include "CommSched/InitAll.h"

#include "mlir/CAPI/IR.h"

void commschedRegisterDialects(MlirDialectRegistry registry) {
  commsched::registerAllDialects(*unwrap(registry));
  commsched::registerAllExtensions(*unwrap(registry));
}

void commschedRegisterPasses() { commsched::registerAllPasses(); }
