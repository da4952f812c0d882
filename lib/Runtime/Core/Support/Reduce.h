//===- Reduce.h - Reductions in rank order ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one implementation of reductions that all CPU backends share.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_REDUCE_H
#define COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_REDUCE_H

#include "CommSched/Runtime/Runtime.h"

namespace commsched::runtime {
struct Reduction {
  int32_t dtype;
  int32_t op;
  double scale;
};

/// Whether the reduction is defined for the element type.
bool isReducible(int32_t dtype, int32_t op);

/// outs[*][i] = ins[0][i] op ins[1][i] op ..., `count` elements. Outputs may be inputs (same positions).
int32_t reduceInto(const Reduction &how, const void *const *ins, int64_t numIns, void *const *outs, int64_t numOuts,
                   int64_t count);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_REDUCE_H
