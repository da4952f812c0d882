//===- BackendLoader.cpp - Finds a backend by name ----------------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// Backends by name: built in, or libcommrt_NAME.so by dlopen, with a check of version and table.
//
//===--------------------------------------------------------------------------------------------===//

#include "BackendLoader.h"
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <vector>

using namespace commsched::runtime;

/// The folder of this library, with a slash; empty if unknown.
static std::string ownFolder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void *>(&commrt_job_create), &info) || !info.dli_fname)
    return "";
  std::string path = info.dli_fname;
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

const commrt_backend *commsched::runtime::loadBackend(const std::string &name, void **library, std::string &error) {
  *library = nullptr;
  if (name == "threads")
    return threadsBackend();
  if (name == "sim")
    return simBackend();
  for (char c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') {
      error = "'" + name + "' is not the name of a backend";
      return nullptr;
    }
  std::string file = "libcommrt_" + name + ".so";
  std::vector<std::string> candidates;
  if (const char *folder = std::getenv("COMMRT_BACKEND_PATH"))
    candidates.push_back(std::string(folder) + "/" + file);
  candidates.push_back(ownFolder() + file);
  candidates.push_back(file);
  std::string reasons;
  for (const std::string &path : candidates) {
    *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (*library)
      break;
    const char *why = dlerror();
    reasons += std::string(reasons.empty() ? "" : "; ") + (why ? why : path.c_str());
  }
  if (!*library) {
    error = "no backend '" + name + "': " + reasons;
    return nullptr;
  }
  auto entry = reinterpret_cast<commrt_backend_entry_fn>(dlsym(*library, COMMRT_BACKEND_ENTRY));
  const commrt_backend *table = entry ? entry(COMMRT_BACKEND_ABI_VERSION) : nullptr;
  if (!table || table->abi_version != COMMRT_BACKEND_ABI_VERSION || table->struct_size < COMMRT_BACKEND_REQUIRED_SIZE) {
    error = "backend '" + name + "' has another version";
    unloadBackend(*library);
    *library = nullptr;
    return nullptr;
  }
  return table;
}

void commsched::runtime::unloadBackend(void *library) {
  if (library)
    dlclose(library);
}
