#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Training steps with loops for H100s that are not there: XLA, XLA with the flags that pipeline loops, CommSched, and
CommSched with `loops="pipeline"`.

    jax_loops.py [--programs NAME...] [--random SEED COUNT] [--markdown FILE]    tables of docs/research/results/jax.md

Times are those of CommSched's timeline, temporaries XLA's own numbers. XLA's flags are the better one of the two ways:
its collective pipeliner, and with it bodies that are doubled. Each program runs in a process of its own. Needs jax,
jaxlib, jax-cuda12-plugin and jax-cuda12-pjrt 0.10.2, and no GPU; a program takes about a minute.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
import time
import warnings

import jax_overlap

HEADER = (
    "| program | XLA, ms | XLA with flags, ms | CommSched, ms | pipelined, ms | than CommSched | forecast | "
    "than XLA with flags | temporaries of XLA, MiB | of XLA with flags | of CommSched | pipelined | "
    "XLA compiles, CPU s | pipelined, CPU s |\n|" + "---|" * 14
)


def random_programs(seed: int, count: int) -> list[dict]:
    """The first `count` scanned ones of the programs of a seed."""
    import robustness_programs

    found = (config for config in robustness_programs.modules(seed, 10 * count) if config["scanned"])
    return [next(found) for _ in range(count)]


def compile_once(config, flags: dict[str, bool]) -> tuple[object, float]:
    """XLA's statistics of the memory of a program, and the CPU seconds of its compilation."""
    import jax
    import jax_programs

    step, arguments = jax_programs.training_step(config)
    lowered = step.trace(*arguments).lower(lowering_platforms=("cuda",))
    jax.clear_caches()
    begin = time.process_time()
    compiled = lowered.compile(compiler_options=flags)
    seconds = time.process_time() - begin
    return compiled.memory_analysis(), seconds


def run(config: dict, machine: str) -> dict:
    """The numbers of a program."""
    import jax_programs

    import commsched.jax

    warnings.simplefilter("ignore")
    program = jax_programs.Config(**config)
    compile_once(jax_programs.find("small-fsdp"), {})  # What the first compilation takes on top is no part of this.

    def scheduled(flags: dict[str, bool], **options) -> dict:
        commsched.jax.reports(clear=True)
        with commsched.jax.enabled(machine=machine, ranks="off", **options):
            statistics, seconds = compile_once(program, flags)
        report = max(commsched.jax.reports(), key=lambda r: r["makespan_ns"]["before"])
        return {
            "xla_ms": report["makespan_ns"]["before"] / 1e6,
            "ms": report["makespan_ns"]["after"] / 1e6,
            "forecast_ms": sum(loop["gain_ns"] for loop in report["loops"]) / 1e6,
            "temporaries": statistics.temp_size_in_bytes,
            "aliased": statistics.alias_size_in_bytes,
            "seconds": seconds,
        }

    statistics, seconds = compile_once(program, {})
    result = {"name": program.name, "temporaries": statistics.temp_size_in_bytes, "seconds": seconds}
    result |= {"aliased": statistics.alias_size_in_bytes, "own": scheduled({}), "ways": []}
    for flags in (jax_programs.PIPELINED, jax_programs.DOUBLED):
        statistics, _ = compile_once(program, flags)
        way = scheduled(flags)
        result["ways"].append({"ms": way["ms"], "xla_ms": way["xla_ms"], "temporaries": statistics.temp_size_in_bytes})
    return result | {"pipelined": scheduled({}, loops="pipeline")}


def row(result: dict) -> tuple[str, list[str]]:
    """The row of the table, and what is wrong with it."""
    own, fast = result["own"], result["pipelined"]
    best = min(result["ways"], key=lambda way: way["xla_ms"])
    faults = []
    if fast["ms"] > min(own["ms"], *(way["ms"] for way in result["ways"])) * 1.01:
        faults.append("more than 1 % slower than the best way")
    if fast["aliased"] != result["aliased"]:
        faults.append("donations were lost")
    cells = [
        result["name"],
        f"{own['xla_ms']:.2f}",
        f"{best['xla_ms']:.2f}",
        f"{own['ms']:.2f}",
        f"{fast['ms']:.2f}",
        f"{100 * (fast['ms'] / own['ms'] - 1):+.1f} %",
        f"{-100 * own['forecast_ms'] / own['ms']:+.1f} %",
        f"{100 * (fast['ms'] / min(own['xla_ms'], best['xla_ms']) - 1):+.1f} %",
        *(f"{bytes_ / 2**20:.0f}" for bytes_ in (result["temporaries"], best["temporaries"])),
        *(f"{each['temporaries'] / 2**20:.0f}" for each in (own, fast)),
        f"{result['seconds']:.1f}",
        f"{fast['seconds']:.1f}",
    ]
    return "| " + " | ".join(cells) + " |" + "".join(f" {fault}" for fault in faults), faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="*", help="names of jax_programs (default: those with loops)")
    parser.add_argument("--random", nargs=2, type=int, metavar=("SEED", "COUNT"), help="programs that nobody chose")
    parser.add_argument("--machine", default="h100-sxm")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the table here, too")
    parser.add_argument("--run", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(run(arguments.run, arguments.machine)))
        return 0
    if arguments.random:
        configs = random_programs(*arguments.random)
    else:
        import jax_programs

        names = arguments.programs or [c.name for c in jax_programs.PROGRAMS if c.scanned]
        configs = [dataclasses.asdict(dataclasses.replace(jax_programs.find(n), donates=True)) for n in names]
    lines, missed = [HEADER], 0
    print(HEADER, flush=True)
    for config in configs:
        result = jax_overlap.child(["--run", json.dumps(config), "--machine", arguments.machine], script=__file__)
        line, faults = row(result) if result else (f"| {config['name']} | refused by XLA |", ["refused"])
        missed += bool(faults)
        lines.append(line)
        print(line, flush=True)
        if arguments.markdown:
            arguments.markdown.write_text("\n".join(lines) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
