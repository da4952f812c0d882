//===- Plugin.cpp - CommSched as a plug-in of mlir-opt ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The two entry points that MLIR looks up in a loaded library. One library serves as both kinds of plug-in.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/InitAll.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"

static const char pluginName[] = "CommSched";

extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT mlir::DialectPluginLibraryInfo mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, pluginName, commsched::getVersion(), [](mlir::DialectRegistry *registry) {
            commsched::registerAllDialects(*registry);
            commsched::registerAllExtensions(*registry);
          }};
}

extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT mlir::PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, pluginName, commsched::getVersion(), [] { commsched::registerAllPasses(); }};
}
