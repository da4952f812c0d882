//===- BackendLoader.cpp - Finds a backend by name --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Backends by name: built in, registered, or libcommrt_NAME.so by dlopen, with a check of version and table.
//
//===------------------------------------------------------------------------------------------===//

#include "BackendLoader.h"
#include "Core/Support/Guarded.h"
#include "Core/Support/Text.h"
#include <cctype>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <string_view>
#include <vector>

using namespace commsched::runtime;

static constexpr std::string_view kControlName = "tcp";

/// The folder of this library, absolute, with a slash; empty if unknown.
static std::string ownFolder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void *>(&commrt_job_create), &info) || !info.dli_fname)
    return "";
  void *self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (!self)
    return "";
  char folder[PATH_MAX + 1] = "";
  bool isKnown = dlinfo(self, RTLD_DI_ORIGIN, folder) == 0 && folder[0] == '/';
  dlclose(self);
  return isKnown ? std::string(folder) + "/" : "";
}

/// A null function is missing; empty if the table has all that it needs.
static std::string whatLacks(const commrt_backend &table) {
  std::string missing;
  auto require = [&](bool isThere, const char *name) {
    if (!isThere)
      missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  require(table.name, "name");
  require(table.open, "open");
  require(table.close, "close");
  require(table.attach, "attach");
  require(table.detach, "detach");
  require(table.group_create, "group_create");
  require(table.group_destroy, "group_destroy");
  require(table.submit, "submit");
  require(table.progress, "progress");
  require(table.combine, "combine");
  require(table.abort, "abort");
  require(table.describe, "describe");
  return missing;
}

/// The same of the operations of a device backend.
static std::string whatDeviceLacks(const commrt_backend &table) {
  if (!COMMRT_BACKEND_HAS(&table, device))
    return "device";
  const commrt_device_ops &device = *table.device;
  if (device.struct_size < COMMRT_DEVICE_REQUIRED_SIZE)
    return "the end of the required device operations";
  bool isWhole = device.stream && device.record && device.stream_wait && device.query && device.release &&
                 device.wait_work && device.release_work && device.group_begin && device.group_end && device.alloc &&
                 device.free && device.copy && device.fill;
  return isWhole ? "" : "one of the required device operations";
}

/// Why the table cannot be used; empty if it can.
static std::string whyUnusable(const commrt_backend *table) {
  if (!table || table->abi_version != COMMRT_BACKEND_ABI_VERSION)
    return "it has another version than " + std::to_string(COMMRT_BACKEND_ABI_VERSION);
  if (table->struct_size < COMMRT_BACKEND_REQUIRED_SIZE)
    return "its table ends before the required functions do";
  std::string missing = whatLacks(*table);
  if (missing.empty() && (table->flags & COMMRT_BACKEND_DEVICE))
    missing = whatDeviceLacks(*table);
  return missing.empty() ? "" : "its table lacks " + missing;
}

//===- Registered tables ---------------------------------------------------------------------===//

namespace {
struct Registry {
  Mutex mutex;
  std::vector<const commrt_backend *> tables COMMRT_GUARDED_BY(mutex);
};
} // namespace

static Registry &registry() {
  static Registry instance;
  return instance;
}

static const commrt_backend *findRegistered(const std::string &name) {
  Registry &known = registry();
  Lock lock(known.mutex);
  for (const commrt_backend *table : known.tables)
    if (name == table->name)
      return table;
  return nullptr;
}

int32_t commrt_backend_register(const commrt_backend *backend) {
  if (!whyUnusable(backend).empty() || std::strcmp(backend->name, "threads") == 0 ||
      std::strcmp(backend->name, "sim") == 0 || backend->name == kControlName)
    return COMMRT_ERR_INVALID;
  Registry &known = registry();
  Lock lock(known.mutex);
  for (const commrt_backend *table : known.tables)
    if (std::strcmp(table->name, backend->name) == 0)
      return table == backend ? COMMRT_OK : COMMRT_ERR_INVALID;
  known.tables.push_back(backend);
  return COMMRT_OK;
}

//===- Shared libraries ----------------------------------------------------------------------===//

/// Null with the reasons of every place that was tried.
static void *openLibrary(const std::string &name, std::string &error) {
  std::string file = "libcommrt_" + name + ".so", reasons;
  std::vector<std::string> candidates;
  // Never a bare name: the loader may look for that in the current folder.
  if (const char *folder = std::getenv("COMMRT_BACKEND_PATH"); folder && *folder)
    candidates.push_back(std::string(folder) + "/" + file);
  if (std::string folder = ownFolder(); !folder.empty())
    candidates.push_back(folder + file);
  for (const std::string &path : candidates) {
    if (void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
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
  if (name == kControlName) {
    error = "'tcp' is a control plane and moves no data; expected a backend that does: threads, sim, mpi or nccl";
    return nullptr;
  }
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
  std::string why = entry ? whyUnusable(table) : "it exports no " COMMRT_BACKEND_ENTRY;
  if (why.empty())
    return table;
  error = "backend '" + name + "' cannot be used: " + why;
  unloadBackend(*library);
  *library = nullptr;
  return nullptr;
}

int32_t commrt_backend_find(const char *name, const commrt_backend **backend, char *message, size_t size) {
  copyText("", message, size);
  if (!name || !backend)
    return COMMRT_ERR_INVALID;
  void *library = nullptr; // stays
  std::string error;
  *backend = name == kControlName ? controlPlane() : loadBackend(name, &library, error);
  copyText(error, message, size);
  return *backend ? COMMRT_OK : COMMRT_ERR_BACKEND;
}

void commsched::runtime::unloadBackend(void *library) {
  if (library)
    dlclose(library);
}
