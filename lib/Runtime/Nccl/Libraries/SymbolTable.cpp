//===- SymbolTable.cpp - Functions of libraries that are loaded at run time ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// dlopen, dlsym, and errors that say which library and which function.
//
//===------------------------------------------------------------------------------------------===//

#include "SymbolTable.h"
#include <cstdlib>
#include <dlfcn.h>

using namespace commsched::runtime;

/// Null with `error` set.
static void *openLibrary(const SymbolLibrary &library, std::string &path, std::string &error) {
  std::vector<const char *> names = library.names;
  const char *given = std::getenv(library.variable);
  if (given && *given)
    names = {given};
  std::string reasons;
  for (const char *name : names) {
    // CUDA's libraries are not made to be unloaded once they have been called.
    if (void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
      path = name;
      return handle;
    }
    const char *why = dlerror();
    reasons += (reasons.empty() ? "" : "; ") + std::string(why ? why : name);
  }
  error =
      std::string("cannot load ") + library.what + ": " + reasons + " (" + library.variable + " names the file to use)";
  return nullptr;
}

std::string commsched::runtime::loadSymbols(const SymbolLibrary &library, void **handle) {
  for (const Symbol &symbol : library.symbols)
    *symbol.slot = nullptr;
  std::string path, error;
  *handle = openLibrary(library, path, error);
  if (!*handle)
    return error;
  std::string missing;
  for (const Symbol &symbol : library.symbols) {
    *symbol.slot = dlsym(*handle, symbol.name);
    if (!*symbol.slot && symbol.isRequired)
      missing += (missing.empty() ? "" : ", ") + std::string(symbol.name);
  }
  if (missing.empty())
    return "";
  for (const Symbol &symbol : library.symbols)
    *symbol.slot = nullptr;
  dlclose(*handle);
  *handle = nullptr;
  return std::string(library.what) + " (" + path + ") lacks " + missing;
}
