/*===- registration.c - CommSched in a context of MLIR's own C API --------------------------===*\
|*                                                                                             *|
|* Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.                      *|
|* See LICENSE for licence information.                                                        *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                                     *|
|*                                                                                             *|
|*===-----------------------------------------------------------------------------------------===*|
|*                                                                                             *|
|* A program that holds an MlirContext of its own registers the dialect and passes and parses. *|
|*                                                                                             *|
\*===-----------------------------------------------------------------------------------------===*/

#include "CommSched-c/Registration.h"
#include "mlir-c/Pass.h"
#include "mlir-c/RegisterEverything.h"

#include <stdio.h>

int main(void) {
  const char *text = "comm.group @dp #comm.iota<[1, 4]>\n"
                     "func.func @f(%x: tensor<4xf32>) {\n"
                     "  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>\n"
                     "  %r = comm.wait %f : !comm.future<tensor<16xf32>>\n"
                     "  return\n"
                     "}\n";
  MlirDialectRegistry registry = mlirDialectRegistryCreate();
  mlirRegisterAllDialects(registry);
  commschedRegisterDialects(registry);
  commschedRegisterPasses();
  commschedRegisterPasses();
  MlirContext context = mlirContextCreateWithRegistry(registry, /*threadingEnabled=*/false);
  MlirModule module = mlirModuleCreateParse(context, mlirStringRefCreateFromCString(text));
  int ok = !mlirModuleIsNull(module) && mlirOperationVerify(mlirModuleGetOperation(module));
  if (ok)
    mlirModuleDestroy(module);
  mlirContextDestroy(context);
  mlirDialectRegistryDestroy(registry);
  puts(ok ? "parsed" : "could not parse");
  return !ok;
}
