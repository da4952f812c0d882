//===- OperandReuse.h - Results in the place of operands --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// XLA:GPU lets an all-reduce, and a fusion that takes every element of an operand once and in order, write its result
// where an operand is that nobody needs any more (GpuAliasInfo::MayAlias). Whether it does so depends on the order.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_OPERANDREUSE_H
#define COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_OPERANDREUSE_H

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"

namespace commsched::hlo {

/// Returns true if an instruction of this kind may write a result in the place of an operand. O(1).
bool mayReuseOperands(const HloInstruction &instruction);

/// Returns true if such an instruction may write the leaf `leaf` of its result in the place of an operand, which is an
/// array of as many bytes. O(size of the fusion).
bool mayReuseOperand(const HloModule &module, const HloInstruction &instruction, size_t operand, int64_t leaf);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_OPERANDREUSE_H
