# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Exports random programs of collectives: random_chakra.py COMM-OPT PROGRAMS.

Each program is exported in an order that passes chose, on one of three machines, and check_chakra.py plays its traces.
A program is refused only for what Chakra.md says, and then no file is there.
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "Run"))

import check_chakra
from random_program import Generator, module

REFUSALS = ("no collectives in regions", "operations on one stream", "a peer other than", "collectives, got none")
MACHINES = ("h100-sxm", "cpu-mpi", "b200-sxm")
PASSES = ("--comm-raise", "--comm-schedule=effort=2000", "--comm-sink-waits")


def main():
    opt, programs = sys.argv[1], int(sys.argv[2])
    played = 0
    for seed in range(programs):
        generator = Generator(seed, 4, 12)
        text = module(generator, generator.ops)
        with tempfile.TemporaryDirectory() as folder:
            traces, report = os.path.join(folder, "traces"), os.path.join(folder, "report.json")
            command = [opt, "-", PASSES[seed % 3], f"--comm-machine={MACHINES[seed // 3 % 3]}", "-o", os.devnull]
            command += [f"--comm-export-chakra=directory={traces}", f"--comm-report-file={report}"]
            run = subprocess.run(command, input=text, capture_output=True, text=True)
            if run.returncode:
                assert run.returncode == 1 and any(why in run.stderr for why in REFUSALS), f"{seed}: {run.stderr}"
                assert not os.path.exists(traces), seed
                continue
            with open(report) as file:
                (name,) = [function["name"] for function in json.load(file)["functions"] if "." not in function["name"]]
            check_chakra.check(traces, name, report)
            played += 1
    print(f"{played} of {programs} programs played")


if __name__ == "__main__":
    main()
