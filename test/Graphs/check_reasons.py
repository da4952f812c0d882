"""Checks that the remarks of a pass and the report give the same reasons, in the same words, for the same exposed times.

  check_reasons.py REMARKS.txt REPORT.json

REMARKS.txt has the remarks of comm-schedule, or of the last reordering pass.
"""

import collections
import json
import re
import sys

report = json.load(open(sys.argv[2]))
rows = collections.Counter(
    (row["exposed_ns"]["after"], row["limiting_factor"])
    for function in report["functions"]
    for row in function["per_collective"]
    if row["exposed_ns"]["after"] > 0
)
assert rows, "nothing is exposed: the test compares nothing"

remarks = collections.Counter()
moves = {}
for line in open(sys.argv[1]):
    if "Category:comm-schedule" in line:
        exposed = re.search(r"ExposedNsAfter=(\d+)", line)
        if int(exposed[1]) > 0:
            remarks[int(exposed[1]), re.search(r'LimitingFactor="([^"]*)"', line)[1]] += 1
    elif found := re.search(r'loc\("([^"]+)"\).*Remark="(.*)"', line):
        moves[found[1]] = found[2]

# A reordering pass says in a sentence what comm-schedule says in numbers; its rows in the report have the numbers.
for row in report["passes"][-1]["per_collective"] if moves else []:
    if row["exposed_ns"]["after"] > 0:
        assert f": {row['exposed_because']}" in moves[row["loc"]], f"{row['exposed_because']}: not in {moves[row['loc']]}"
        remarks[row["exposed_ns"]["after"], row["exposed_because"]] += 1

assert remarks == rows, f"only in remarks: {remarks - rows}; only in the report: {rows - remarks}"
print(len(rows), "exposed collectives")
