#!/usr/bin/env python3
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Do CommSched's orders lose to those that they replace, if collectives take longer or shorter than planned?

For each FX graph and each JAX program: CommSched's answer, with the default objective, the regret, and the makespan
alone, against the better mode of PyTorch's overlap scheduler, or against XLA's order, within the same memory. Both are
played with the time of each collective multiplied by several factors, under CommSched's costs and under those of the
scheduler that is compared with. Beside the programs of the other benchmarks, programs are generated from a seed, which
nobody has looked at. The page that this writes has the worst row in front.

    python benchmarks/robustness.py --markdown docs/research/results/robustness.md
    python benchmarks/robustness.py --graphs llama3-8b:64:layers=4 --jax fsdp8 --generated 0
    python benchmarks/robustness.py --graphs --jax --generated 30 --seed 7
    python benchmarks/robustness.py --only FX --objectives robust makespan --generated 20 --seed 7

Needs the package commsched; programs of JAX also need what jax_overlap.py needs. No GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import robustness_jax
import robustness_page
import robustness_play
import robustness_programs
import robustness_torch
import torch_overlap

OBJECTIVES = ("robust", "regret", "makespan")
# Some layers of a model stand for all: they are alike, and PyTorch's scheduler takes minutes for all of them.
TRACED = (
    "llama3-8b:64:layers=6",
    "llama3-8b:64:tp=8:layers=6",
    "llama3-8b:256:tp=8:layers=6",
    "moe-16b:64:ep=8:layers=6",
    "moe-16b:128:ep=8:layers=6",
    "dit:16:layers=6",
)
COMPILED = ("fsdp8", "fsdp64", "fsdp64-scan", "fsdp8-tp2", "fsdp8-tp8", "moe8", "moe8-scan", "moe4")
# Of the generated programs, one in this many is a program of JAX.
ONE_IN_JAX = 2


def seed_of_commit() -> int:
    """A number that changes with each commit, so that no setting can be chosen for what it generates."""
    folder = Path(__file__).resolve().parent
    said = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True)
    return int(said.stdout[:7] or "0", 16)


def jobs_of(settings: argparse.Namespace) -> list[tuple[str, str, str, object]]:
    """What is measured: the set, the front end, the name, and what the front end makes it of."""
    shares = {"JAX": settings.generated, "FX": 0}
    of_jax = shares.get(settings.only, settings.generated // ONE_IN_JAX) if has_jax() else 0
    drawn = robustness_programs.graphs(settings.seed, settings.generated - of_jax)
    jobs: list[tuple[str, str, str, object]] = [("generated", "FX", name, config) for name, config in drawn]
    specs = () if settings.only == "JAX" else settings.graphs
    chosen = [("chosen", "FX", spec, torch_overlap.config_of(spec)) for spec in specs]
    if settings.only == "FX":
        return jobs + chosen
    if not has_jax():
        print("left out: programs of JAX, which is not installed", file=sys.stderr)
        return jobs + chosen
    import jax_programs

    modules = robustness_programs.modules(settings.seed, of_jax)
    jobs += [("generated", "JAX", config["name"], config) for config in modules]
    named = (dataclasses.asdict(jax_programs.find(name)) for name in settings.jax)
    return jobs + [("chosen", "JAX", config["name"], config) for config in named] + chosen


def has_jax() -> bool:
    """Whether XLA can compile for GPUs here."""
    return all(importlib.util.find_spec(name) for name in ("jax", "jax_plugins"))


def study(job: tuple, machine: str, objectives) -> Iterator[dict]:
    """The rows of one program."""
    _, front_end, name, config = job
    rest = objectives, robustness_play.SCALES
    if front_end == "FX":
        referees = (robustness_torch.OURS, robustness_torch.THEIRS)
        yield from robustness_torch.study(config, name, machine, referees, *rest)
    else:
        referees = (robustness_jax.OURS, robustness_jax.THEIRS)
        yield from robustness_jax.study(config, machine, referees, *rest)


def run(settings: argparse.Namespace, results: dict) -> None:
    """Measures what `results` does not have yet."""
    done = {name for name, _ in results["done"]}
    for job in jobs_of(settings):
        chosen, front_end, name, _ = job
        if name in done:
            continue
        start, rows = time.perf_counter(), []
        try:
            for row in study(job, settings.machine, settings.objectives):
                rows.append({"set": chosen, "front_end": front_end, **row})
        except Exception as error:  # Other programs go on, and the page names this one.
            results["failed"].append([name, f"{type(error).__name__}: {error}".splitlines()[0]])
        results["rows"] += rows
        results["done"].append([name, time.perf_counter() - start])
        shown = "; ".join(f"{r['program']} ({r['referee']}): {robustness_page.worst(r, 'robust'):+.1f} %" for r in rows)
        print(f"{time.perf_counter() - start:.0f} s, {shown or results['failed'][-1]}", file=sys.stderr, flush=True)
        write(settings, results)


def write(settings: argparse.Namespace, results: dict) -> None:
    if settings.json:
        settings.json.write_text(json.dumps(results, indent=1) + "\n")
    if settings.markdown:
        settings.markdown.write_text(robustness_page.page(results))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="*", default=TRACED, help="models to trace, as torch_overlap.py takes them")
    parser.add_argument("--jax", nargs="*", default=COMPILED, help="programs of jax_programs.py")
    parser.add_argument("--only", choices=("JAX", "FX"), help="leave out the programs of the other front end")
    parser.add_argument("--objectives", nargs="*", choices=OBJECTIVES, default=OBJECTIVES, help="of CommSched")
    parser.add_argument("--generated", type=int, default=30, help="number of generated programs")
    parser.add_argument("--seed", type=int, help="what they are generated from (default: the commit)")
    parser.add_argument("--machine", default=torch_overlap.DEFAULT_MACHINE, help="machine profile")
    parser.add_argument("--json", type=Path, help="write the results to this file, too, after each program")
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has already")
    parser.add_argument("--markdown", type=Path, help="write the page to this file, too, after each program")
    settings = parser.parse_args()
    if robustness_page.DEFAULT not in settings.objectives:
        parser.error(f"--objectives: expected {robustness_page.DEFAULT} among them")
    settings.seed = seed_of_commit() if settings.seed is None else settings.seed
    print(f"seed {settings.seed}", file=sys.stderr)
    arguments = [
        *(("--only", settings.only) if settings.only else ()),
        *(() if settings.only == "JAX" else ("--graphs", *settings.graphs)),
        *(() if settings.only == "FX" else ("--jax", *settings.jax)),
        *(("--objectives", *settings.objectives) if tuple(settings.objectives) != OBJECTIVES else ()),
        *("--generated", str(settings.generated)),
        *("--seed", str(settings.seed)),
    ]
    versions = {**torch_overlap.versions(settings.machine), "seed": settings.seed}
    versions["command"] = " ".join(["python benchmarks/robustness.py", *arguments])
    results: dict = {"versions": versions, "rows": [], "failed": [], "done": []}
    if settings.resume and settings.json and settings.json.is_file():
        results = {**json.loads(settings.json.read_text()), "versions": versions}
    run(settings, results)
    print(robustness_page.page(results))
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
