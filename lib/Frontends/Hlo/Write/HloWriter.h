//===- HloWriter.h - Modules of XLA with other orders -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_WRITE_HLOWRITER_H
#define COMMSCHED_LIB_FRONTENDS_HLO_WRITE_HLOWRITER_H

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"

namespace commsched::hlo {

/// The module with other orders: `sequences` has one per computation, empty for those that keep theirs. All other bytes
/// are those that were read. Each order has to be a permutation of the computation's own with operands first, which is
/// checked. O(size).
llvm::Expected<std::string> writeModule(const HloModule &module, llvm::ArrayRef<std::vector<int32_t>> sequences);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_WRITE_HLOWRITER_H
