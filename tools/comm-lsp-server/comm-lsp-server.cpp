//===- comm-lsp-server.cpp - Editor support for programs with comm operations -----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// MLIR's language server with the comm dialect. Configure an editor's MLIR extension to run this binary instead of
// mlir-lsp-server.
//
//===------------------------------------------------------------------------------------------===//

#include "../Mains.h"
#include "CommSched/InitAll.h"
#include "CommSched/Support/RunTool.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

static int serverMain(int argc, char **argv) {
  commsched::hideInheritedOptions();
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}

int commschedLspServerMain(int argc, char **argv) { return commsched::runTool(argc, argv, serverMain); }
