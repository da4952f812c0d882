# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs a module of XLA in its own order and in two others, on 4 ranks, and says whether all bits are equal.

run_hlo.py MODULE.pb PREFIX

The others are the order of the import after `reorder-comm-overlap`, and the import of the module after `commsched-hlo`.
Files are written with the prefix.
"""

import subprocess
import sys

module, prefix = sys.argv[1:]


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


given, ours, scheduled, again = (f"{prefix}.{name}" for name in ("given.mlir", "ours.mlir", "pb", "again.mlir"))
run("comm-opt", "--import-hlo", module, "-o", given)
run("comm-opt", given, "--reorder-comm-overlap=bucketing=false", "-o", ours)
run("commsched-hlo", module, "-o", scheduled)
run("comm-opt", "--import-hlo", scheduled, "-o", again)
texts = [open(path).read() for path in (given, ours, again)]
print("changed:", sum(text != texts[0] for text in texts[1:]), "of 2 orders")
print(run("comm-run", given, "--ranks", "4", "--compare", ours, "--compare", again), end="")
