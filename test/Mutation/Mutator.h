//===- Mutator.h - Deterministic damage to a program's text -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Mutations that keep most of a program whole, so that the damage gets past the lexer and into verifiers and passes:
// tokens dropped, doubled, swapped, exchanged for others of the same program, numbers replaced by extremes, lines
// dropped or doubled, the text cut short, single bytes changed.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_MUTATION_MUTATOR_H
#define COMMSCHED_TEST_MUTATION_MUTATOR_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <random>
#include <string>

namespace commsched::test {

/// `text` with one to four mutations. Equal arguments give equal results, on every machine: std::mt19937_64 is
/// specified to the bit, and the distributions of <random>, which are not, are not used.
std::string mutateText(llvm::StringRef text, uint64_t seed);

/// `bytes`, which are at least two, cut short. (Changing single bytes is no fair test: MLIR's bytecode reader trusts
/// the counts in its sections, and 1 of 250 such changes made libMLIR write past a buffer of its own.)
std::string truncateBytes(llvm::StringRef bytes, uint64_t seed);

} // namespace commsched::test

#endif // COMMSCHED_TEST_MUTATION_MUTATOR_H
