# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Predicted against measured: the makespan, and the parts that are furthest off, with the likely reason.

The parts of a run add up to its makespan, in the prediction as in the measurement. So what the parts are off adds up to
what the makespan is off.
"""

from __future__ import annotations

from collections.abc import Sequence

from .estimate import interval, median

# The parts that a report names.
MOST_SITES = 10
# A part this close to its prediction needs no reason.
CLOSE = 0.1
NS_PER_US = 1000


def compared(code: dict, runs_of_ranks: Sequence[Sequence[Sequence[int]]]) -> dict:
    """The report on one code.

    Args:
        code: what was predicted of it.
        runs_of_ranks: `[rank][run][part]` in ns. Every rank has a run, and every run all parts.
    """
    count = min(map(len, runs_of_ranks))
    totals = [max(sum(runs[len(runs) - count + i]) for runs in runs_of_ranks) for i in range(count)]
    value, lo, hi = interval(totals)
    predicted = code["makespan_ns"]
    medians = _medians(code, runs_of_ranks)
    sites = [_site(code, medians, runs_of_ranks, p) for p in range(len(code["parts"]))]
    sites.sort(key=lambda s: -abs(s["off_ns"]))
    report = {
        "place": "runtime",
        "direction": code["direction"],
        "ranks": len(runs_of_ranks),
        "predicted_ns": predicted,
        "measured_ns": {"value": value, "lo": lo, "hi": hi, "n": count},
        "error_percent": round(100 * (predicted - value) / max(1, value), 2),
        "sites": sites[:MOST_SITES],
    }
    return {**report, "text": table(report)}


def _medians(code: dict, runs_of_ranks: Sequence) -> list[list[int]]:
    """`[rank][part]`, ns."""
    return [[median([run[p] for run in runs]) for p in range(len(code["parts"]))] for runs in runs_of_ranks]


def parts_of(code: dict, runs_of_ranks: Sequence[Sequence[Sequence[int]]]) -> list[int]:
    """How long each part took, ns: the median over ranks of the medians over runs. Arguments as of `compared`."""
    return [median(part) for part in zip(*_medians(code, runs_of_ranks))]


def _site(code: dict, medians: Sequence[Sequence[int]], runs_of_ranks: Sequence, part: int) -> dict:
    described = code["parts"][part]
    measured = median([m[part] for m in medians])
    site = {
        "part": described["part"],
        "name": described["name"],
        "predicted_ns": described["ns"],
        "measured_ns": measured,
        "off_ns": measured - described["ns"],
    }
    if "kind" in described:
        site |= {"kind": described["kind"], "bytes": described["bytes"]}
    return {**site, "why": _reason(code, medians, runs_of_ranks, part, site["off_ns"])}


def _reason(code: dict, medians: Sequence[Sequence[int]], runs_of_ranks: Sequence, part: int, off: int) -> str:
    described = code["parts"][part]
    if abs(off) <= CLOSE * described["ns"]:
        return "as predicted"
    if described["part"] == "kernels":
        return "slower kernels than the model's" if off > 0 else "faster kernels than the model's"
    if described["part"] == "start":
        return (
            "launching it takes longer than the model says"
            if off > 0
            else "launching it takes less than the model says"
        )
    start = described.get("start")
    if start is None:
        return "it waits for what another graph started"
    between = range(start + 1, part)
    hiding = sum(median([m[p] for m in medians]) - code["parts"][p]["ns"] for p in between)
    if off > 0:
        # The rank that comes last waits least: the others wait for it, too.
        waits = [m[part] for m in medians]
        if 2 * (max(waits) - min(waits)) >= off:
            return f"rank {waits.index(min(waits))} comes {_us(max(waits) - min(waits))} later than another"
        if -2 * hiding >= off:
            return "the work that was to hide it takes less time"
        # From the moment before the start to the end of the wait.
        span = median([median([sum(run[start : part + 1]) for run in runs]) for runs in runs_of_ranks])
        return f"slower than the model: it is there after {_us(span)}, not {_us(described['cost_ns'])}"
    if -2 * hiding <= off:
        return "slower work hides more of it"
    return "faster than the model"


def _us(ns: int) -> str:
    return f"{ns / NS_PER_US:.1f} us"


def table(report: dict) -> str:
    """A report as text."""
    measured = report["measured_ns"]
    high = report["error_percent"] > 0
    lines = [
        f"{report['direction']}: predicted {_us(report['predicted_ns'])}, measured {_us(measured['value'])} (median of "
        f"{measured['n']} runs on {report['ranks']} ranks, {_us(measured['lo'])} to {_us(measured['hi'])}): the "
        f"prediction is {abs(report['error_percent']):.1f} % too {'high' if high else 'low'}",
        f"{'part':8} {'of':32} {'predicted':>12} {'measured':>12}  why",
    ]
    for site in report["sites"]:
        name = f"{site['kind']} {site['name']}" if "kind" in site else site["name"]
        times = f"{_us(site['predicted_ns']):>12} {_us(site['measured_ns']):>12}"
        lines.append(f"{site['part']:8} {name[:32]:32} {times}  {site['why']}")
    return "\n".join(lines)
