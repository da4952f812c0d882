//===- InitAll.h - Registration of all of CommSched's parts -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Entry points for embedders: the comm dialect, the external models that give cost and aliasing of upstream operations,
// and the passes and pipelines. Nothing here registers anything of upstream MLIR; comm-opt registers upstream itself.
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_INITALL_H
#define COMMSCHED_INITALL_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace commsched {

/// Adds the project's dialects to `registry`.
void registerAllDialects(mlir::DialectRegistry &registry);

/// Adds the external models that CommSched attaches to operations of upstream dialects. A model attaches when the
/// dialect that it extends is loaded, so a context that does not load the dialect pays nothing.
void registerAllExtensions(mlir::DialectRegistry &registry);

/// Registers the project's passes and pipelines with MLIR's global registry, for tools that parse pipelines from text.
/// Calling it twice is harmless.
void registerAllPasses();

/// The project's version, such as "0.2.0".
const char *getVersion();

} // namespace commsched

#endif // COMMSCHED_INITALL_H
