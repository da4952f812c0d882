# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks the arrows of a timeline trace by the rules of the Trace Event Format: check_trace.py TRACE PROCESS=ARROWS...

Every arrow has one start ("s") and one end ("f") of its category, name and id, each inside of a rectangle ("X") of its
process and thread. An arrow begins in a collective. It ends in the exposed wait that ends with the collective, or in a
computation that begins when the collective has ended. The command line names the processes with their numbers of
arrows.
"""

import json
import sys
from collections import Counter

with open(sys.argv[1]) as file:
    events = json.load(file)["traceEvents"]
expected = {name: int(count) for name, _, count in (argument.rpartition("=") for argument in sys.argv[2:])}


def ns(microseconds):
    return round(microseconds * 1000)


def name_of(kind):
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == kind}


processes = {pid: name for (pid, _), name in name_of("process_name").items()}
assert len(processes) == len(set(processes.values())), processes
threads = name_of("thread_name")

rows = {}
for event in events:
    if event["ph"] == "X":
        row = rows.setdefault((event["pid"], event["tid"]), [])
        row.append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]), event["cat"]))
for where, row in rows.items():
    assert where in threads and where[0] in processes, where
    for before, after in zip(sorted(row), sorted(row)[1:]):
        assert before[1] <= after[0], f"rectangles overlap: {before}, {after}"


def around(event):
    """The rectangle that an end of an arrow is in."""
    row, moment = rows[event["pid"], event["tid"]], ns(event["ts"])
    inside = [span for span in row if span[0] <= moment < span[1]]
    assert len(inside) == 1, f"{event} is inside of {inside}"
    return inside[0]


def key(event):
    return event["cat"], event["name"], event["id"]


starts = {key(event): event for event in events if event["ph"] == "s"}
ends = {key(event): event for event in events if event["ph"] == "f"}
assert Counter(key(event) for event in events if event["ph"] in "sf") == dict.fromkeys(starts, 2)
assert starts.keys() == ends.keys()
# A reader that sorts by time, and keeps the order of the file at equal times, sees the rectangle, the start, the end.
ends_by_time = {}
for event in sorted((e for e in events if e["ph"] in "Xsf"), key=lambda e: e["ts"]):
    if event["ph"] == "f":
        assert ends_by_time.get(key(event)) == "s", event
    if event["ph"] in "sf":
        ends_by_time[key(event)] = event["ph"]
for arrow, start in starts.items():
    end = ends[arrow]
    assert start["pid"] == end["pid"] and end["bp"] == "e"
    collective, target = around(start), around(end)
    assert collective[2] == "collective", collective
    if target[2] == "exposed":
        assert target[1] == collective[1], (collective, target)
    else:
        assert target[2] == "compute" and target[0] >= collective[1], (
            collective,
            target,
        )

arrows = Counter(processes[start["pid"]] for start in starts.values())
assert {name: arrows[name] for name in processes.values()} == expected, arrows
print("arrows:", len(starts))
