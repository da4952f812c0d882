//===- PjrtApi.h - The part of PJRT's C API that is used --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The layouts of PJRT's C API (xla/pjrt/c/pjrt_c_api.h, major version 0) and of its extension for transformations,
// version 1. The C API never changes the layout of what it has: structs begin with their size and grow at the end, and
// so does the table of functions. Each function takes a pointer to its arguments, and returns an error or null.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_PJRT_PJRTAPI_H
#define COMMSCHED_LIB_FRONTENDS_HLO_PJRT_PJRTAPI_H

#include <cstddef>
#include <cstdint>

namespace commsched::hlo {

/// Arguments of functions are untyped here: the plugin has types of its own for the same layouts.
using PjrtFunction = void *(*)(void *arguments);

struct PjrtExtension {
  size_t structSize;
  int type;
  PjrtExtension *next;
};

/// Positions in the table of functions.
enum PjrtIndex : size_t {
  kErrorDestroy = 0,
  kErrorMessage = 1,
  kClientCompile = 20,
  kExecutableDestroy = 40,
  kExecutableOptimizedProgram = 48,
  kLoadedExecutableDestroy = 50,
  kLoadedExecutableGetExecutable = 51,
  kCompile = 89,
  kExecutableMemoryStats = 96,
};

struct PjrtApi {
  size_t structSize;
  PjrtExtension *firstExtension;
  struct {
    size_t structSize;
    PjrtExtension *firstExtension;
    int major;
    int minor;
  } version;
  /// Indexed by PjrtIndex. The table may be shorter, as structSize says.
  PjrtFunction functions[kExecutableMemoryStats + 1];
};

struct PjrtString {
  const char *data;
  size_t size;
};

//===- The extension for transformations ------------------------------------------------------===//

struct TransformHeader {
  int64_t apiVersion;
  void *data;
  void (*cleanUp)(void *data);
  bool hasError;
  int code;
  PjrtString message;
};

struct TransformArguments {
  size_t structSize;
  TransformHeader header;
  PjrtString module;
  PjrtString transformed;
  bool isChanged;
};

struct TransformCallbacks {
  int64_t version;
  void (*destroy)(void *callbacks);
  void (*transform)(void *callbacks, void *arguments);
};

struct RegisterArguments {
  size_t structSize;
  const char *name;
  size_t nameSize;
  int stage;
  TransformCallbacks *callbacks;
};

struct TransformExtension {
  PjrtExtension base;
  PjrtFunction registerTransform;
};

//===- Compilation ----------------------------------------------------------------------------===//

struct PjrtProgram {
  size_t structSize;
  PjrtExtension *firstExtension;
  char *code;
  size_t codeSize;
  /// "mlir", "hlo" (an HloModuleProto) or "hlo_with_config".
  PjrtString format;
};

/// Of PJRT_Client_Compile, for the devices of a client. `options` is a CompileOptionsProto.
struct ClientCompileArguments {
  size_t structSize;
  PjrtExtension *firstExtension;
  void *client;
  const PjrtProgram *program;
  PjrtString options;
  /// Out: a loaded executable.
  void *executable;
};

/// Of PJRT_Compile, for devices that need not exist.
struct CompileArguments {
  size_t structSize;
  PjrtExtension *firstExtension;
  const void *topology;
  const PjrtProgram *program;
  PjrtString options;
  void *client;
  /// Out: an executable that is not loaded.
  void *executable;
};

/// Of PJRT_Error_Destroy, PJRT_Executable_Destroy and PJRT_LoadedExecutable_Destroy.
struct DestroyArguments {
  size_t structSize;
  PjrtExtension *firstExtension;
  void *object;
};

struct ErrorMessageArguments {
  size_t structSize;
  PjrtExtension *firstExtension;
  const void *error;
  /// Out: lives as long as the error.
  PjrtString message;
};

struct GetExecutableArguments {
  size_t structSize;
  PjrtExtension *firstExtension;
  void *loaded;
  /// Out: the caller destroys it.
  void *executable;
};

/// Of PJRT_Executable_GetCompiledMemoryStats. Sizes are in bytes; the plugin writes as many as it knows.
struct MemoryStatsArguments {
  size_t structSize;
  PjrtExtension *firstExtension;
  void *executable;
  /// Out.
  int64_t code, arguments, outputs, aliased, temporaries;
  int64_t others[7];
};

struct OptimizedProgramArguments {
  size_t structSize;
  PjrtExtension *firstExtension;
  void *executable;
  /// Gets the size of the code if `code` is null, and the code otherwise.
  PjrtProgram *program;
};

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_PJRT_PJRTAPI_H
