/*===- CommSched.h - CommSched from plain C -------------------------------------*- C -*-===*\
|*                                                                                         *|
|* Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.                  *|
|* See LICENSE for licence information.                                                    *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                                 *|
|*                                                                                         *|
|*===-------------------------------------------------------------------------------------===*|
|*                                                                                         *|
|* Parse a program, run passes over it, read what they said, print it. This header needs   *|
|* nothing but a C99 compiler, and its library, libCommSched-c.so, no C++ on the user's    *|
|* side. Whoever already uses MLIR's own C API takes Registration.h beside this file.      *|
|*                                                                                         *|
|* Nothing here exits, aborts or prints. A function that can fail says so in its result,   *|
|* and the reason is among the context's messages. A context and its modules belong to one *|
|* thread at a time; different contexts are independent.                                   *|
|*                                                                                         *|
\*===-------------------------------------------------------------------------------------===*/

#ifndef COMMSCHED_C_COMMSCHED_H
#define COMMSCHED_C_COMMSCHED_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define COMMSCHED_EXPORT __attribute__((visibility("default")))
#else
#define COMMSCHED_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** The library's version, such as "0.1.0". */
COMMSCHED_EXPORT const char *commschedGetVersion(void);

/*===--- Contexts and their messages ------------------------------------------------------===*/

/** Holds the dialects (upstream's and comm), and the messages of everything done in it. */
typedef struct CommSchedContext CommSchedContext;

/** Makes a context. Returns NULL only when memory runs out. */
COMMSCHED_EXPORT CommSchedContext *commschedContextCreate(void);

/** Frees a context. Its modules have to be destroyed before. NULL is allowed. */
COMMSCHED_EXPORT void commschedContextDestroy(CommSchedContext *context);

/** Whether operations of dialects that nobody registered are accepted (0, the default, or 1). */
COMMSCHED_EXPORT void commschedContextAllowUnregisteredDialects(CommSchedContext *context, int allow);

typedef enum CommSchedMessageKind {
  COMMSCHED_ERROR = 0,
  COMMSCHED_WARNING = 1,
  COMMSCHED_NOTE = 2,           /**< Belongs to the message before it. */
  COMMSCHED_REMARK = 3,         /**< A diagnostic of severity remark. */
  COMMSCHED_REMARK_PASSED = 4,  /**< An optimization was applied. */
  COMMSCHED_REMARK_MISSED = 5,  /**< It was not, and the text says why. */
  COMMSCHED_REMARK_FAILED = 6,  /**< It was tried and failed. */
  COMMSCHED_REMARK_ANALYSIS = 7 /**< Facts, such as times and sizes. */
} CommSchedMessageKind;

/** The strings live until the context's messages are cleared or the context is destroyed. None is NULL. */
typedef struct CommSchedMessage {
  CommSchedMessageKind kind;
  const char *location; /**< "file:line:column", or "" where there is none. */
  const char *category; /**< The pass's name, for COMMSCHED_REMARK_PASSED and above; otherwise "". */
  const char *name;     /**< The remark's name, for COMMSCHED_REMARK_PASSED and above; otherwise "". */
  const char *text;
} CommSchedMessage;

/** The number of messages since the context was made or its messages were cleared. */
COMMSCHED_EXPORT size_t commschedContextGetNumMessages(const CommSchedContext *context);

/** Message `index`, in the order of their coming. An index out of range gives an empty note. */
COMMSCHED_EXPORT CommSchedMessage commschedContextGetMessage(const CommSchedContext *context, size_t index);

COMMSCHED_EXPORT void commschedContextClearMessages(CommSchedContext *context);

/*===--- What passes ask their context for ----------------------------------------------===*/

/**
 * Sets the machine that passes believe whose option `machine` is not given: the name of a shipped profile, or a path.
 * Returns 0 on success; a machine that cannot be loaded changes nothing.
 */
COMMSCHED_EXPORT int commschedContextSetMachine(CommSchedContext *context, const char *machine);

/**
 * Estimates one execution of an operation, ns; a negative number leaves it to the library's models. `name` is that of
 * the operation ("linalg.matmul") or of a comm.compute ("aten.mm.default"), `location` what its location says: a name,
 * "file:line:column" or "". Operations whose comm.cost has a time are not asked for. Equal questions need equal
 * answers.
 */
typedef int64_t (*CommSchedEstimate)(const char *name, const char *location, void *data);

/** Sets the estimate that all passes in the context ask, with `data` as its last argument; NULL for none. */
COMMSCHED_EXPORT void commschedContextSetEstimate(CommSchedContext *context, CommSchedEstimate estimate, void *data);

/**
 * Gathers `count` times, ns, from every rank, as an all-gather does: `own` are this rank's, and rank r's go to
 * `all[r * count]` and behind. Returns 0 on success.
 */
typedef int (*CommSchedGather)(const int64_t *own, size_t count, int64_t *all, void *data);

/** Sets how comm-align-costs, if it is given no profiles, gets the costs of `numRanks` ranks; NULL for none. */
COMMSCHED_EXPORT void commschedContextSetGather(CommSchedContext *context, size_t numRanks, CommSchedGather gather,
                                                void *data);

/*===--- Buffers ------------------------------------------------------------------------===*/

/** Bytes that the library allocated; `data[length]` is 0. To be freed with commschedBufferDestroy. */
typedef struct CommSchedBuffer {
  char *data;
  size_t length;
} CommSchedBuffer;

COMMSCHED_EXPORT void commschedBufferDestroy(CommSchedBuffer buffer);

/*===--- Modules --------------------------------------------------------------------------===*/

/** A parsed program. */
typedef struct CommSchedModule CommSchedModule;

/**
 * Parses and verifies MLIR text or bytecode of `length` bytes. `name` is the file name in messages; NULL stands for
 * "<memory>". Returns NULL on failure.
 */
COMMSCHED_EXPORT CommSchedModule *commschedModuleParse(CommSchedContext *context, const char *data, size_t length,
                                                       const char *name);

/** Frees a module. NULL is allowed. */
COMMSCHED_EXPORT void commschedModuleDestroy(CommSchedModule *module);

/**
 * Runs passes over the module, given as text: "canonicalize,comm-raise" or "reorder-comm-overlap{solver=schedule}",
 * with or without an enclosing "builtin.module(...)". Returns 0 on success. After a failure the module may be half
 * transformed: parse it again to go on.
 */
COMMSCHED_EXPORT int commschedModuleRunPipeline(CommSchedModule *module, const char *pipeline);

/**
 * Runs passes as commschedModuleRunPipeline does, and measures the module before and after them by the models of
 * `machine` (the name of a shipped profile, such as "h100-sxm", or a path; NULL stands for the default). `*report`
 * becomes the JSON that comm-opt --comm-report writes, or {NULL, 0} on failure. An empty pipeline measures the module
 * as it is.
 */
COMMSCHED_EXPORT int commschedModuleRunPipelineWithReport(CommSchedModule *module, const char *pipeline,
                                                          const char *machine, CommSchedBuffer *report);

/** Verifies the module. Returns 0 when it is valid. */
COMMSCHED_EXPORT int commschedModuleVerify(CommSchedModule *module);

/** The module as text; with locations if `withLocations` is not 0. */
COMMSCHED_EXPORT CommSchedBuffer commschedModulePrint(CommSchedModule *module, int withLocations);

/** The module as bytecode. `data` is NULL if it cannot be written. */
COMMSCHED_EXPORT CommSchedBuffer commschedModuleWriteBytecode(CommSchedModule *module);

/**
 * The order of the operations, as JSON: what a front end applies to its own graph. One entry per function:
 * {"functions": [{"name": ..., "signature": ..., "ops": [["comm.all_gather", ["names", "of", "its", "location"]],
 * ...]}]} "ops" are those of the entry block, the terminator left out. The names are those of the location's name
 * locations: an operation that stands for several of the input's (a bucket) carries all of theirs. "signature" is
 * `comm.schedule_signature`, or "". `data` is NULL when memory runs out.
 */
COMMSCHED_EXPORT CommSchedBuffer commschedModuleListOperations(CommSchedModule *module);

#ifdef __cplusplus
}
#endif

#endif /* COMMSCHED_C_COMMSCHED_H */
