#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Costs of noise: schedules of each objective in scenarios that no search has seen.

Each program is scheduled by `comm-schedule` with each objective, and all answers are played in the same
scenarios. The bound is the mean of the lower bounds of these scenarios.

    python benchmarks/noise.py test/Graphs/*.mlirbc --markdown docs/research/results/noise.md
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

OBJECTIVES = ("makespan", "robust", "regret")
MS = 1e6


def measure(tool: str, program: Path, settings: argparse.Namespace, passes: str) -> dict:
    """The report of the one function of `program` after `passes`, with the CPU seconds of the whole run."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        pipeline = (
            f"reorder-comm-overlap{{machine={settings.machine} passes={passes} scenarios={settings.scenarios} "
            f"collective-spread-permille={settings.spread} report-file={report}}}"
        )
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        command = [tool, str(program), f"--pass-pipeline=builtin.module({pipeline})", "-o", "/dev/null"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        function = json.loads(report.read_text())["functions"][0]
        return {**function, "seconds": resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used}


def rows(settings: argparse.Namespace) -> list[str]:
    """A row of the table per program and objective."""
    result = []
    for program in settings.programs:
        given = None
        for objective in OBJECTIVES:
            noise = f"objective={objective}"
            passes = f"comm-schedule{{machine={settings.machine} {noise}}}"
            report = measure(settings.comm_opt, program, settings, passes)
            found, nominal = report["scenarios"], report["makespan_ns"]
            if given is None:
                given = [nominal["before"], found["mean_ns"]["before"], found["p95_ns"]["before"]]
                cells = " | ".join(f"{value / MS:.1f}" for value in given)
                result.append(f"| {program.stem} | as given | {cells} | | |")
            bound = found["mean_ns"].get("order_lower_bound")  # not told where an answer that merges is below it
            values = (nominal["after"], found["mean_ns"]["after"], found["p95_ns"]["after"])
            cells = " | ".join(f"{value / MS:.1f}" for value in values)
            result.append(
                f"| | {objective} | {cells} | {f'{bound / MS:.1f}' if bound else ''} | {report['seconds']:.1f} |"
            )
    return result


def page(settings: argparse.Namespace, command: str) -> str:
    return "\n".join(
        [
            "# Schedules under noise",
            "",
            f"Written by `{command}`; machine profile `{settings.machine}`.",
            "",
            "`comm-schedule` minimizes the makespan, the makespan and the regret (robust, the default), or the",
            f"regret. Every answer is then played in {settings.scenarios} scenarios, in which collectives vary with a",
            f"spread of {settings.spread} permille and computations do not",
            "([Models.md](../../guide/Models.md#noise-scenariosh)). Times are in ms.",
            "*without noise* is the makespan if every duration is as expected. *bound* is the",
            "mean of the lower bounds of all scenarios for any order that merges nothing; answers that merge may",
            "be below it, and then have none here. Seconds are CPU seconds of the whole run, on a busy machine.",
            "",
            "| program | objective | without noise | mean | p95 | bound | CPU s |",
            "|---|---|---|---|---|---|---|",
            *rows(settings),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=Path, help="MLIR files with one function each")
    parser.add_argument("--comm-opt", default="build/bin/comm-opt")
    parser.add_argument("--machine", default="h100-sxm")
    parser.add_argument("--scenarios", type=int, default=512, help="number of scenarios of the measurement")
    parser.add_argument("--spread", type=int, default=300, help="spread of collectives, permille")
    parser.add_argument("--markdown", type=Path, help="write the page to this file")
    settings = parser.parse_args()
    names = " ".join(str(program) for program in settings.programs)
    text = page(settings, f"python benchmarks/noise.py {names} --spread {settings.spread}")
    if settings.markdown:
        settings.markdown.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
