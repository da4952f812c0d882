//===- BackendLoader.cpp - Finds a backend by name ----------------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// Backends by name: built in, registered, or libcommrt_NAME.so by dlopen, with a check of version and table.
//
//===--------------------------------------------------------------------------------------------===//

#include "BackendLoader.h"
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
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

static bool isUsable(const commrt_backend *table) {
  return table && table->abi_version == COMMRT_BACKEND_ABI_VERSION &&
         table->struct_size >= COMMRT_BACKEND_REQUIRED_SIZE && table->name;
}

//===- Registered tables ---------------------------------------------------------------------===//

namespace {
struct Registry {
  std::mutex mutex;
  std::vector<const commrt_backend *> tables;
};
} // namespace

static Registry &registry() {
  static Registry instance;
  return instance;
}

static const commrt_backend *findRegistered(const std::string &name) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (const commrt_backend *table : registry().tables)
    if (name == table->name)
      return table;
  return nullptr;
}

int32_t commrt_backend_register(const commrt_backend *backend) {
  if (!isUsable(backend) || std::strcmp(backend->name, "threads") == 0 || std::strcmp(backend->name, "sim") == 0)
    return COMMRT_ERR_INVALID;
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (const commrt_backend *table : registry().tables)
    if (std::strcmp(table->name, backend->name) == 0)
      return table == backend ? COMMRT_OK : COMMRT_ERR_INVALID;
  registry().tables.push_back(backend);
  return COMMRT_OK;
}

//===- Shared libraries ----------------------------------------------------------------------===//

/// Null with the reasons of every place that was tried.
static void *openLibrary(const std::string &name, std::string &error) {
  std::string file = "libcommrt_" + name + ".so", reasons;
  std::vector<std::string> candidates;
  if (const char *folder = std::getenv("COMMRT_BACKEND_PATH"))
    candidates.push_back(std::string(folder) + "/" + file);
  candidates.push_back(ownFolder() + file);
  candidates.push_back(file);
  for (const std::string &path : candidates) {
    if (void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL))
      return library;
    const char *why = dlerror();
    reasons += std::string(reasons.empty() ? "" : "; ") + (why ? why : path.c_str());
  }
  error = "no backend '" + name + "': " + reasons;
  return nullptr;
}

const commrt_backend *commsched::runtime::loadBackend(const std::string &name, void **library, std::string &error) {
  *library = nullptr;
  if (name == "threads")
    return threadsBackend();
  if (name == "sim")
    return simBackend();
  if (const commrt_backend *registered = findRegistered(name))
    return registered;
  bool isName = !name.empty();
  for (char c : name)
    isName &= std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  if (!isName) {
    error = "'" + name + "' is not the name of a backend";
    return nullptr;
  }
  *library = openLibrary(name, error);
  if (!*library)
    return nullptr;
  auto entry = reinterpret_cast<commrt_backend_entry_fn>(dlsym(*library, COMMRT_BACKEND_ENTRY));
  const commrt_backend *table = entry ? entry(COMMRT_BACKEND_ABI_VERSION) : nullptr;
  if (isUsable(table))
    return table;
  error = "backend '" + name + "' has another version";
  unloadBackend(*library);
  *library = nullptr;
  return nullptr;
}

void commsched::runtime::unloadBackend(void *library) {
  if (library)
    dlclose(library);
}
