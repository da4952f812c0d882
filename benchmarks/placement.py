#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compares the orders of the mesh axes of traced training steps, and writes docs/research/results/placement.md.

Each step is traced by `trace_model.py` unless its graphs are in --graphs already, and goes through comm-place. Random
meshes of three axes on random machines of two levels follow: for how many the best order is proven to be the best.

    python benchmarks/placement.py --graphs build/placement --comm-place build/bin/comm-place
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/research/results/placement.md"
# Indexed by name: the arguments of trace_model.py.
STEPS = {
    "llama3-8b:64:tp=4": ["--model", "llama3-8b", "--ranks", "64", "--tp", "4"],
    "llama3-8b:64:tp=8": ["--model", "llama3-8b", "--ranks", "64", "--tp", "8"],
    "llama3-8b:128:tp=8": ["--model", "llama3-8b", "--ranks", "128", "--tp", "8"],
    "llama3-8b:256:tp=8": ["--model", "llama3-8b", "--ranks", "256", "--tp", "8"],
    "moe-16b:64:ep=8": ["--model", "moe-16b", "--ranks", "64", "--ep", "8"],
    "moe-16b:64:ep=16": ["--model", "moe-16b", "--ranks", "64", "--ep", "16"],
    "moe-16b:128:ep=8": ["--model", "moe-16b", "--ranks", "128", "--ep", "8"],
    "moe-16b:256:ep=8": ["--model", "moe-16b", "--ranks", "256", "--ep", "8"],
    "three-d:64:layers=1": ["--model", "three-d", "--ranks", "64", "--layers", "1"],
    "two-d:64:layers=2": ["--model", "two-d", "--ranks", "64", "--layers", "2"],
    "hybrid:64:layers=2": ["--model", "hybrid", "--ranks", "64", "--layers", "2"],
    "three-d:128:layers=1": ["--model", "three-d", "--ranks", "128", "--layers", "1"],
}


def parse_args(argv=None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--graphs", type=pathlib.Path, required=True, help="folder of the traced graphs")
    p.add_argument("--comm-place", default="comm-place", help="the tool")
    p.add_argument("--machine", default="h100-sxm")
    p.add_argument("--steps", nargs="*", default=list(STEPS), choices=list(STEPS), metavar="STEP")
    p.add_argument("--reuse", action="store_true", help="take the tables that an earlier run left in --graphs")
    p.add_argument("--random", type=int, default=60, help="number of random meshes")
    p.add_argument("--page", type=pathlib.Path, default=PAGE)
    return p.parse_args(argv)


def graphs_of(step: str, folder: pathlib.Path) -> list[pathlib.Path]:
    """The forward and the backward graph of a step, traced if they are not there."""
    place = folder / step.replace(":", "-").replace("=", "")
    files = [place / "fw.mlir", place / "bw.mlir"]
    if not all(file.exists() for file in files):
        command = [sys.executable, str(ROOT / "benchmarks/trace_model.py"), *STEPS[step], "--out", str(place)]
        subprocess.run(command, check=True)
    return files


def compare(tool: str, programs: list[pathlib.Path], machine: str, output: pathlib.Path) -> dict:
    """The table of comm-place, with its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    command = [tool, *map(str, programs), f"--machine={machine}", f"--json={output}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    table = json.loads(output.read_text())
    table["seconds"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    output.write_text(json.dumps(table))
    return table


def name_of(table: dict, row: dict) -> str:
    sizes = {axis["name"]: axis["size"] for axis in table["axes"]}
    return " x ".join(f"{axis.removeprefix('mesh_')}={sizes[axis]}" for axis in row["orders"][0])


def milliseconds(ns: int) -> str:
    return f"{ns / 1e6:.1f}"


def summary_row(step: str, table: dict) -> str:
    rows = table["placements"]
    best, given = rows[0], next(row for row in rows if row["as_given"])
    time, own = best["makespan_ns"], given["makespan_ns"]
    worst = max(rows, key=lambda row: row.get("makespan_ns", row.get("bound_ns", 0)))
    slowest = worst.get("makespan_ns", worst.get("bound_ns", 0))
    least = "" if "makespan_ns" in worst else "≥ "
    orders = sum(len(row["orders"]) for row in rows) + table["unfit_orders"]
    cells = [
        step,
        f"{orders} / {len(rows)}",
        f"{name_of(table, given)}: {milliseconds(own)}",
        f"{name_of(table, best)}: {milliseconds(time)}",
        f"{100 * (time - own) / own:+.1f} %",
        f"{least}{milliseconds(slowest)} ({least}{100 * (slowest - time) / time:+.1f} %)",
        milliseconds(best["bound_ns"]),
        "yes" if table["candidates_left"] == 0 else f"no, {table['candidates_left']} left",
        f"{table['seconds']:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def detail_rows(step: str, table: dict) -> list[str]:
    lines = [f"### {step}", "", "| order | inside a node | makespan | peak, GiB | bound | bound by | |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in table["placements"]:
        inside = ", ".join(f"{n} of {a.removeprefix('mesh_')}" for a, n in row["inside_node"].items() if n > 1)
        remarks = ["as given"] * row["as_given"] + ["proven worse"] * row["proven_worse"]
        makespan = milliseconds(row["makespan_ns"]) if "makespan_ns" in row else "-"
        peak = f"{row['peak_bytes'] / 2**30:.2f}" if "peak_bytes" in row else "-"
        by = "; ".join(dict.fromkeys(row["bound_by"])).replace("@mesh_", "@")
        bound = milliseconds(row["bound_ns"])
        lines.append(
            f"| {name_of(table, row)} | {inside} | {makespan} | {peak} | {bound} | {by} | {'; '.join(remarks)} |"
        )
    return [*lines, ""]


def random_cases(tool: str, count: int, folder: pathlib.Path) -> tuple[list[int], int]:
    """By random mesh of three axes: the placements that may be faster than the best one; and how many have a choice."""
    sys.path.insert(0, str(ROOT / "test/Tools/Inputs"))
    import place_oracle

    left, choices, seed = [], 0, 0
    while len(left) < count:
        seed += 1
        rng = random.Random(seed)
        sizes = [rng.choice([2, 3, 4]) for _ in range(3)]
        ranks_per_node = rng.choice([2, 4, 8])
        order = tuple(range(3))
        # The sizes of the programs' collectives are multiples of 192.
        if sizes.count(3) > 1 or not place_oracle.fits(sizes, order, ranks_per_node):
            continue
        if sizes[0] * sizes[1] * sizes[2] % ranks_per_node:
            continue
        machine = place_oracle.write_machine(rng, folder, ranks_per_node)
        program = folder / "random.mlir"
        program.write_text(place_oracle.write_program(rng, sizes)(order))
        table = compare(tool, [program], str(machine), folder / "random.json")
        left.append(table["candidates_left"])
        choices += len(table["placements"]) > 1
    return left, choices


HEAD = """# Results: placement of mesh axes

Written by `python benchmarks/placement.py --graphs build/placement`. Machine profile `{machine}`: nodes of {node}
ranks.

Every order of the axes of the mesh of a training step, by [comm-place](../../guide/Placement.md): forward and backward
graph of rank 0 one after the other, traced by `benchmarks/trace_model.py`, and priced node by node. Times are in ms.
*Orders / placements* counts all orders, and those that put groups on other links. *Slowest* is the slowest order's
time, or its lower bound ("≥") if it was not scheduled because that is above the best time. *Proven* says whether the
bounds of all other placements are at least the best time. Seconds are CPU seconds of comm-place.

| step | orders / placements | as traced | best | change | slowest | bound of the best | proven | seconds |
|---|---|---|---|---|---|---|---|---|
"""


def main(argv=None) -> int:
    a = parse_args(argv)
    a.graphs.mkdir(parents=True, exist_ok=True)
    rows, details, node = [], [], 0
    for step in a.steps:
        files = graphs_of(step, a.graphs)
        output = files[0].parent / "table.json"
        is_there = a.reuse and output.exists()
        table = json.loads(output.read_text()) if is_there else compare(a.comm_place, files, a.machine, output)
        node = table["ranks_per_node"]
        rows.append(summary_row(step, table))
        details += detail_rows(step, table)
        print(rows[-1], flush=True)
    text = HEAD.format(machine=a.machine, node=node)
    text += "\n".join(rows) + "\n"
    if a.random:
        left, choices = random_cases(a.comm_place, a.random, a.graphs)
        proven = left.count(0)
        percent = f"{100 * proven / a.random:.0f} %"
        text += (
            f"\n## Random meshes\n\nOf {a.random} random programs on meshes of three axes and random machines "
            f"of two levels ({choices} with more than one placement), the best order is proven to be the best for "
            f"{proven} ({percent}). Of the others, at most {max(left)} placements may be faster.\n"
        )
        print(f"random: proven {proven} of {a.random}, most candidates left {max(left)}")
    a.page.write_text(text + "\n## Each step\n\n" + "\n".join(details).rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
