//===- embed.cpp - A compiler that embeds CommSched -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Registers the dialect and the passes, parses a program, runs a pipeline over it and prints it.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/InitAll.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

static const char program[] = R"(
  comm.group @dp #comm.iota<[1, 4]>
  func.func @f(%x: tensor<4xf32>) -> tensor<16xf32> {
    %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
    %r = comm.wait %f : !comm.future<tensor<16xf32>>
    return %r : tensor<16xf32>
  })";

int main() {
  mlir::DialectRegistry registry;
  registry.insert<mlir::func::FuncDialect>();
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  commsched::registerAllPasses();
  mlir::registerTransformsPasses();

  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(program, &context);
  if (!module)
    return 1;
  mlir::PassManager manager(&context);
  if (failed(mlir::parsePassPipeline("canonicalize", manager)) || failed(manager.run(*module)))
    return 1;
  module->print(llvm::outs());
  return 0;
}
