//===- SymbolTable.h - Functions of libraries that are loaded at run time --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A backend over a vendor's library declares the functions that it calls in a table and finds them at run time, so that
// the build needs neither the library nor its header.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_SYMBOLTABLE_H
#define COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_SYMBOLTABLE_H

#include <string>
#include <vector>

namespace commsched::runtime {
/// One function: its name, where its address goes, and whether the backend can do without (the slot is then null).
struct Symbol {
  const char *name;
  void **slot;
  bool isRequired = true;
};

/// Where the address of a function goes: the slot of a Symbol.
template <typename Function> void **slotOf(Function &function) { return reinterpret_cast<void **>(&function); }

/// A library that dlopen finds.
struct SymbolLibrary {
  const char *what;                ///< for messages: "NCCL"
  const char *variable;            ///< environment: the path to use instead of the names
  std::vector<const char *> names; ///< file names, the first that loads is taken
  std::vector<Symbol> symbols;
};

/// Loads the library and fills the slots. An empty text, or one line that names the library, or every required function
/// that it lacks. `handle` stays open on success and is closed otherwise; the slots are then null.
std::string loadSymbols(const SymbolLibrary &library, void **handle);
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_NCCL_LIBRARIES_SYMBOLTABLE_H
