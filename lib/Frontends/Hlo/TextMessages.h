//===- TextMessages.h - Parts of HLO text as messages -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Shapes, groups of devices and aliases: each function reads one from text, and appends it to a message as XLA
// serializes it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_TEXTMESSAGES_H
#define COMMSCHED_LIB_FRONTENDS_HLO_TEXTMESSAGES_H

#include "CommSched/Frontends/Hlo/HloModule.h"
#include "TextCursor.h"

namespace commsched::hlo {

/// A shape: "bf16[4,8]{1,0:S(5)}", "(f32[], token[])".
llvm::Expected<HloShape> readShape(TextCursor &cursor);
/// Appends a shape as field `number`.
void writeShape(const HloShape &shape, uint32_t number, std::string &out);

/// Groups of a collective in any of their forms: "{{0,1},{2,3}}", "[2,2]<=[4]T(0)", "mesh['x'=4] {'x'}".
llvm::Error readGroups(TextCursor &cursor, std::string &instruction);
/// Pairs of a permutation: "{{0,1},{1,2}}".
llvm::Error readPairs(TextCursor &cursor, std::string &instruction);
/// Results of an instruction in the storage of its operands: "{{}: (0, {1})}".
llvm::Error readOperandAliases(TextCursor &cursor, std::string &instruction);
/// Results of the module in the storage of its parameters: "{ {0}: (0, {}, may-alias) }".
llvm::Error readParameterAliases(TextCursor &cursor, std::string &module);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_TEXTMESSAGES_H
