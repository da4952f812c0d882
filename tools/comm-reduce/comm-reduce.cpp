//===- comm-reduce.cpp - Reducer for failing programs -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// mlir-reduce with the comm dialect and the project's passes.
//
//===------------------------------------------------------------------------------------------===//

#include "../Mains.h"
#include "CommSched/InitAll.h"
#include "CommSched/Support/RunTool.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"

static int reduceMain(int argc, char **argv) {
  commsched::hideInheritedOptions();
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  if (!commsched::asksForShortHelp(argc, argv))
    mlir::registerAllPasses();
  commsched::registerAllPasses();
  mlir::MLIRContext context(registry);
  return mlir::failed(mlir::mlirReduceMain(argc, argv, context));
}

int commschedReduceMain(int argc, char **argv) { return commsched::runTool(argc, argv, reduceMain); }
