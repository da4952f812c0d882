"""Checks that the remarks of comm-schedule and the report give the same reasons for the same exposed times.

  check_reasons.py REMARKS.txt REPORT.json
"""

import collections
import json
import re
import sys

remarks = collections.Counter()
for line in open(sys.argv[1]):
    exposed = re.search(r"ExposedNsAfter=(\d+)", line)
    if exposed and int(exposed[1]) > 0:
        remarks[int(exposed[1]), re.search(r'LimitingFactor="([^"]*)"', line)[1]] += 1
rows = collections.Counter((row["exposed_ns"]["after"], row["limiting_factor"])
                           for function in json.load(open(sys.argv[2]))["functions"]
                           for row in function["per_collective"] if row["exposed_ns"]["after"] > 0)
assert rows, "nothing is exposed: the test compares nothing"
assert remarks == rows, f"only in remarks: {remarks - rows}; only in the report: {rows - remarks}"
print(len(rows), "exposed collectives")
