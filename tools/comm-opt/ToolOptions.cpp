//===- ToolOptions.cpp - Help text of comm-opt ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See ToolOptions.h.
//
//===------------------------------------------------------------------------------------------===//

#include "ToolOptions.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/CommandLine.h"

using namespace llvm;

cl::OptionCategory &commsched::projectOptions() {
  // Categories appear in the order of their names. This name precedes MLIR's "General options".
  static cl::OptionCategory category("CommSched options");
  return category;
}

void commsched::hideUncommonOptions() {
  static const StringSet<> common = {
      "allow-unregistered-dialect",
      "dump-pass-pipeline",
      "emit-bytecode",
      "h",
      "help",
      "help-hidden",
      "list-passes",
      "load-dialect-plugin",
      "load-pass-plugin",
      "mlir-disable-threading",
      "mlir-elide-elementsattrs-if-larger",
      "mlir-pass-pipeline-crash-reproducer",
      "mlir-print-debuginfo",
      "mlir-print-ir-after",
      "mlir-print-ir-after-all",
      "mlir-print-ir-before-all",
      "mlir-print-local-scope",
      "mlir-print-op-generic",
      "mlir-timing",
      "o",
      "pass-pipeline",
      "remark-format",
      "remarks-filter",
      "remarks-output-file",
      "show-dialects",
      "split-input-file",
      "verify-diagnostics",
      "version",
  };
  for (auto &[name, option] : cl::getRegisteredOptions()) {
    // Passes and pipelines are values of one list, an option without a name of its own. It stays visible.
    if (option->ArgStr.empty() || name.starts_with("comm-"))
      option->addCategory(projectOptions());
    else if (!common.contains(name) && option->getOptionHiddenFlag() == cl::NotHidden)
      option->setHiddenFlag(cl::Hidden);
  }
}
