//===- Ranges.cpp - Named ranges for profilers ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The program's side of NVTX: loads the tool's library, and gives it the table in which it puts its functions.
//
//===------------------------------------------------------------------------------------------===//

#include "Ranges.h"
#include <cstdlib>
#include <dlfcn.h>

using namespace commsched::runtime;

namespace {
/// The functions that the tool has set; null: it does not want these calls.
nvtx::Function functions[nvtx::core2Size];
nvtx::Function *functionTable[nvtx::core2Size + 1];

/// The tool, once it is loaded.
struct Tool {
  nvtx::Domain *domain = nullptr;
  nvtx::PushRange push = nullptr;
  nvtx::PopRange pop = nullptr;
  Tool();
};
} // namespace

static int getModuleFunctionTable(int32_t module, nvtx::Function ***table, unsigned *size) {
  if (module != nvtx::moduleCore2)
    return 0;
  if (table)
    *table = functionTable;
  if (size)
    *size = nvtx::core2Size;
  return 1;
}

static const void *getExportTable(uint32_t table) {
  static const nvtx::Callbacks callbacks = {sizeof(callbacks), getModuleFunctionTable};
  static const nvtx::VersionInfo versionInfo = {sizeof(versionInfo), nvtx::version, 0, [](uint32_t) {}};
  return table == nvtx::callbacksTable ? static_cast<const void *>(&callbacks)
         : table == nvtx::versionTable ? &versionInfo
                                       : nullptr;
}

Tool::Tool() {
  const char *path = std::getenv(nvtx::pathVariable);
  void *library = path && *path ? dlopen(path, RTLD_LAZY) : nullptr;
  if (!library)
    return;
  for (size_t i = 1; i < nvtx::core2Size; ++i)
    functionTable[i] = &functions[i];
  auto begin = reinterpret_cast<nvtx::InitializeInjection>(dlsym(library, nvtx::entryPoint));
  if (!begin || begin(getExportTable) == 0) {
    dlclose(library);
    return;
  }
  push = reinterpret_cast<nvtx::PushRange>(functions[nvtx::domainRangePushEx]);
  pop = reinterpret_cast<nvtx::PopRange>(functions[nvtx::domainRangePop]);
  if (auto create = reinterpret_cast<nvtx::CreateDomain>(functions[nvtx::domainCreateA]))
    domain = create("commsched");
}

static const Tool &tool() {
  static const Tool loaded;
  return loaded;
}

bool commsched::runtime::hasRanges() { return tool().push && tool().pop; }

void commsched::runtime::pushRange(const std::string &text) {
  nvtx::EventAttributes attributes = {};
  attributes.version = nvtx::version;
  attributes.size = sizeof(attributes);
  attributes.messageType = nvtx::messageAscii;
  attributes.message = text.c_str();
  if (nvtx::PushRange push = tool().push)
    push(tool().domain, &attributes);
}

void commsched::runtime::popRange() {
  if (nvtx::PopRange pop = tool().pop)
    pop(tool().domain);
}
