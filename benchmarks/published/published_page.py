# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page of results that `published.py` writes. Everything in it is computed from its results and the row files."""

from __future__ import annotations

import itertools
import statistics

from published_rows import Row

# Two modes whose times differ by less have no order.
TIE = 0.01
# What the default objective answers for.
INTERVAL = (0.75, 2.0)

# A row that is off by a larger factor says nothing of kernels: most of its time goes into something else.
UNEXPLAINED = 2.0
# Kernels take (nearly) all of the predicted time if collectives are waited for in at most this part of it.
KERNELS_ALONE = 0.05
# Collectives of at least these bytes are limited by bandwidth.
LARGE_BYTES = 1 << 20

HEAD = """# Results: published measurements beside predictions

Written by `python benchmarks/published/published.py --markdown docs/research/results/published.md`.
PyTorch {torch}, CommSched {commsched} at the commit {tree}, Python {python}; no GPU.

Other people measured these steps of models and these collectives, and published what they read. Each row is a file in
`benchmarks/published/rows`, with its source and with what is not known about it. The command traces each step, merges
and orders its collectives as in each mode, adds the optimizer, and plays it with the machine profile of the row. No
number of a profile was fitted to a row. The blocks of a decoder are alike, so 2 and 4 layers are traced and continued
linearly. For llama3-8b-fsdp8-h100, all 32 layers give the same figures; for the automatic orders this is not proved.

The columns compare predicted with measured time: +10 % says that the prediction is 10 % too long.
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
        right += fast["predicted_ms"] * (1 + TIE) <= slow["predicted_ms"]
    return right, total


def blamed(mode: dict) -> float | None:
    """By what factor collectives would have to take longer, if kernels are right. None if too few are waited for.

    Time that is exposed grows at least so much, so the true factor is at most this.
    """
    exposed = mode["exposed_ms"]
    if exposed < KERNELS_ALONE * mode["predicted_ms"]:
        return None
    return 1 + (mode["measured_ms"] - mode["predicted_ms"]) / exposed


def kernel_factors(rows: list[tuple[Row, dict]]) -> list[float]:
    """Measured / predicted of the modes in which hardly any collective is waited for."""
    modes = [m for _, result in rows for m in result["modes"] if worst(result["modes"]) < UNEXPLAINED]
    return [m["measured_ms"] / m["predicted_ms"] for m in modes if m["exposed_ms"] < KERNELS_ALONE * m["predicted_ms"]]


def collective_factors(rows: list[tuple[Row, dict]], large: bool) -> list[float]:
    """Measured / predicted of collectives above LARGE_BYTES, or of the others."""
    modes = [(at, m) for row, result in rows for at, m in zip(row.modes, result["modes"], strict=True)]
    return [m["measured_ms"] / m["predicted_ms"] for at, m in modes if (at.bytes >= LARGE_BYTES) == large]


def _span(factors: list[float]) -> str:
    return f"{min(factors):.2f} to {max(factors):.2f}, median {statistics.median(factors):.2f}, {len(factors)} numbers"


def verdict_lines(steps: list[tuple[Row, dict]], collectives: list[tuple[Row, dict]]) -> list[str]:
    """What the rows say together."""
    lines = ["## What the rows say", ""]
    kernels, large = kernel_factors(steps), collective_factors(collectives, True)
    if kernels:
        far = [row.name for row, result in steps if worst(result["modes"]) >= UNEXPLAINED]
        lines += [
            f"- **Kernels** take k_c times as long as predicted: {_span(kernels)}. These are the modes in which "
            f"collectives are waited for in less than {100 * KERNELS_ALONE:.0f} % of the time. Left out are rows that "
            f"are off by a factor of {UNEXPLAINED:g} or more: {', '.join(far) or 'none'}.",
        ]
    if large:
        small = collective_factors(collectives, False)
        lines += [f"- **Collectives** of 1 MiB and more take k times as long as predicted: {_span(large)}."]
        lines += [f"- Smaller ones: {_span(small)}."] if small else []
    if kernels and large:
        low, high = min(large) / max(kernels), max(large) / min(kernels)
        inside = sum(INTERVAL[0] <= k / c <= INTERVAL[1] for k in large for c in kernels)
        lines += [
            f"- **The interval of k.** What matters to an order is k / k_c. Any of these k over any of these k_c lies "
            f"between {low:.2f} and {high:.2f}; {100 * inside / (len(large) * len(kernels)):.0f} % of the pairs lie in "
            f"[{INTERVAL[0]:g}, {INTERVAL[1]:g}], for which the default objective answers.",
        ]
    counted = [(row, *pairs(result["modes"])) for row, result in steps]
    counted = [(row, right, total) for row, right, total in counted if total]
    if counted:
        rows_right = sum(right == total for _, right, total in counted)
        wrong = [row.name for row, right, total in counted if right < total]
        orders = [(right, total) for row, right, total in counted if len({mode.order for mode in row.modes}) > 1]
        lines += [
            f"- **Orders of modes.** {rows_right} of {len(counted)} rows with several modes come out in the measured "
            f"order, {sum(r for _, r, _ in counted)} of {sum(t for _, _, t in counted)} pairs of modes. Not: "
            f"{', '.join(wrong) or 'none'}. Of the {len(orders)} rows whose modes differ in the order of collectives, "
            f"{sum(right == total for right, total in orders)} come out; the others differ in kernels, recomputation "
            "or parallelism.",
        ]
    return [*lines, ""]


def _percent(value: float) -> str:
    return f"{100 * value:+.1f} %"


def step_lines(rows: list[tuple[Row, dict]]) -> list[str]:
    lines = [
        "## Steps of models, the worst row first",
        "",
        "Times in ms. *exposed* is the part of the predicted time in which a collective is waited for. *order* says "
        "how many pairs of modes are predicted in the measured order, with at least 1 % between them; pairs whose "
        "measured times differ by less have none. "
        "*k* is the factor on the exposed time that would explain the whole difference, if kernels were right.",
        "",
        "| row | mode | measured | predicted | error | forward | backward | optimizer | exposed | GiB measured | GiB "
        "predicted | order | k |",
        "|---" * 13 + "|",
    ]
    for row, result in sorted(rows, key=lambda r: -worst(r[1]["modes"])):
        right, total = pairs(result["modes"])
        for at, m in enumerate(result["modes"]):
            peak = "" if m["measured_peak_gib"] is None else f"{m['measured_peak_gib']:.1f}"
            k = blamed(m)
            factor = "" if k is None else f"{k:.1f}"
            order = f"{right} of {total}" if total and not at else ""
            lines.append(
                f"| {'' if at else row.name} | {m['mode']} | {m['measured_ms']:.0f} | {m['predicted_ms']:.0f} "
                f"| **{_percent(error(m))}** | {m['forward_ms']:.0f} | {m['backward_ms']:.0f} "
                f"| {m['optimizer_ms']:.0f} | {m['exposed_ms']:.0f} | {peak} | {m['peak_gib']:.1f} "
                f"| {order} | {factor} |"
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
    lines += [*verdict_lines(steps, collectives), *step_lines(steps), "", *collective_lines(collectives), ""]
    if results["failed"]:
        lines += ["## Not predicted", "", *(f"- {name}: {why}" for name, why in results["failed"].items()), ""]
    return "\n".join([*lines, *source_lines(found)]).rstrip() + "\n"
