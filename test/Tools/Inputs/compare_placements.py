# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks that two tables of comm-place have the same best order with the same numbers, found from different given ones."""

import json
import sys

first, second = (json.load(open(path)) for path in sys.argv[1:])
best, again = first["placements"][0], second["placements"][0]
assert again["as_given"] and not best["as_given"], (best, again)
for key in ("inside_node", "groups", "makespan_ns", "peak_bytes", "bound_ns"):
    assert best[key] == again[key], (key, best[key], again[key])
others = [sorted(row["inside_node"].items()) for row in first["placements"]]
assert others == [sorted(row["inside_node"].items()) for row in second["placements"]], others
