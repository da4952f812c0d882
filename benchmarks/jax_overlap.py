#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compiles training steps for H100s that are not there, with XLA's latency-hiding scheduler and CommSched after it.

    jax_overlap.py [--programs NAME...] [--markdown FILE]     the table of docs/research/results/jax.md
    jax_overlap.py --combiners off ...                        with XLA's combiners switched off
    jax_overlap.py --no-buckets ...                           another order alone
    jax_overlap.py --donates ...                              the steps donate their parameters and moments
    jax_overlap.py --small FOLDER                             the modules of test/Frontends/Inputs

XLA is the referee: it verifies every module that comes back, and its buffer assignment says what temporaries it needs.
Times are those of CommSched's timeline, for both orders. Each program runs in a process of its own. Needs jax, jaxlib,
jax-cuda12-plugin and jax-cuda12-pjrt 0.10.2, and no GPU; a program takes about a minute.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

# The latency-hiding scheduler is the peer. Autotuning would need a GPU.
XLA_FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_latency_hiding_scheduler=true"
# XLA merges nothing with these.
NO_COMBINERS = " ".join(
    f"--xla_gpu_{k}_combine_threshold_bytes=0" for k in ("all_gather", "all_reduce", "reduce_scatter")
)
# XLA's own schedule may need this much less, in percent, and its order may be this far above the bound.
TOLERANCE_PERCENT, GOAL_PERCENT = 1.0, 5.0


@dataclasses.dataclass(frozen=True)
class Compiled:
    """XLA's own numbers about a program: CPU seconds of its compilation, of all threads, and bytes per device."""

    seconds: float
    temporaries: int
    aliased: int
    total: int  # arguments, results and temporaries together


def compile_once(name: str, donates: bool) -> Compiled:
    """Compiles a program."""
    import jax
    import jax_programs

    step, arguments = jax_programs.training_step(dataclasses.replace(jax_programs.find(name), donates=donates))
    lowered = step.trace(*arguments).lower(lowering_platforms=("cuda",))
    begin = time.process_time()
    compiled = lowered.compile()
    seconds = time.process_time() - begin
    stats = compiled.memory_analysis()
    total = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    jax.clear_caches()
    temporaries = stats.temp_size_in_bytes
    return Compiled(seconds, temporaries, stats.alias_size_in_bytes, total + temporaries)


def run(name: str, machine: str, buckets: bool, donates: bool) -> dict:
    """Compiles a program with XLA's order and with CommSched's."""
    import commsched.jax

    compile_once("small-fsdp", True)  # What the first compilation takes on top is no part of the comparison.
    own = compile_once(name, donates)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(try loops=|prevent_cse=False)")
        with tempfile.TemporaryDirectory() as dump:
            with commsched.jax.enabled(machine=machine, buckets=buckets, ranks="off", dump=dump):
                ours = compile_once(name, donates)
            module = max((path.read_bytes() for path in pathlib.Path(dump).iterdir()), key=len)
    report = max(commsched.jax.reports(), key=lambda r: r["makespan_ns"]["before"])
    # What the callback did, once more by itself: in CPU time it does not matter who else uses the machine.
    begin = time.process_time()
    commsched.jax.schedule(module, machine=machine, buckets=buckets)
    report["seconds"] = time.process_time() - begin
    return report | {"name": name, "xla": dataclasses.asdict(own), "commsched": dataclasses.asdict(ours)}


def row(report: dict) -> tuple[str, list[str]]:
    """The row of the table, and what it misses."""
    before, after = report["makespan_ns"]["before"], report["makespan_ns"]["after"]
    bound = report["lower_bound_ns"]
    gain = 100 * (before - after) / before
    above = [100 * (t - bound) / bound for t in (before, after)]
    own, ours = report["xla"], report["commsched"]
    grown = 100 * (ours["temporaries"] / own["temporaries"] - 1)
    faults = []
    if after > before:
        faults.append("slower than XLA's order")
    if above[0] > GOAL_PERCENT and gain < GOAL_PERCENT:
        faults.append(f"less than {GOAL_PERCENT:.0f} % faster")
    if grown > TOLERANCE_PERCENT:
        faults.append(f"temporaries grew by {grown:.1f} %")
    if ours["aliased"] != own["aliased"]:
        faults.append(f"{(own['aliased'] - ours['aliased']) / 2**20:.0f} MiB of donations were lost")
    share = 100 * report["seconds"] / own["seconds"]
    if share > GOAL_PERCENT:
        faults.append(f"{share:.1f} % of XLA's time")
    collectives = sum(c["collectives"] for c in report["computations"])
    cells = [
        report["name"],
        str(collectives),
        f"{report.get('taken_apart', 0)}, {report.get('buckets', 0)}",
        f"{before / 1e6:.2f}",
        f"{after / 1e6:.2f}",
        f"{bound / 1e6:.2f}",
        f"{gain:.1f} %",
        f"{above[0]:.1f} % -> {above[1]:.1f} %",
        f"{ours['aliased'] / 2**20:.0f}",
        f"{own['temporaries'] / 2**20:.0f}",
        f"{ours['temporaries'] / 2**20:.0f} ({grown:+.1f} %)",
        f"{report['peak_bytes']['before'] / 2**20:.0f}",
        f"{own['seconds']:.1f}",
        f"{report['seconds']:.2f} ({share:.1f} %)",
        f"{ours['seconds']:.1f}",
        "; ".join(faults) or "yes",
    ]
    return "| " + " | ".join(cells) + " |", faults


HEADER = (
    "| program | collectives | taken apart, buckets | XLA, ms | CommSched, ms | bound, ms | faster by | "
    "above the bound | donated, MiB | temporaries, MiB | with CommSched, MiB | our count of XLA's, MiB | "
    "XLA compiles, CPU s | CommSched, CPU s | together, CPU s | goals met |\n|" + "---|" * 16
)


def child(arguments: list[str], combines: bool = True, script: str = __file__) -> Any:
    """Runs this script, or another one, for one program. None if it fails; its messages have been printed."""
    flags = XLA_FLAGS if combines else f"{XLA_FLAGS} {NO_COMBINERS}"
    environment = dict(os.environ, XLA_FLAGS=flags, JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run([sys.executable, script, *arguments], env=environment, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def table(names: list[str], options: argparse.Namespace) -> int:
    """Prints and writes the table. Returns the number of programs that fail or miss a goal."""
    lines, missed = [HEADER], 0
    print(HEADER, flush=True)
    for name in names:
        flags = [flag for flag, on in (("--no-buckets", not options.buckets), ("--donates", options.donates)) if on]
        report = child(["--run", name, "--machine", options.machine, *flags], options.combiners == "default")
        if report is None:
            line, faults = f"| {name} | refused by XLA |", ["refused"]
        else:
            line, faults = row(report)
        missed += bool(faults)
        lines.append(line)
        print(line, flush=True)
        if options.markdown:
            options.markdown.write_text("\n".join(lines) + "\n")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="*", help="names (default: all)")
    parser.add_argument("--machine", default="h100-sxm")
    parser.add_argument("--combiners", choices=("default", "off"), default="default", help="those of XLA")
    parser.add_argument("--no-buckets", dest="buckets", action="store_false", help="only order")
    parser.add_argument("--donates", action="store_true", help="the steps donate their parameters and moments")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the table here, too")
    parser.add_argument("--small", type=pathlib.Path, help="write the small modules of the tests into this folder")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(run(arguments.run, arguments.machine, arguments.buckets, arguments.donates)))
        return 0
    os.environ |= {"XLA_FLAGS": XLA_FLAGS, "JAX_PLATFORMS": "cpu"}
    import jax_programs

    if arguments.small:
        import jax_modules

        return jax_modules.write_small(arguments.small)
    names = arguments.programs or [c.name for c in jax_programs.PROGRAMS]
    return 1 if table(names, arguments) else 0


if __name__ == "__main__":
    sys.exit(main())
