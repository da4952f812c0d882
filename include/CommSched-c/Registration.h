/*===- Registration.h - CommSched for users of MLIR's C API ---------------------*- C -*-===*\
|*                                                                                         *|
|* Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.                  *|
|* See LICENSE for licence information.                                                    *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                                 *|
|*                                                                                         *|
|*===-------------------------------------------------------------------------------------===*|
|*                                                                                         *|
|* Registers the comm dialect, the external models, and the passes and pipelines for a     *|
|* program with MlirContexts of its own (mlir-c/IR.h).                                     *|
|*                                                                                         *|
\*===-------------------------------------------------------------------------------------===*/

#ifndef COMMSCHED_C_REGISTRATION_H
#define COMMSCHED_C_REGISTRATION_H

#include "CommSched-c/CommSched.h"
#include "mlir-c/IR.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Adds the comm dialect and CommSched's external models to `registry`. */
COMMSCHED_EXPORT void commschedRegisterDialects(MlirDialectRegistry registry);

/** Registers CommSched's passes and pipelines, so that mlirParsePassPipeline knows them. Repeated calls are harmless.
 */
COMMSCHED_EXPORT void commschedRegisterPasses(void);

#ifdef __cplusplus
}
#endif

#endif /* COMMSCHED_C_REGISTRATION_H */
