/*===- embed.c - A C program that embeds CommSched ------------------------------------------===*\
|*                                                                                             *|
|* Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.                      *|
|* See LICENSE for licence information.                                                        *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                                     *|
|*                                                                                             *|
|*===-----------------------------------------------------------------------------------------===*|
|*                                                                                             *|
|* The same as embed.cpp through the C API.                                                    *|
|*                                                                                             *|
\*===-----------------------------------------------------------------------------------------===*/

#include "CommSched-c/CommSched.h"

#include <stdio.h>
#include <string.h>

int main(void) {
  const char *text = "comm.group @dp #comm.iota<[1, 4]>\n"
                     "func.func @f(%x: tensor<4xf32>) -> tensor<16xf32> {\n"
                     "  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>\n"
                     "  %r = comm.wait %f : !comm.future<tensor<16xf32>>\n"
                     "  return %r : tensor<16xf32>\n"
                     "}\n";
  CommSchedContext *context = commschedContextCreate();
  CommSchedModule *module = commschedModuleParse(context, text, strlen(text), "embed.mlir");
  int failed = !module || commschedModuleRunPipeline(module, "canonicalize");
  size_t i;
  for (i = 0; i < commschedContextGetNumMessages(context); ++i)
    printf("%s\n", commschedContextGetMessage(context, i).text);
  if (!failed) {
    CommSchedBuffer printed = commschedModulePrint(module, 0);
    fputs(printed.data, stdout);
    commschedBufferDestroy(printed);
  }
  commschedModuleDestroy(module);
  commschedContextDestroy(context);
  return failed;
}
