/*===- Calibration.h - Measuring collectives from plain C ----------------------*- C -*-===*\
|*                                                                                         *|
|* Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.                  *|
|* See LICENSE for licence information.                                                    *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                                 *|
|*                                                                                         *|
|*===-------------------------------------------------------------------------------------===*|
|*                                                                                         *|
|* The caller runs one collective and gathers numbers; the library decides how often and   *|
|* at which sizes, keeps what was measured, and writes a machine profile. Calibration.md   *|
|* describes the rules.                                                                    *|
|*                                                                                         *|
\*===-------------------------------------------------------------------------------------===*/

#ifndef COMMSCHED_C_CALIBRATION_H
#define COMMSCHED_C_CALIBRATION_H

#include "CommSched-c/CommSched.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A collective to time. */
typedef struct CommSchedProbe {
  const char *kind;    /**< As in a machine profile: "all_gather". */
  const char *element; /**< As in a machine profile: "bf16". */
  int64_t ranks;       /**< Of the group. */
  int64_t nodes;       /**< Over which the group's ranks are spread. */
  int64_t bytes;       /**< Gathered bytes of an all-gather or gather, otherwise what a rank holds before. */
} CommSchedProbe;

/**
 * What the caller does for a calibration. Every rank has one, and the library makes the same calls in the same order on
 * all ranks. Each function gets `data` last and returns 0 on success; after a failure the library calls `reason`.
 */
typedef struct CommSchedBench {
  int32_t rank, ranks;
  /** Makes buffers for runs of `probe`. If it fails on one rank, it has to fail on all. */
  int (*prepare)(const CommSchedProbe *probe, void *data);
  /** Runs the prepared collective once: ns from the start to the end of the wait, and of the call that starts it. */
  int (*run)(int64_t *total, int64_t *issue, void *data);
  /** Gathers `count` numbers from every rank; those of rank r begin at `all[r * count]`. */
  int (*gather)(const int64_t *own, size_t count, int64_t *all, void *data);
  /** A monotone clock, ns. */
  int64_t (*now)(void *data);
  /** Called with one line per point, if it is not NULL. */
  void (*progress)(const char *line, void *data);
  /** Why the last function failed. The text lives until the next call. */
  const char *(*reason)(void *data);
  void *data;
} CommSchedBench;

/**
 * Measures what `request` asks for, and writes a machine profile. `request` is JSON, and equal on all ranks but for
 * "known":
 *
 *   "base"         the profile that is completed: a name or a path
 *   "name"         the name of the result
 *   "recipe"       "median" or "seed" (one run to warm up, and the mean of two)
 *   "budget_ns"    begin no further point after this time; 0: no limit
 *   "cache"        the folder of measurements that are kept; "": keep none
 *   "fresh"        whether to ignore what the cache and "known" hold
 *   "fingerprint"  what decides the numbers; rank 0's holds
 *   "known"        what this process measured before: "known" of an earlier result, or ""
 *   "facts"        texts for the profile's "calibration"
 *   "curves"       {"kind", "element", "ranks", "nodes", "ranks_per_node"}, and "sizes" or {"least", "most"} in bytes,
 * or "skipped" with the reason why nothing is measured
 *
 * Collective over all ranks of `bench`. Returns 0 and a JSON object as `*result`: "profile" (an object), "known" (a
 * text), "measured" (points that this call measured), "points" (points in all) and "warnings" (texts). Returns 1 and
 * the reason as `*result` if the request is not as described or ranks cannot be reached. A collective that cannot be
 * measured is no failure: the profile's "calibration" lists it in "skipped". Destroy the buffer in both cases.
 */
COMMSCHED_EXPORT int commschedCalibrate(const CommSchedBench *bench, const char *request, CommSchedBuffer *result);

/**
 * A machine profile from the traces of a profiler (Calibration.md, "Costs from a trace"). `request` is JSON:
 *
 *   "traces"  paths: of one rank each
 *   "base"    the profile that is completed: a name or a path; "": the devices in the traces decide
 *   "name"    the name of the result
 *
 * Returns 0 and the profile as `*result`; its "calibration" lists what was not matched. Returns 1 and the reason if a
 * trace cannot be read. Destroy the buffer in both cases.
 */
COMMSCHED_EXPORT int commschedProfileFromTraces(const char *request, CommSchedBuffer *result);

/** The folder in which measurements are kept by default; empty if there is none. */
COMMSCHED_EXPORT CommSchedBuffer commschedCalibrationFolder(void);

#ifdef __cplusplus
}
#endif

#endif /* COMMSCHED_C_CALIBRATION_H */
