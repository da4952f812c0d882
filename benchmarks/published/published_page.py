# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page of results that `published.py` writes. Everything in it is computed from its results and the row files."""

from __future__ import annotations

import itertools

from published_rows import Row

# Two modes whose measured times differ by less have no order.
TIE = 0.01
# What the default objective answers for.
INTERVAL = (0.75, 2.0)

HEAD = """# Results: published measurements beside predictions

Written by `python benchmarks/published/published.py --markdown docs/results/published.md`.
PyTorch {torch}, CommSched {commsched} at the commit {tree}, Python {python}; no GPU.

Other people measured these steps of models and these collectives, and published what they read. Each row is a file in
`benchmarks/published/rows`, with its source and with what is not known about it. The command traces each step, merges
and orders its collectives as in each mode, adds the optimizer, and plays it with the machine profile of the row. No
number of a profile was fitted to a row. The columns compare predicted with measured time: +10 % says that the
prediction is 10 % too long.
"""


def error(mode: dict) -> float:
    """By how much of the measured time the prediction is too long."""
    return mode["predicted_ms"] / mode["measured_ms"] - 1


def worst(modes: list[dict]) -> float:
    """The largest factor between prediction and measurement, in either direction."""
    return max(max(m["predicted_ms"] / m["measured_ms"], m["measured_ms"] / m["predicted_ms"]) for m in modes)


def pairs(modes: list[dict]) -> tuple[int, int]:
    """Of the pairs of judged modes whose measured times differ: how many are predicted in this order, and how many
    there are."""
    judged = [m for m in modes if m.get("judged", True)]
    right = total = 0
    for one, other in itertools.combinations(judged, 2):
        fast, slow = sorted((one, other), key=lambda m: m["measured_ms"])
        if slow["measured_ms"] < fast["measured_ms"] * (1 + TIE):
            continue
        total += 1
        right += fast["predicted_ms"] < slow["predicted_ms"]
    return right, total


def _percent(value: float) -> str:
    return f"{100 * value:+.1f} %"


def step_lines(rows: list[tuple[Row, dict]]) -> list[str]:
    lines = [
        "## Steps of models, the worst row first",
        "",
        "Times in ms. *exposed* is the part of the predicted time in which a collective is waited for. *order* says "
        "how many pairs of modes are predicted in the measured order; pairs that differ by less than 1 % have none.",
        "",
        "| row | mode | measured | predicted | error | forward | backward | optimizer | exposed | GiB measured | GiB "
        "predicted | order |",
        "|---" * 12 + "|",
    ]
    for row, result in sorted(rows, key=lambda r: -worst(r[1]["modes"])):
        right, total = pairs(result["modes"])
        for at, m in enumerate(result["modes"]):
            peak = "" if m["measured_peak_gib"] is None else f"{m['measured_peak_gib']:.1f}"
            order = f"{right} of {total}" if total and not at else ""
            lines.append(
                f"| {'' if at else row.name} | {m['mode']} | {m['measured_ms']:.0f} | {m['predicted_ms']:.0f} "
                f"| **{_percent(error(m))}** | {m['forward_ms']:.0f} | {m['backward_ms']:.0f} "
                f"| {m['optimizer_ms']:.0f} | {m['exposed_ms']:.0f} | {peak} | {m['peak_gib']:.1f} | {order} |"
            )
    return lines


def collective_lines(rows: list[tuple[Row, dict]]) -> list[str]:
    lines = [
        "## Collectives, the worst row first",
        "",
        "Times in us. *k* is measured / predicted, the factor by which the collective takes longer than planned.",
        "",
        "| row | size | measured | predicted | error | k |",
        "|---" * 6 + "|",
    ]
    for row, result in sorted(rows, key=lambda r: -worst(r[1]["modes"])):
        for at, m in enumerate(result["modes"]):
            lines.append(
                f"| {'' if at else row.name} | {m['mode']} | {1e3 * m['measured_ms']:.1f} "
                f"| {1e3 * m['predicted_ms']:.1f} | {_percent(error(m))} | {m['measured_ms'] / m['predicted_ms']:.2f} |"
            )
    return lines


def source_lines(rows: list[tuple[Row, dict]]) -> list[str]:
    lines = ["## Sources, and what is not known", ""]
    for row, _ in rows:
        lines += [f"### {row.name}", "", f"{row.title}. {row.said}", ""]
        lines += [f"Source: [{row.source['what']}]({row.source['url']}), seen {row.source['seen']}.", ""]
        lines += [*(f"- {sentence}" for sentence in row.unknown), ""]
    return lines


def page(rows: list[Row], results: dict) -> str:
    found = [(row, results["rows"][row.name]) for row in rows if row.name in results["rows"]]
    steps = [pair for pair in found if pair[0].kind == "step"]
    collectives = [pair for pair in found if pair[0].kind == "collective"]
    lines = [HEAD.format(**results["versions"])]
    lines += [*step_lines(steps), "", *collective_lines(collectives), ""]
    if results["failed"]:
        lines += ["## Not predicted", "", *(f"- {name}: {why}" for name, why in results["failed"].items()), ""]
    return "\n".join([*lines, *source_lines(found)]).rstrip() + "\n"
