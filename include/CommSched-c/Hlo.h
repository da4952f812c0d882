/*===- Hlo.h - Modules of XLA from plain C --------------------------------------*- C -*-===*\
|*                                                                                         *|
|* Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.                  *|
|* See LICENSE for licence information.                                                    *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                                 *|
|*                                                                                         *|
|*===-------------------------------------------------------------------------------------===*|
|*                                                                                         *|
|* Orders the instructions of scheduled modules, given as bytes or inside a plugin of      *|
|* PJRT. Jax.md describes what is understood.                                              *|
|*                                                                                         *|
\*===-------------------------------------------------------------------------------------===*/

#ifndef COMMSCHED_C_HLO_H
#define COMMSCHED_C_HLO_H

#include "CommSched-c/CommSched.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Schedules a serialized HloModuleProto. `options` is JSON: "machine" (a name or a path), "memory_budget_ratio",
 * "memory_limit_bytes" (a limit on the temporaries of the program; commschedXlaInstall also checks XLA's own count),
 * "effort", "donation" ("keep" or "drop" the donations of a scheduled module; matters to commschedXlaInstall alone),
 * "dump" (a folder into which the transformation of commschedXlaInstall writes the modules that XLA hands over),
 * "shuffle" (a seed: a random legal order in place of a good one, for tests), and "measure" (an object of times in ns
 * by the names of instructions: the module keeps its order, and the report says what it takes with these times, and
 * under "untimed" which instructions take time by the machine's model instead). Returns 0, the module as `*module` and
 * a JSON object as `*report`. If the module stays as it was, `*module` is empty and the report's "kept_because" says
 * why. Returns 1 and the reason as `*report` if the options are wrong. Destroy both buffers in both cases.
 */
COMMSCHED_EXPORT int commschedScheduleHlo(const char *data, size_t length, const char *options, CommSchedBuffer *module,
                                          CommSchedBuffer *report);

/**
 * Registers a transformation with a plugin of PJRT, whose `const PJRT_Api *` is `api`, and wraps its functions that
 * compile, which keeping donations needs, for the rest of the process. Nothing changes until commschedXlaConfigure.
 * Returns 0, or 1 and the reason as `*reason`; destroy it in both cases.
 */
COMMSCHED_EXPORT int commschedXlaInstall(const void *api, CommSchedBuffer *reason);

/**
 * Sets what the transformation does: `options` as for commschedScheduleHlo, NULL for nothing. Returns 0, or 1 and the
 * reason as `*reason`; destroy it in both cases.
 */
COMMSCHED_EXPORT int commschedXlaConfigure(const char *options, CommSchedBuffer *reason);

/** The reports of the modules since the last call, oldest first, as a JSON array. */
COMMSCHED_EXPORT CommSchedBuffer commschedXlaTakeReports(void);

#ifdef __cplusplus
}
#endif

#endif /* COMMSCHED_C_HLO_H */
