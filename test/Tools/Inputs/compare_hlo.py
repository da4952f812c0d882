# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compares the report of a module of XLA with that of its import: the same graph has the same times.

compare_hlo.py HLO.json COMM.json [--entry]

The blocks of comm IR are matched with the computations that have collectives, in their order. Times are equal to the
nanosecond. Only the entry's may be shorter, by the conditions of loops, which scf.for does not have. Peaks are equal up
to XLA's alignment of each buffer. With --entry, the entry alone is compared: branches are no blocks of comm IR, and
collectives may overlap them, so that its lower bound may be lower.
"""

import json
import sys

# Buffers of these modules that are live at once, times XLA's alignment in bytes.
ALIGNMENT = 16 * 256

hlo, comm = (json.load(open(path)) for path in sys.argv[1:3])
computations = [c for c in hlo["computations"] if c["starts"]]
blocks = comm["functions"]
entry_alone = sys.argv[3:] == ["--entry"]
if entry_alone:
    computations = computations[-1:]
assert len(blocks) == len(computations) > 0, (len(blocks), len(computations))
loops = len(blocks) > 1
for one, block in zip(computations, blocks):
    entry = one is computations[-1]
    longer = one["makespan_ns"]["before"] - block["makespan_ns"]["before"]
    assert 0 < longer < one["makespan_ns"]["before"] // 20 if entry and loops else longer == 0, (one["name"], longer)
    exposed = sum(start["exposed_ns"]["before"] for start in one["starts"])  # without that of its callees
    assert exposed == block["exposed_ns"]["before"], one["name"]
    assert 0 <= one["peak_bytes"]["before"] - block["peak_bytes"]["before"] < ALIGNMENT, one["name"]
    if entry_alone:
        assert one["lower_bound_ns"] >= block["makespan_ns"]["lower_bound"], one["name"]
    elif not loops:
        assert one["lower_bound_ns"] == block["makespan_ns"]["lower_bound"], one["name"]
print("the same", len(blocks), "blocks")
