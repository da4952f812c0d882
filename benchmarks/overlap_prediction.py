# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Predicted against measured makespans of the programs of `overlap.py`, for a profile that is measured right before.

comm-calibrate measures the gathers of all programs on the same ranks, and the kernels are measured in the program as
written: a sleep takes longer than it is told. comm-opt schedules each program with that profile in several ways, and
predicts what each schedule takes. Then all schedules of a program run in turn. The table has the error of each
prediction, and says for each pair of schedules whether the faster one was predicted. A pair whose measured intervals
overlap has no faster one.

The goals are at most 15 % of error and no order predicted wrong, on an idle machine.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import subprocess
import sys

# The side of the square f32 weight, the kernels of each layer, and how long a kernel sleeps with --sleep, in ms.
CONFIGURATIONS = ((1024, 1, 0.5), (1024, 1, 2.0), (1024, 3, 1.0), (2048, 1, 1.0), (2048, 1, 4.0), (2048, 2, 4.0))
# Indexed by name: the options of comm-opt that make the schedule. None: as written.
SCHEDULES = {
    "as written": None,
    "same memory": "--comm-schedule=memory-budget-ratio=0 bucketing=false",
    "more memory": "--comm-schedule=memory-budget-ratio=1.0 bucketing=false",
}
GOAL_PERCENT = 15.0
CALIBRATION_SECONDS = 60
# The two-sided 95 % quantile of the normal distribution.
QUANTILE = 1.96


def interval(samples):
    """The median and its 95 % interval from order statistics."""
    ordered, n = sorted(samples), len(samples)
    spread = QUANTILE * math.sqrt(n) / 2
    low, high = max(0, math.floor(n / 2 - spread)), min(n - 1, math.ceil(n / 2 + spread))
    return statistics.median(ordered), ordered[low], ordered[high]


def comm_opt(bench, *arguments):
    command = [str(bench.options.bin / "comm-opt"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")


def predicted(bench, path, profile):
    """The makespan of a program by the profile, ns."""
    report = bench.folder / "report.json"
    comm_opt(bench, path, f"--comm-report={report}", f"--comm-machine={profile}", "-o", os.devnull)
    return json.loads(report.read_text())["functions"][0]["makespan_ns"]["before"]


def gather_ns(profile, bytes_):
    """The time that the profile has for a gather of exactly these bytes, ns."""
    tables = [t for t in json.loads(profile.read_text())["collectives"] if t["kind"] == "all_gather"]
    return next(p["ns"] for t in tables for p in t["points"] if p["bytes"] == bytes_)


def calibrated(bench, program):
    """The profile of this machine, with the gathers of all configurations."""
    o, profile, probes = bench.options, bench.folder / "machine.json", []
    for side in sorted({side for side, _, _ in CONFIGURATIONS}):
        probes.append(bench.folder / f"probe{side}.mlir")
        probes[-1].write_text(program(o.ranks, 1, 1, bench.kernel, 1, None, side))
    bench.mpirun(
        *[f"--program={p}" for p in probes],
        "--cache=none",
        "--quiet",
        f"--budget-seconds={CALIBRATION_SECONDS}",
        f"-o={profile}",
        tool="comm-calibrate",
    )
    return profile


def kernel_time(bench, program, side, pieces, told_ns):
    """The median time of a kernel in the program as written, ns."""
    o, path = bench.options, bench.folder / "kernels.mlir"
    path.write_text(program(o.ranks, o.layers, pieces, bench.kernel, told_ns, None, side))
    bench.options.pieces = pieces
    samples = bench.run(path, iterations=4)
    return round(statistics.median(busy for ranks in samples for _, busy, _ in ranks) / o.layers / pieces)


def measured(bench, paths):
    """Indexed by program: the elapsed times of the slowest rank in every iteration, ns. Programs run in turn."""
    samples = {name: [] for name in paths}
    for repetition in range(bench.options.repetitions):
        for name in list(paths)[:: 1 if repetition % 2 == 0 else -1]:
            iterations = bench.run(paths[name], bench.options.iterations)
            samples[name] += [max(total for total, _, _ in ranks) for ranks in iterations]
    return samples


def row(bench, program, profile, side, pieces, sleep_ms):
    """One configuration: predicted and measured makespans of all schedules."""
    o = bench.options
    bytes_, told_ns = side * side * 4, round(sleep_ms * 1e6) if o.sleep else 1
    kernel_ns = kernel_time(bench, program, side, pieces, told_ns)
    # Programs to predict have the measured times of kernels. Programs to run have what kernels are told to sleep.
    models = {name: bench.folder / f"{name.replace(' ', '-')}.mlir" for name in SCHEDULES}
    written = models["as written"]
    written.write_text(program(o.ranks, o.layers, pieces, bench.kernel, kernel_ns, None, side))
    paths = {}
    for name, schedule in SCHEDULES.items():
        if schedule is not None:
            comm_opt(bench, written, schedule, f"--comm-machine={profile}", "-o", models[name])
        paths[name] = models[name].with_suffix(".run.mlir")
        paths[name].write_text(models[name].read_text().replace(f"time = {kernel_ns}>", f"time = {told_ns}>"))
    result = {"bytes": bytes_, "pieces": pieces, "kernel_ns": kernel_ns, "schedules": {}}
    result["gather_ns"] = {"profile": gather_ns(profile, bytes_)}
    for name, samples in measured(bench, paths).items():
        value, lo, hi = interval(samples)
        makespan = predicted(bench, models[name], profile)
        result["schedules"][name] = {
            "predicted_ns": makespan,
            "measured_ns": value,
            "lo_ns": lo,
            "hi_ns": hi,
            "n": len(samples),
            "error_percent": round(100 * (makespan - value) / value, 2),
        }
    result["orders"] = [order(result["schedules"], *pair) for pair in itertools.combinations(SCHEDULES, 2)]
    return result


def order(schedules, one, other):
    """Whether the faster of two schedules was predicted."""
    a, b = schedules[one], schedules[other]
    if a["lo_ns"] <= b["hi_ns"] and b["lo_ns"] <= a["hi_ns"]:
        verdict = "within noise"
    else:
        faster = a["measured_ns"] < b["measured_ns"]
        expected = a["predicted_ns"] - b["predicted_ns"]
        verdict = "right" if (expected < 0) == faster and expected != 0 else "wrong"
    return {"pair": [one, other], "verdict": verdict}


def table(result):
    """The results as text."""
    head = f"{'gather':>8} {'kernels':>14}  {'schedule':12} {'predicted':>10} {'measured':>10}"
    lines = [result["title"], f"{head} {'95 % interval':>17} {'error':>8}"]
    for r in result["rows"]:
        head = f"{r['bytes'] / 2**20:5.1f}MiB {r['pieces']} x {r['kernel_ns'] / 1e6:7.3f}ms"
        for name, s in r["schedules"].items():
            span = f"{s['lo_ns'] / 1e6:.2f} to {s['hi_ns'] / 1e6:.2f}"
            times = f"{s['predicted_ns'] / 1e6:8.2f}ms {s['measured_ns'] / 1e6:8.2f}ms"
            lines.append(f"{head:>23}  {name:12} {times} {span:>17} {s['error_percent']:+7.1f}%")
            head = ""
        lines += [f"{'':23}  {o['pair'][0]} or {o['pair'][1]}: {o['verdict']}" for o in r["orders"]]
    lines.append(result["summary"])
    return "\n".join(lines)


def summary(rows):
    """The worst error, and how many orders were predicted."""
    errors = [abs(s["error_percent"]) for r in rows for s in r["schedules"].values()]
    verdicts = [o["verdict"] for r in rows for o in r["orders"]]
    within = sum(e <= GOAL_PERCENT for e in errors)
    return (
        f"error: median {statistics.median(errors):.1f} %, worst {max(errors):.1f} %, {within} of {len(errors)} within "
        f"{GOAL_PERCENT:.0f} %; orders: {verdicts.count('right')} right, {verdicts.count('wrong')} wrong, "
        f"{verdicts.count('within noise')} within noise"
    )


def main(bench, program):
    """Measures, predicts and compares. Returns the exit code."""
    o = bench.options
    before = os.getloadavg()
    profile = calibrated(bench, program)
    rows = [row(bench, program, profile, *configuration) for configuration in CONFIGURATIONS]
    loads = " ".join(f"{load:.1f}" for load in (before[0], os.getloadavg()[0]))
    how = ", asleep" * o.sleep + ", progress thread" * o.progress_thread
    title = (
        f"predicted against measured: {o.ranks} ranks over mpi, {o.layers} layers of a gather and kernels{how}; "
        f"{os.cpu_count()} cores, load before and after {loads}"
    )
    result = {"title": title, "rows": rows, "summary": summary(rows), "loads": loads}
    print(table(result))
    if o.json:
        o.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0
