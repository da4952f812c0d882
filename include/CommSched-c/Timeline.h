/*===- Timeline.h - Recorded timelines as a page from plain C -------------------*- C -*-===*\
|*                                                                                         *|
|* Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.                  *|
|* See LICENSE for licence information.                                                    *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                                 *|
|*                                                                                         *|
|*===-------------------------------------------------------------------------------------===*|
|*                                                                                         *|
|* The page that comm-opt --comm-timeline=FILE.html writes, for timelines that somebody    *|
|* else recorded: what ran when on each rank, without memory, costs and dependences.       *|
|*                                                                                         *|
\*===-------------------------------------------------------------------------------------===*/

#ifndef COMMSCHED_C_TIMELINE_H
#define COMMSCHED_C_TIMELINE_H

#include "CommSched-c/CommSched.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Writes recorded timelines to the file `path` as one HTML page that needs no network, one below the other on one axis
 * of time. The file appears as a whole or not at all. `request` is JSON of `length` bytes:
 *
 *   "strings"  texts, to which the tables refer by number
 *   "notes"    texts for the legend
 *   "sides"    the timelines, at least one
 *
 * Fields of a side:
 *
 *   "title", "note"   its name, and more about it in small letters
 *   "begin", "end"    its first and its last moment
 *   "bound"           a lower bound on the time from its first moment to its last; 0: none
 *   "figures"         {"name", "ns"}, at least one; the page shows the others as shares of the first
 *   "lanes"           names of the rows, of which row 0 computes
 *   "loads"           for each row, the time for which it is busy
 *   "ops"             table of operations
 *   "starts"          table of those that are collectives
 *   "waits"           table of those that are exposed time
 *   "spans"           table of the rectangles
 *
 * A table is an object of columns, which are arrays of integers of equal length:
 *
 *   "ops"     "kind" (a text), "group" (a text, or -1), and, if any neighbours are drawn as one, "count" (how many)
 *   "starts"  "op", "bytes" (-1: unknown), "ranks" (0: unknown), "exposed", "late" (the part of it in which other
 *             ranks have not come), "match" (what the same collective has on other sides, too; -1: unknown)
 *   "waits"   "op", "start" (the operation that runs meanwhile), "exposed", "factor" (a text that says why, or -1)
 *   "spans"   "op", "row", "start", "length", "stall" (1: exposed time, 0: anything else)
 *
 * "op" is a row of "ops". Times are in ns, at least 0 and at most 2^53. Fields of other names are ignored.
 *
 * Returns 0, or 1 and the reason as `*reason`, with the place in the request; destroy it in both cases. O(length).
 */
COMMSCHED_EXPORT int commschedTimelineWritePage(const char *request, size_t length, const char *path,
                                                CommSchedBuffer *reason);

#ifdef __cplusplus
}
#endif

#endif /* COMMSCHED_C_TIMELINE_H */
