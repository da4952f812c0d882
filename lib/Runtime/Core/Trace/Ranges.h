//===- Ranges.h - Named ranges for profilers --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// NVTX version 3 without its headers. A tool such as Nsight Systems names its library by NVTX_INJECTION64_PATH; NVTX's
// headers load it, and give it a table of pointers in which it puts its functions. That protocol is the whole of NVTX
// on the side of the program, and is small. NVIDIA's headers would have to be there when a package is built, and the
// library libnvToolsExt is no longer part of CUDA. Test/Runtime compares each type and number with the headers where
// they are.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_TRACE_RANGES_H
#define COMMSCHED_LIB_RUNTIME_CORE_TRACE_RANGES_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace commsched::runtime {
namespace nvtx {
/// Of nvtxTypes.h: the modules of functions, the places in module CORE2's table, and the tables that a tool asks for.
constexpr int32_t moduleCore2 = 5;
constexpr size_t domainRangePushEx = 4, domainRangePop = 5, domainCreateA = 12, core2Size = 16;
constexpr uint32_t callbacksTable = 1, versionTable = 3;
/// Of nvToolsExt.h.
constexpr uint16_t version = 3;
constexpr int32_t messageAscii = 1;

using Function = void (*)();
/// What a tool calls to find a module's table: pointers to the pointers that it may set, by number; number 0 and the
/// end are null. Returns 0 for a module that is not there.
struct Callbacks {
  size_t structSize;
  int (*getModuleFunctionTable)(int32_t module, Function ***table, unsigned *size);
};
struct VersionInfo {
  size_t structSize;
  uint32_t version, reserved;
  void (*setInjectionVersion)(uint32_t version);
};
using GetExportTable = const void *(*)(uint32_t table);
/// The tool's entry point; 0: it is not ready.
using InitializeInjection = int (*)(GetExportTable getTable);
constexpr const char *entryPoint = "InitializeInjectionNvtx2", *pathVariable = "NVTX_INJECTION64_PATH";

/// nvtxEventAttributes_t.
struct EventAttributes {
  uint16_t version, size;
  uint32_t category;
  int32_t colorType;
  uint32_t color;
  int32_t payloadType, reserved;
  uint64_t payload;
  int32_t messageType;
  const char *message;
};
struct Domain; // opaque
using CreateDomain = Domain *(*)(const char *name);
using PushRange = int (*)(Domain *domain, const EventAttributes *attributes);
using PopRange = int (*)(Domain *domain);
} // namespace nvtx

/// Whether a tool wants ranges. The first call loads it.
bool hasRanges();
void pushRange(const std::string &text);
void popRange();

/// A range of the calling thread in the domain "commsched", as long as the object lives. `text` gives the name, and is
/// called only if a tool is there.
class Range {
public:
  template <typename Text> explicit Range(Text text) : isOpen(hasRanges()) {
    if (isOpen)
      pushRange(text());
  }
  ~Range() {
    if (isOpen)
      popRange();
  }
  Range(const Range &) = delete;
  Range &operator=(const Range &) = delete;

private:
  bool isOpen;
};
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_TRACE_RANGES_H
