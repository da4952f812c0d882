//===- Passes.h - The project's passes ---------------------------------------------*- C++ -*-===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// Constructors, option structs and registration of all passes of this folder; generated from Passes.td.
//
//===-----------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_PASSES_H
#define COMMSCHED_TRANSFORMS_PASSES_H

#include "CommSched/Scheduling/Bucketing.h"
#include "CommSched/Scheduling/ScheduleVerifier.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include <memory>
#include <string>

namespace commsched {

#define GEN_PASS_DECL
#include "CommSched/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "CommSched/Transforms/Passes.h.inc"

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_PASSES_H
