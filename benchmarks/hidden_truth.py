#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Plans made with calibrated contention, and without any, on a machine whose true contention nobody has told them.

For each seed, hidden coefficients are drawn: by how much each kind of collective slows matrix products and kernels
that are bound by memory, and they it. A calibration knows each of them with an error of at most 5 %. Every program is
planned with the truth, with the estimates, and without contention, and all three plans are played with the truth.
Nothing is measured on hardware.

    python benchmarks/hidden_truth.py test/Graphs/*.mlirbc --markdown docs/research/results/hidden-truth.md
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
# Permille, as published: computations lose 10 to 40 % beside collectives, 18.9 % on average; kernels that are bound by
# memory lose up to 83 %.
COMPUTE = {"matrix": (60, 320), "memory": (150, 800)}
COLLECTIVE = {"matrix": (0, 150), "memory": (100, 500)}
MEAN_OF_MATRIX = 189
BYTES = 64 << 20
ERROR = 0.05
MS = 1e6


def draw_truth(random_numbers: random.Random) -> list[dict]:
    """A contention table. Its slow-downs of matrix products have the published mean."""
    table = [
        {
            "kind": kind,
            "bytes": BYTES,
            "against": against,
            "compute_permille": random_numbers.randint(*COMPUTE[against]),
            "collective_permille": random_numbers.randint(*COLLECTIVE[against]),
        }
        for kind in KINDS
        for against in COMPUTE
    ]
    products = [entry for entry in table if entry["against"] == "matrix"]
    mean = sum(entry["compute_permille"] for entry in products) / len(products)
    for entry in products:
        entry["compute_permille"] = round(entry["compute_permille"] * MEAN_OF_MATRIX / mean)
    return table


def calibrate(truth: list[dict], random_numbers: random.Random) -> list[dict]:
    """The same table as a calibration would know it."""
    return [
        {
            **entry,
            **{
                name: round(entry[name] * random_numbers.uniform(1 - ERROR, 1 + ERROR))
                for name in ("compute_permille", "collective_permille")
            },
        }
        for entry in truth
    ]


def replay(tool: str, program: Path, plan: str, truth: str, folder: Path) -> dict:
    """Schedules with the profile `plan`, and measures the result with the profile `truth`."""
    report = folder / "report.json"
    pipeline = f"reorder-comm-overlap{{machine={truth} passes=comm-schedule{{machine={plan}}} report-file={report}}}"
    command = [tool, str(program), f"--pass-pipeline=builtin.module({pipeline})", "-o", "/dev/null"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return json.loads(report.read_text())["functions"][0]


def study(settings: argparse.Namespace) -> list[dict]:
    """One result per program and seed, times in ms."""
    results = []
    profile = json.loads((Path(__file__).parent.parent / "machines" / f"{settings.machine}.json").read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
            numbers = random.Random(seed)
            truth = draw_truth(numbers)
            for file, table in (("truth", truth), ("estimate", calibrate(truth, numbers))):
                (folder / f"{file}.json").write_text(json.dumps({**profile, "contention": table}))
            plans = {p: str(folder / f"{p}.json") for p in ("truth", "estimate")} | {"none": settings.machine}
            for program in settings.programs:
                result: dict = {"program": program.stem, "seed": seed}
                for plan, machine in plans.items():
                    function = replay(settings.comm_opt, program, machine, plans["truth"], folder)
                    result[plan] = function["makespan_ns"]["after"] / MS
                    if plan == "none":
                        result["given"] = function["makespan_ns"]["before"] / MS
                        result["bound"] = function["makespan_ns"]["lower_bound"] / MS
                results.append(result)
                print(json.dumps(result), file=sys.stderr, flush=True)
    return results


def percent(value: float, reference: float) -> float:
    return 100 * (value / reference - 1)


def page(settings: argparse.Namespace, results: list[dict]) -> str:
    names = " ".join(str(program) for program in settings.programs)
    behind = [percent(r["estimate"], r["truth"]) for r in results]
    won = [-percent(r["estimate"], r["none"]) for r in results]
    rows = [
        f"| {r['program']} | {r['seed']} | {r['given']:.1f} | {r['none']:.1f} | {r['estimate']:.1f} | {r['truth']:.1f} "
        f"| {r['bound']:.1f} | {percent(r['estimate'], r['truth']):+.2f} | {-percent(r['estimate'], r['none']):.2f} |"
        for r in results
    ]
    command = f"python benchmarks/hidden_truth.py {names} --seeds {settings.seeds}"
    return f"""# Plans for a machine whose contention is hidden

Written by `{command}`;
machine profile `{settings.machine}` with a drawn contention table
([MachineModel.md](../../guide/MachineModel.md#contention)).

A simulation: for each seed, hidden coefficients are drawn for each kind of collective against each kind of kernel;
matrix products lose {MEAN_OF_MATRIX / 10} % on average beside a collective. A plan knows the coefficients (*truth*),
knows them with errors of at most {ERROR:.0%} (*estimate*), or knows of no contention (*none*). All are played with the
truth. Times are in ms; *bound* is a lower bound for any order and merging.

| program | seed | as given | none | estimate | truth | bound | estimate behind truth, % | won against none, % |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

The plans with estimates are at most {max(behind):.2f} % behind those that knew the truth. Against plans without
contention they win from {min(won):.2f} to {max(won):.2f} %, {sum(won) / len(won):.2f} % on average.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=Path, help="MLIR files with one function each")
    parser.add_argument("--comm-opt", default="build/bin/comm-opt")
    parser.add_argument("--machine", default="h100-sxm", help="a shipped profile without contention")
    parser.add_argument("--seeds", type=int, default=3, help="number of machines that are drawn")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--markdown", type=Path, help="write the page to this file")
    settings = parser.parse_args()
    text = page(settings, study(settings))
    if settings.markdown:
        settings.markdown.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
