# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs a module of XLA as it is and in three other forms, on 4 ranks, and says whether all bits are equal.

run_hlo.py MODULE.pb PREFIX

The others are the order of the import after `reorder-comm-overlap`, and the imports of the module after `commsched-hlo`,
and after `commsched-hlo --buckets`, which takes merged collectives apart and merges others. Files are written with the
prefix.
"""

import json
import subprocess
import sys

module, prefix = sys.argv[1:]


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


given, ours, scheduled, again, rewritten, report, merged = (
    f"{prefix}.{name}"
    for name in ("given.mlir", "ours.mlir", "pb", "again.mlir", "buckets.pb", "buckets.json", "buckets.mlir")
)
run("comm-opt", "--import-hlo", module, "-o", given)
run("comm-opt", given, "--reorder-comm-overlap=bucketing=false", "-o", ours)
run("commsched-hlo", module, "-o", scheduled)
run("comm-opt", "--import-hlo", scheduled, "-o", again)
run("commsched-hlo", module, "--buckets", "-o", rewritten, "--report", report)
run("comm-opt", "--import-hlo", rewritten, "-o", merged)
texts = [open(path).read() for path in (given, ours, again, merged)]
print("changed:", sum(text != texts[0] for text in texts[1:]), "of 3 forms")
buckets = json.load(open(report))
print(f"taken apart: {buckets['taken_apart']}, merged: {buckets['buckets']}")
others = [option for path in (ours, again, merged) for option in ("--compare", path)]
print(run("comm-run", given, "--ranks", "4", *others), end="")
