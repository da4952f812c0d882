# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Prints a profile with one measured table and one measured operation, with or without error bars."""

import argparse
import json
import pathlib

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("base", type=pathlib.Path)
parser.add_argument("--without-bars", action="store_true")
arguments = parser.parse_args()

profile = json.loads(arguments.base.read_text())
profile["overheads"] = {"issue_ns": 0, "source": "test"}
point = {"bytes": 1 << 20, "ns": 90000, "lo_ns": 80000, "hi_ns": 110000, "n": 20, "rejected": 1}
product = {"name": "product", "ns": 100000, "lo_ns": 95000, "hi_ns": 105000, "n": 30}
if arguments.without_bars:
    for entry in (point, product):
        for key in ("lo_ns", "hi_ns", "n", "rejected"):
            entry.pop(key, None)
profile["collectives"] = [{"kind": "all_gather", "ranks": 8, "nodes": 1, "points": [point], "flags": ["skew"]}]
profile["ops"] = [product]
print(json.dumps(profile))
