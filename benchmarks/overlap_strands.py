# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A chain of tensor-parallel layers as written and split into strands, over MPI, in the same run.

Each layer multiplies its tokens with two slim matrices, and an all-reduce adds up what the ranks computed. Every
operation needs the one before it, so no order of the chain hides anything: comm-schedule's own lower bound says so.
comm-split-strands splits the tokens with a profile that comm-calibrate measures right before. The results of both
programs are compared bit for bit, and then both run several times in turn.

Kernels compute their rows and sleep for the rest of their cost, as if a device computed. A part of a kernel has a part
of the rows and of the cost.

The goal is that the chain is at least 1.3 times as fast in strands.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys

from overlap_prediction import CALIBRATION_SECONDS, comm_opt, interval, measured, predicted

# Tokens, width of a token, and how long a kernel sleeps, in ms.
CONFIGURATIONS = ((2048, 2048, 3.0), (2048, 2048, 5.0), (4096, 2048, 6.0), (4096, 2048, 10.0))
# The width between the two products of a layer: computing must not keep the cores busy that move the data.
HIDDEN = 2
LARGEST_NUMBER_OF_STRANDS = 4
# The kernel's name in the timeline.
KERNEL = "aten.mm"
GOAL = 1.3


def chain(ranks, layers, tokens, width, kernel_ns, hidden=HIDDEN):
    """The module. Each rank has its columns of the first matrix of a layer and its rows of the second one."""
    x, h = f"tensor<{tokens}x{width}xf32>", f"tensor<{tokens}x{hidden}xf32>"
    up, down = f"tensor<{width}x{hidden}xf32>", f"tensor<{hidden}x{width}xf32>"
    arguments = "".join(f", %u{layer}: {up}, %d{layer}: {down}" for layer in range(layers))
    cost = f"{{comm.cost = #comm.cost<flops = {2 * tokens * width * hidden}, time = {kernel_ns}>}}"
    lines = [f"comm.group @tp #comm.iota<[1, {ranks}]>", f"func.func @main(%x: {x}{arguments}) -> {x} {{"]
    last = "%x"
    for layer in range(layers):
        lines += [
            f'  %h{layer} = comm.compute "{KERNEL}"({last}, %u{layer}) {cost} : ({x}, {up}) -> {h}',
            f'  %y{layer} = comm.compute "{KERNEL}"(%h{layer}, %d{layer}) {cost} : ({h}, {down}) -> {x}',
            f"  %f{layer} = comm.all_reduce sum %y{layer} on @tp : ({x}) -> !comm.future<{x}>",
            f"  %s{layer} = comm.wait %f{layer} : !comm.future<{x}>",
        ]
        last = f"%s{layer}"
    return "\n".join([*lines, f"  return {last} : {x}", "}", ""])


def calibrated(bench, tokens, width):
    """The profile of this machine, with the reductions of all parts."""
    o, probes = bench.options, []
    profile = bench.folder / f"machine{tokens}x{width}.json"
    if profile.exists():
        return profile
    for parts in range(1, LARGEST_NUMBER_OF_STRANDS + 1):
        probes.append(bench.folder / f"probe{parts}.mlir")
        probes[-1].write_text(chain(o.ranks, 1, tokens // parts, width, 1))
    bench.mpirun(
        *[f"--program={p}" for p in probes],
        "--cache=none",
        "--quiet",
        "--measure=collectives",
        f"--budget-seconds={CALIBRATION_SECONDS}",
        f"-o={profile}",
        tool="comm-calibrate",
    )
    return profile


def split(bench, written, profile, target):
    """Splits a program. Returns how many strands it has."""
    command = [bench.options.bin / "comm-opt", written, f"--comm-split-strands=machine={profile}"]
    command += ["--remarks-filter=comm-split-strands", "-o", target]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    said = re.search(r'Remark="split: [^"]* in (\d+) strands', done.stdout + done.stderr)
    if done.returncode != 0 or not said:
        sys.exit(f"the chain was not split\n{done.stderr}")
    return int(said[1])


def row(bench, tokens, width, sleep_ms):
    """One configuration: predicted and measured times of the chain as written, in its best order, and in strands."""
    o, told_ns = bench.options, round(sleep_ms * 1e6)
    profile = calibrated(bench, tokens, width)
    paths = {name: bench.folder / f"{name}.mlir" for name in ("written", "unsplit", "strands")}
    paths["written"].write_text(chain(o.ranks, o.layers, tokens, width, told_ns))
    comm_opt(
        bench,
        paths["written"],
        f"--comm-schedule=machine={profile} memory-budget-ratio=1.0",
        "-o",
        paths["unsplit"],
    )
    strands = split(bench, paths["written"], profile, paths["strands"])
    for name in ("unsplit", "strands"):
        bench.mpirun(paths["written"], f"--compare={paths[name]}")
    result = {"bytes": tokens * width * 4, "kernel_ms": sleep_ms, "strands": strands}
    result["predicted"] = {name: predicted(bench, paths[name], profile) for name in paths}
    result["measured"] = {name: interval(samples) for name, samples in measured(bench, paths).items()}
    best = min(("written", "unsplit"), key=lambda name: result["measured"][name][0])
    result["best"] = best
    result["ratio"] = result["measured"][best][0] / result["measured"]["strands"][0]
    return result


def page(settings, rows):
    """The results as a page of docs/research/results."""
    lines = [
        "# Results: a tensor-parallel chain in strands",
        "",
        f"Written by `{settings['command']}`.",
        f"{settings['ranks']} ranks over MPI with a progress thread, {settings['layers']} layers of two kernels that "
        "sleep and an all-reduce.",
        "Median per iteration on the slowest rank in ms, with its 95 % interval, "
        f"of {settings['samples']} iterations each, run in turn.",
        f'"Best order" is that of comm-schedule with twice the memory. {settings["cores"]} cores, '
        f"load before and after: {settings['loads']}.",
        "Results are equal bit for bit.",
        "",
        "| all-reduce | kernel | as written | best order | strands | in strands | times as fast as the best "
        "unsplit order | by the model |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        spans = [[f"{ns / 1e6:.1f}" for ns in r["measured"][name]] for name in ("written", "unsplit", "strands")]
        written, unsplit, strands = (f"{value} ({low} to {high})" for value, low, high in spans)
        model = min(r["predicted"]["written"], r["predicted"]["unsplit"]) / r["predicted"]["strands"]
        lines.append(
            f"| {r['bytes'] / 2**20:.0f} MiB | {r['kernel_ms']} ms | {written} | {unsplit} | {r['strands']} | "
            f"{strands} | {r['ratio']:.2f} | {model:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main(bench, markdown):
    """Measures and prints the page. Returns 1 if the goal is missed in every configuration."""
    o, before = bench.options, os.getloadavg()
    bench.kernel = KERNEL
    rows = []
    for configuration in CONFIGURATIONS:
        rows.append(row(bench, *configuration))
        found = f"{rows[-1]['ratio']:.2f} times as fast in {rows[-1]['strands']} strands"
        print(f"{configuration}: {found}", file=sys.stderr)
    settings = {
        "command": f"python benchmarks/overlap.py --strands --sleep --progress-thread --layers {o.layers}",
        "ranks": o.ranks,
        "layers": o.layers,
        "samples": o.repetitions * (o.iterations - 1),
        "cores": os.cpu_count(),
        "loads": " and ".join(f"{load:.1f}" for load in (before[0], os.getloadavg()[0])),
    }
    text = page(settings, rows)
    print(text, end="")
    if markdown:
        pathlib.Path(markdown).write_text(text)
    return 0 if max(r["ratio"] for r in rows) >= GOAL else 1


if __name__ == "__main__":
    # Prints the chain, for tests.
    parser = argparse.ArgumentParser(description="Prints the chain.")
    for name, default in (("ranks", 2), ("layers", 3), ("tokens", 24), ("width", 16), ("kernel-ns", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    print(chain(given.ranks, given.layers, given.tokens, given.width, given.kernel_ns), end="")
