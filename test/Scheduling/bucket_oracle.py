#!/usr/bin/env python3
#
# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what comm-opt says of small random programs with all bucketings of their collectives in all orders.

    bucket_oracle.py --bin FOLDER [--first 0] [--count 100] [--operations 0] [--jobs 1] [--keep FOLDER]

The programs have up to five collectives on two groups, casts, views, and buffers of different sizes; the machines have
measured tables or alpha-beta costs. The oracle (test/Scheduling/oracle) has prices, bucketing rules, a clock and a
memory model of its own, written from MachineModel.md, Models.md and Bucketing.h, and shares no code with the library.
It compares, with the objectives makespan and robust, with limits on the peak at, below and above that of the input, and
with caps on buckets:

  - makespan, exposed time and peak of the input, which have to be equal,
  - the lower bounds of the report, also at another scale of the times of collectives: none may be above the optimum,
  - what the report says of all orders and of all schedules, which has to be the optimum,
  - makespan and peak of the answer: never below the optimum, and never above the limit,
  - with the objective robust: no answer loses to the given order by more than 1 % at any of five scales. Its optimum is
    that of the orders that do not lose, and an answer is above it if it is more than 0.1 % longer.

A disagreement is one line with its seed, and the exit code is 1. How often an answer is above the optimum, and how
often the oracle gave up and why, is printed at the end. --keep writes the program, the machine and the command of what
disagrees or is above.

    bucket_oracle.py --self-test
    bucket_oracle.py --bin FOLDER --count 400 --plant

look for faults of the oracle itself. The first one compares it with the example of Models.md and with all permutations
of small programs. The second one plants faults in it (oracle/faults.py); each has to be noticed. It takes minutes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from oracle import self_test
from oracle.judge import Problem, Verdict, judge, problem_of
from oracle.programs import random_problem

OBJECTIVES = ("makespan", "robust")


@dataclass
class Task:
    """One seed, and how to look at it."""

    seed: int
    options: argparse.Namespace


def pipeline(problem: Problem, objective: str) -> str:
    limit = f" memory-limit-bytes={problem.limit}" if problem.limit is not None else ""
    cap = f" bucket-cap-bytes={problem.cap}" if problem.cap is not None else ""
    return f"--reorder-comm-overlap=objective={objective}{limit}{cap}"


def report_of(problem: Problem, objective: str, options: argparse.Namespace) -> dict[str, Any] | str:
    """The report of comm-opt, or what it said if it failed."""
    if options.reports:
        saved = options.reports / f"{problem.seed}-{objective}.json"
        if saved.exists():
            return json.loads(saved.read_text())
    with tempfile.TemporaryDirectory() as folder:
        machine, report = Path(folder) / "machine.json", Path(folder) / "report.json"
        machine.write_text(json.dumps(problem.machine))
        files = [f"--comm-machine={machine}", f"--comm-report={report}", "-o", str(Path(folder) / "out.mlir")]
        command = [str(options.bin / "comm-opt"), "-", pipeline(problem, objective), *files]
        done = subprocess.run(command, input=problem.program.text(), capture_output=True, text=True)
        result = json.loads(report.read_text()) if done.returncode == 0 else done.stderr
    if options.reports:
        saved.write_text(json.dumps(result))
    return result


def look(task: Task) -> Verdict:
    problem = problem_of(task.seed, task.options.collectives)
    reports = {objective: report_of(problem, objective, task.options) for objective in OBJECTIVES}
    verdict = judge(problem, reports, task.options.prefixes)
    if task.options.keep and (verdict.wrong or verdict.is_missed or any(share > 0 for share in verdict.above.values())):
        keep(problem, verdict, task.options.keep)
    return verdict


def keep(problem: Problem, verdict: Verdict, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = folder / str(problem.seed)
    name.with_suffix(".json").write_text(json.dumps(problem.machine, indent=1))
    options = f"{pipeline(problem, 'makespan')!r} --comm-machine={problem.seed}.json --comm-report=report.json"
    said = "".join(f"// {line}\n" for line in [*verdict.wrong, f"above the optimum: {verdict.above}"])
    name.with_suffix(".mlir").write_text(f"// comm-opt {problem.seed}.mlir {options}\n{said}{problem.program.text()}")


def conclude(verdicts: list[Verdict], most_above: int) -> int:
    """Prints what was found. Returns the exit code."""
    judged = [verdict for verdict in verdicts if not verdict.gave_up]
    print(f"{len(verdicts)} programs; of the optima {sum(v.is_merged for v in judged)} have buckets")
    for why, count in Counter(verdict.gave_up for verdict in verdicts if verdict.gave_up).items():
        print(f"gave up on {count}: {why}")
    wrong = [verdict for verdict in verdicts if verdict.wrong]
    print(f"{len(wrong)} disagree")
    print(f"{sum(v.bounds for v in judged)} bounds, of which {sum(v.tight for v in judged)} are the optimum")
    for objective in OBJECTIVES:
        shares = [verdict.above[objective] for verdict in verdicts if objective in verdict.above]
        above = sorted(share for share in shares if share > 0)
        by = f", by {sum(above) / len(above):.3%} in the mean and {above[-1]:.3%} at worst" if above else ""
        print(f"{objective}: {len(above)} of {len(shares)} are above the optimum{by}")
    missed = sum(verdict.is_missed for verdict in judged)
    print(f"no order found within the limit, although there is one: {missed}")
    are_above = sum(any(share > 0 for share in verdict.above.values()) for verdict in verdicts)
    return int(bool(wrong) or missed > 0 or are_above > most_above)


def describe(verdict: Verdict) -> None:
    for line in verdict.wrong:
        print(f"seed {verdict.seed} disagrees: {line}", flush=True)
    if verdict.gave_up:
        print(f"seed {verdict.seed}: gave up, {verdict.gave_up}", flush=True)
    least = "at least " if verdict.gave_up else ""
    for objective, share in verdict.above.items():
        if share > 0:
            print(f"seed {verdict.seed}, {objective}: above the optimum by {least}{share:.3%}", flush=True)
    if verdict.is_missed:
        print(f"seed {verdict.seed}: no order found within the limit, although there is one", flush=True)


def plant(options: argparse.Namespace) -> int:
    """Plants faults. The reports are made once, by a run that has to agree."""
    with tempfile.TemporaryDirectory() as folder:
        options.reports = options.reports or Path(folder)
        if compare(options):
            return 1
        shared = ["--bin", str(options.bin), "--first", str(options.first), "--count", str(options.count)]
        return self_test.plant(Path(__file__), [*shared, "--reports", str(options.reports)])


def seeds_of(options: argparse.Namespace) -> list[int]:
    """The seeds of programs with at least as many operations as asked for."""
    seeds = itertools.count(options.first)
    large = (seed for seed in seeds if len(random_problem(seed, options.collectives)[0].steps) >= options.operations)
    return list(itertools.islice(large, options.count))


def compare(options: argparse.Namespace) -> int:
    """Compares the programs. Returns the exit code."""
    tasks = [Task(seed, options) for seed in seeds_of(options)]
    if options.reports:
        options.reports.mkdir(parents=True, exist_ok=True)
    verdicts = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for verdict in pool.map(look, tasks):
            describe(verdict)
            verdicts.append(verdict)
            if options.stop and verdict.wrong:
                pool.shutdown(cancel_futures=True)
                break
    return conclude(verdicts, options.most_above)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, help="folder of comm-opt")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100, help="programs")
    parser.add_argument("--collectives", type=int, default=5, help="at most so many in a program")
    parser.add_argument(
        "--operations", type=int, default=0, help="at least so many in a program; smaller ones are left out"
    )
    parser.add_argument("--prefixes", type=int, default=300000, help="prefixes of orders, then it gives up")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("--keep", type=Path, help="folder for programs that disagree or are above the optimum")
    parser.add_argument(
        "--most-above", type=int, default=1 << 30, help="programs that may have an answer above the optimum"
    )
    parser.add_argument("--reports", type=Path, help="folder of reports: those that are there are not made again")
    parser.add_argument("--stop", action="store_true", help="end at the first disagreement")
    parser.add_argument("--self-test", action="store_true", help="look for faults of the oracle, without comm-opt")
    parser.add_argument(
        "--plant", action="store_true", help="plant faults in the oracle, and say which seed notices each"
    )
    options = parser.parse_args()
    if options.self_test:
        return self_test.run(Path(__file__))
    if not options.bin:
        parser.error("expected --bin")
    if options.plant:
        return plant(options)
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
