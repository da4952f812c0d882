#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gains of strands in the model, on traced training graphs, and the time of the search for them.

For each graph and machine profile: the time of the best schedule without a split and of the best split, the bound for
every split, what computations and collectives have of it, and the user time of comm-split-strands relative to that of
comm-schedule with the same effort. Graphs that FOLDER does not have yet are traced (`trace_model.py`, half a minute
each).

    python benchmarks/strands_model.py FOLDER [--graphs llama3-8b-64-fsdp-tp8 ...] [--machines h100-sxm h100-sxm-tiles]
                                       [--repeat 3] [--markdown docs/research/results/strands-model.md]

The command fails if a split is slower than the block as it is, or faster than the bound, or if a search takes more than
8 times that of the best order.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRACE = ROOT / "benchmarks" / "trace_model.py"
# Indexed by name: the arguments of the tracer.
GRAPHS = {
    "llama3-8b-64-fsdp-tp8": ("llama3-8b", "64", "--tp", "8"),
    "llama3-8b-256-fsdp-tp8": ("llama3-8b", "256", "--tp", "8"),
    "moe-16b-64-ep8": ("moe-16b", "64", "--ep", "8"),
    "moe-16b-128-ep8": ("moe-16b", "128", "--ep", "8"),
}
MACHINES = ("h100-sxm", "h100-sxm-tiles")
# The search with splits may take this many times the search of the best order.
MOST_TIMES = 8
NUMBER = re.compile(r"\b([A-Z]\w+)=(-?\d+)\b")
# The kinds of collectives that move tokens; the others gather parameters and scatter gradients.
TOKENS = ("all_reduce", "all_to_all")


def graphs(folder, name, bin_):
    """The forward and the backward graph, traced if they are not there."""
    paths = [folder / f"{name}-{direction}.mlirbc" for direction in ("fw", "bw")]
    if not all(path.exists() for path in paths):
        model, ranks, *more = GRAPHS[name]
        traced = folder / name
        command = [sys.executable, str(TRACE), "--model", model, "--ranks", ranks, *more]
        subprocess.run([*command, "--out", str(traced)], check=True)
        for path, direction in zip(paths, ("fw", "bw"), strict=True):
            source = traced / f"{direction}.mlir"
            subprocess.run([bin_ / "comm-opt", source, "--emit-bytecode", "-o", path], check=True)
    return paths


def run(bin_, graph, *arguments):
    """The messages of comm-opt, and the user time that it took, in seconds."""
    command = [bin_ / "comm-opt", graph, "--mlir-disable-threading", *arguments, "-o", os.devnull]
    with tempfile.TemporaryFile("w+") as messages:
        child = subprocess.Popen(list(map(str, command)), stdout=messages, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        messages.seek(0)
        text = messages.read()
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{text}")
    return text, usage.ru_utime


def numbers(text):
    """The numbers of the remark about the whole block."""
    found = [line for line in text.splitlines() if re.search(r"\] strands \|", line)]
    if len(found) != 1:
        sys.exit(f"expected one remark about the block, got {len(found)}\n{text}")
    result = {name: int(value) for name, value in NUMBER.findall(found[0])}
    result["split"] = "[Passed]" in found[0]
    return result


def row(bin_, graph, machine, repeat):
    """One line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        options = f"machine={machine}"
        read, order, search = [], [], []
        for _ in range(repeat):
            read.append(run(bin_, graph)[1])
            order.append(run(bin_, graph, f"--comm-schedule={options}")[1])
            text, seconds = run(bin_, graph, f"--comm-split-strands={options}", "--remarks-filter=comm-split-strands")
            search.append(seconds)
        run(bin_, graph, f"--comm-schedule={options}", f"--comm-machine={machine}", f"--comm-report={report}")
        function = json.loads(report.read_text())["functions"][0]
    said = numbers(text)
    exposed = {True: 0, False: 0}
    for collective in function["per_collective"]:
        exposed[collective["kind"] in TOKENS] += collective["exposed_ns"]["after"]
    unsplit, bound = said["MakespanNsUnsplit"], said["SplitLowerBoundNs"]
    best = said["MakespanNs"] if said["split"] else unsplit
    return {
        "unsplit": unsplit,
        "computations": function["makespan_ns"]["after"] - function["exposed_ns"]["after"],
        "tokens": exposed[True],
        "parameters": exposed[False],
        "split": best,
        "bound": bound,
        "strands": said.get("Strands", 1) if said["split"] else 1,
        "break_even_permille": said.get("BreakEvenPermille"),
        "seconds": min(search) - min(read),
        "times": (min(search) - min(read)) / max(1e-3, min(order) - min(read)),
    }


def defects(name, found):
    """What a line breaks of what is promised."""
    if found["split"] > found["unsplit"]:
        yield f"{name}: the split is slower than the block as it is"
    if found["split"] < found["bound"]:
        yield f"{name}: the split is faster than the bound"
    if found["times"] > MOST_TIMES:
        yield f"{name}: the search takes {found['times']:.1f} times that of the best order"


def page(machine, rows):
    """The table of one machine."""
    lines = [
        f"## {machine}",
        "",
        "| graph | best order | computations | waits for all-reduces and exchanges | other waits | bound for any split "
        "| best split | strands | gain | above the bound | break-even | time of the search |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, r in rows.items():
        ms = {key: f"{r[key] / 1e6:.1f} ms" for key in ("unsplit", "computations", "tokens", "parameters", "bound")}
        split = f"{r['split'] / 1e6:.1f} ms" if r["strands"] > 1 else "not split"
        even = "" if r["break_even_permille"] is None else f"{r['break_even_permille'] / 10:.1f} %"
        lines.append(
            f"| {name} | {ms['unsplit']} | {ms['computations']} | {ms['tokens']} | {ms['parameters']} | {ms['bound']} "
            f"| {split} | {r['strands'] if r['strands'] > 1 else ''} | {100 * (r['split'] / r['unsplit'] - 1):.1f} % "
            f"| {100 * (r['split'] / r['bound'] - 1):.1f} % | {even} | {r['seconds']:.1f} s, {r['times']:.1f} times |"
        )
    return "\n".join(lines)


def header(options):
    """What the page says of how it was made."""
    return "\n".join(
        [
            "# Results: strands of traced training graphs in the model",
            "",
            f"Written by `python benchmarks/strands_model.py FOLDER --repeat {options.repeat}`,",
            "which traces the graphs (PyTorch on fake tensors). The limit is each input's own peak.",
            "*Computations* include the kernels that pack buckets. *Above the bound* is relative to the",
            "bound for any split. *Break-even*: by how much all parts of computations may be slower than",
            "modelled until the split gains nothing. *Time of the search*: user time of `comm-split-strands`",
            "without reading the graph, and how many times that of `comm-schedule` it is.",
        ]
    )


def main(argv=None):
    """Prints the page. Returns 1 if a line breaks a promise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--machines", nargs="+", default=MACHINES)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--markdown", type=pathlib.Path)
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    paths = [path for name in options.graphs for path in graphs(options.folder, name, options.bin)]
    parts, wrong = [header(options)], []
    for machine in options.machines:
        rows = {}
        for path in paths:
            rows[path.stem] = row(options.bin, path, machine, options.repeat)
            wrong += [f"{machine}: {defect}" for defect in defects(path.stem, rows[path.stem])]
            print(f"{machine}: {path.stem}: {json.dumps(rows[path.stem])}", file=sys.stderr)
        parts.append(page(machine, rows))
    text = "\n\n".join(parts) + "\n"
    print(text, end="")
    if options.markdown:
        options.markdown.write_text(text)
    for defect in wrong:
        print(defect, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
