/*===- CommSched.h - CommSched from plain C -------------------------------------*- C -*-===*\
|*                                                                                         *|
|* Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.                  *|
|* See LICENSE for licence information.                                                    *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                                 *|
|*                                                                                         *|
|*===-------------------------------------------------------------------------------------===*|
|*                                                                                         *|
|* Parses a program, runs passes over it, returns their messages, and prints the program.  *|
|* This header needs only a C99 compiler. Its library, libCommSched-c.so, needs no C++ on  *|
|* the user's side. Users of MLIR's own C API include Registration.h instead.              *|
|*                                                                                         *|
|* No function exits, aborts or prints. A function that can fail returns a status, and the *|
|* reason is among the context's messages. A context and its modules belong to one thread  *|
|* at a time; different contexts are independent.                                          *|
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

/** The library's version, such as "0.2.0". */
COMMSCHED_EXPORT const char *commschedGetVersion(void);

/*===--- Contexts and their messages ------------------------------------------------------===*/

/** Contains the dialects (upstream's and comm), and the messages of all calls on it. */
typedef struct CommSchedContext CommSchedContext;

/** Creates a context. Returns NULL only if memory runs out. */
COMMSCHED_EXPORT CommSchedContext *commschedContextCreate(void);

/** Frees a context. Destroy its modules first. NULL is allowed. */
COMMSCHED_EXPORT void commschedContextDestroy(CommSchedContext *context);

/** Accepts (1) or rejects (0, the default) operations of unregistered dialects. */
COMMSCHED_EXPORT void commschedContextAllowUnregisteredDialects(CommSchedContext *context, int allow);

typedef enum CommSchedMessageKind {
  COMMSCHED_ERROR = 0,
  COMMSCHED_WARNING = 1,
  COMMSCHED_NOTE = 2,           /**< Belongs to the message before it. */
  COMMSCHED_REMARK = 3,         /**< A diagnostic of severity remark. */
  COMMSCHED_REMARK_PASSED = 4,  /**< An optimization was applied. */
  COMMSCHED_REMARK_MISSED = 5,  /**< It was not applied, and the text gives the reason. */
  COMMSCHED_REMARK_FAILED = 6,  /**< It was tried and failed. */
  COMMSCHED_REMARK_ANALYSIS = 7 /**< Facts, such as times and sizes. */
} CommSchedMessageKind;

/** The strings live until the context's messages are cleared or the context is destroyed. None is NULL. */
typedef struct CommSchedMessage {
  CommSchedMessageKind kind;
  const char *location; /**< "file:line:column", or "" if there is none. */
  const char *category; /**< The pass's name, for COMMSCHED_REMARK_PASSED and above; otherwise "". */
  const char *name;     /**< The remark's name, for COMMSCHED_REMARK_PASSED and above; otherwise "". */
  const char *text;
} CommSchedMessage;

/** The number of messages since the context was created or its messages were cleared. */
COMMSCHED_EXPORT size_t commschedContextGetNumMessages(const CommSchedContext *context);

/** Message `index`, in order of emission. An index out of range returns an empty note. */
COMMSCHED_EXPORT CommSchedMessage commschedContextGetMessage(const CommSchedContext *context, size_t index);

COMMSCHED_EXPORT void commschedContextClearMessages(CommSchedContext *context);

/*===--- Settings for passes ------------------------------------------------------------===*/

/**
 * Sets the machine of passes whose option `machine` is not given: the name of a shipped profile, or a path. Returns 0
 * on success; a machine that cannot be loaded changes nothing.
 */
COMMSCHED_EXPORT int commschedContextSetMachine(CommSchedContext *context, const char *machine);

/**
 * Estimates one execution of an operation, ns; a negative number selects the library's models. `name` is that of the
 * operation ("linalg.matmul") or of a comm.compute ("aten.mm.default"). `location` is the text of its location: a name,
 * "file:line:column" or "". Not called for operations whose comm.cost has a time. Equal queries must give equal
 * answers.
 */
typedef int64_t (*CommSchedEstimate)(const char *name, const char *location, void *data);

/** Sets the estimate of all passes in the context, with `data` as its last argument; NULL for none. */
COMMSCHED_EXPORT void commschedContextSetEstimate(CommSchedContext *context, CommSchedEstimate estimate, void *data);

/**
 * Sets the estimated times of collectives of one kind on one group by size, before the tables of every machine. They
 * price what is not an operation yet, such as a bucket. `kind` is "all_gather" or another kind of a profile's table,
 * `group` the symbol of a comm.group, and `element` a type such as "bf16", or NULL for every type without times of its
 * own. `bytes` and `ns` have `count` entries, at least one; `bytes` ascend strictly. Times between two sizes are
 * interpolated. Times that were set before for the same collectives are replaced. Returns 0 on success; a failure
 * changes nothing.
 */
COMMSCHED_EXPORT int commschedContextSetCurve(CommSchedContext *context, const char *kind, const char *group,
                                              const char *element, size_t count, const int64_t *bytes,
                                              const int64_t *ns);

/**
 * Gives passes a second opinion: the costs of whoever made the order that a schedule replaces. comm-schedule then plays
 * its answers with both costs, and replaces one that is slower than the given order by either. `names` are those in
 * locations of operations; an operation with several names takes their times together, in `ns`, and one without any
 * takes what it takes anyway. Forgets the curves and the answers that were set before. Returns 0 on success; a failure
 * changes nothing.
 */
COMMSCHED_EXPORT int commschedContextSetPeerTimes(CommSchedContext *context, size_t count, const char *const *names,
                                                  const int64_t *ns);

/** As commschedContextSetCurve, for the second opinion, after commschedContextSetPeerTimes. */
COMMSCHED_EXPORT int commschedContextSetPeerCurve(CommSchedContext *context, const char *kind, const char *group,
                                                  const char *element, size_t count, const int64_t *bytes,
                                                  const int64_t *ns);

/** The numbers that commschedModulePlay writes. */
#define COMMSCHED_PLAYED 11

/**
 * Writes what `count` orders of somebody else take, which a schedule of the module replaces beside the given one: for
 * each order the COMMSCHED_PLAYED numbers of commschedModulePlay. `played` has place for `capacity` numbers. Returns
 * how many orders there are. comm-schedule asks at most once for each block with collectives.
 */
typedef size_t (*CommSchedPeerAnswers)(int64_t *played, size_t capacity, void *data);

/**
 * Tells the operations of order `index`, which CommSchedPeerAnswers calls this for as far as they are known: `names`
 * are those in locations, in the order's own sequence. Indexed like them, `buckets` has the number of the bucket that a
 * collective is merged into, or -1. The collectives of a bucket stand where it starts, and their waits where it is
 * waited for. comm-schedule takes such an order over if its own answers are slower. Returns 0 on success; a failure
 * changes nothing.
 */
COMMSCHED_EXPORT int commschedContextSetPeerOrder(CommSchedContext *context, size_t index, size_t count,
                                                  const char *const *names, const int64_t *buckets);

/** Sets the orders of the second opinion, with `data` as the last argument; NULL for none. */
COMMSCHED_EXPORT void commschedContextSetPeerAnswers(CommSchedContext *context, CommSchedPeerAnswers answers,
                                                     void *data);

/**
 * Gathers `count` numbers from every rank, as an all-gather does. `own` are this rank's numbers; those of rank r begin
 * at `all[r * count]`. Returns 0 on success. comm-align-costs calls it twice: all ranks pass the same `count` each
 * time.
 */
typedef int (*CommSchedGather)(const int64_t *own, size_t count, int64_t *all, void *data);

/** Sets the source of the costs of `numRanks` ranks for comm-align-costs without profiles; NULL for none. */
COMMSCHED_EXPORT void commschedContextSetGather(CommSchedContext *context, size_t numRanks, CommSchedGather gather,
                                                void *data);

/*===--- Buffers ------------------------------------------------------------------------===*/

/** Bytes that the library allocated; `data[length]` is 0. Free them with commschedBufferDestroy. */
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
 * Plays the one block of a module that has collectives, in its own order, with the costs of `machine` and with those of
 * the context's second opinion: writes the peak of its live bytes and, for each of both costs, the makespans in ns if
 * collectives take 0.75, 1, 1.25, 1.5 and 2 times as long. Returns 0 on success.
 */
COMMSCHED_EXPORT int commschedModulePlay(CommSchedModule *module, const char *machine,
                                         int64_t played[COMMSCHED_PLAYED]);

/**
 * Runs passes over the module, given as text: "canonicalize,comm-raise" or "reorder-comm-overlap{effort=0}",
 * with or without an enclosing "builtin.module(...)". Returns 0 on success. After a failure the module may be half
 * transformed: parse it again to continue.
 */
COMMSCHED_EXPORT int commschedModuleRunPipeline(CommSchedModule *module, const char *pipeline);

/**
 * Runs passes as commschedModuleRunPipeline does, and measures the module before and after them with the models of
 * `machine` (the name of a shipped profile, such as "h100-sxm", or a path; NULL stands for the default). `*report`
 * becomes the JSON that comm-opt --comm-report writes, or {NULL, 0} on failure. An empty pipeline measures the module
 * as it is.
 */
COMMSCHED_EXPORT int commschedModuleRunPipelineWithReport(CommSchedModule *module, const char *pipeline,
                                                          const char *machine, CommSchedBuffer *report);

/** Verifies the module. Returns 0 if it is valid. */
COMMSCHED_EXPORT int commschedModuleVerify(CommSchedModule *module);

/** The module as text; with locations if `withLocations` is not 0. */
COMMSCHED_EXPORT CommSchedBuffer commschedModulePrint(CommSchedModule *module, int withLocations);

/** The module as bytecode. `data` is NULL if it cannot be written. */
COMMSCHED_EXPORT CommSchedBuffer commschedModuleWriteBytecode(CommSchedModule *module);

/**
 * The order of the operations, as JSON, for a front end that applies it to its own graph. One entry per function:
 * {"functions": [{"name": ..., "signature": ..., "ops": [["comm.all_gather", ["names", "of", "its", "location"]],
 * ...]}]} "ops" are the operations of the entry block without the terminator. The names are those of the location's
 * name locations: an operation that replaces several of the input's (a bucket) has all of their names. "signature" is
 * `comm.schedule_signature`, or "". `data` is NULL if memory runs out.
 */
COMMSCHED_EXPORT CommSchedBuffer commschedModuleListOperations(CommSchedModule *module);

/**
 * The operations with their operands and results, as JSON, for a front end that follows a rewrite in its own graph:
 * {"functions": [{"name": ..., "arguments": [shapes], "ops": [["comm.wait", ["names", "of", "its", "location"],
 * [operands], [results], [shapes], [offsets], "attributes"], ...], "returned": [values]}]}. "ops" are those of
 * commschedModuleListOperations. A value is a number: the arguments of the function come first. "returned" are the
 * operands of the terminator. There is one shape per argument and result, null unless it is a tensor, or a future of
 * one, of static size. The offsets are those of a slice, if they are constant. The attributes are those that say what
 * the operation is, as text, without large constants. `data` is NULL if memory runs out.
 */
COMMSCHED_EXPORT CommSchedBuffer commschedModuleListDataflow(CommSchedModule *module);

#ifdef __cplusplus
}
#endif

#endif /* COMMSCHED_C_COMMSCHED_H */
