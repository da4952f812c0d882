# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page of results that `robustness.py` writes. Everything in it is computed from its JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from robustness_play import ANSWERED, SCALES

DEFAULT = "robust"
# A row above this is called a loss.
LOSS_PERCENT = 1.0

HEAD = """# Results: CommSched's orders if collectives take longer or shorter than planned

Written by `{command}`.
PyTorch {torch}, CommSched {commsched} at the commit {tree}, Python {python}; machine profile `{machine}`; no GPU: all
times are those of models.

Every order is played with the time of each collective multiplied by k, and kernels as they are. Numbers are changes of
the makespan in %: minus is faster than what is compared with, plus slower. *FX* rows compare with PyTorch's overlap
scheduler (`schedule_overlap_bucketing`): the mode, with buckets or without, that is faster as planned. Its peak is
CommSched's limit; at another k the other mode counts if it is faster there within that peak. *JAX* rows compare with
the order of XLA's latency-hiding scheduler, and CommSched's limit is the peak of that order; all collectives share one
stream. *robust* is the default objective: the makespan at k = 1, and within 0.1 % of it the regret. *regret* and
*makespan* minimize these alone.

CommSched always plans with its own costs at k = 1; those of PyTorch, and of XLA, are a second opinion, by which an
answer may not lose, either, except with *makespan*. The column *costs* says who judges. Under *our costs* PyTorch's
scheduler plans with our costs, too, and XLA with its own. Under *PyTorch's costs* PyTorch plans with its own analytical
roofline and its own model of NCCL, under *XLA's costs* XLA with those of its latency estimator, and both orders are
played with these: what happens if whoever made the order that is replaced is right, and we are not. A collective that
XLA never priced, because CommSched took it apart or merged it, is read off those of its kind and group by its bytes:
linear between two sizes, above the largest at the best rate of the group, below the smallest towards the least time of
the group.

*chosen* programs are those of the other benchmarks, on which settings were chosen; *generated* ones are drawn from the
seed {seed}, and nobody had seen them.
"""


def changes(row: dict, objective: str) -> list[float]:
    """How much longer than what it is compared with an answer takes at each scale, in %."""
    times = zip(row["answers"][objective]["ms"], row["peer_ms"], strict=True)
    return [100 * (ours / peer - 1) if peer else 0.0 for ours, peer in times]


def worst(row: dict, objective: str) -> float:
    """The largest change at the scales that the default objective answers for."""
    return max(c for k, c in zip(SCALES, changes(row, objective), strict=True) if k in ANSWERED)


def _cell(values: Iterable[float]) -> str:
    values = list(values)
    return f"{statistics.fmean(values):+.1f} / {max(values):+.1f}"


def summary(rows: list[dict]) -> list[str]:
    """Mean and worst at each scale, for each set of programs and each referee."""
    lines = [
        "## Mean / worst change in %",
        "",
        f"| programs | costs | objective | rows | {' | '.join(f'k = {k:g}' for k in SCALES)} "
        f"| rows slower by over {LOSS_PERCENT:g} % at a k from {ANSWERED[0]:g} to {ANSWERED[-1]:g} |",
        "|---" * (5 + len(SCALES)) + "|",
    ]
    keys = list(dict.fromkeys((r["set"], r["front_end"], r["referee"]) for r in rows))
    for key in sorted(keys, key=lambda k: (k[0] != "generated", k[1:])):
        found = [r for r in rows if (r["set"], r["front_end"], r["referee"]) == key]
        for objective in found[0]["answers"]:
            columns = zip(*(changes(r, objective) for r in found), strict=True)
            lost = sum(worst(r, objective) > LOSS_PERCENT for r in found)
            lines.append(
                f"| {key[0]} {key[1]} | {key[2]} | {objective} | {len(found)} | "
                + " | ".join(_cell(column) for column in columns)
                + f" | {lost} of {len(found)} |"
            )
    return lines


def verdict(rows: list[dict]) -> list[str]:
    """The worst row, and how many lose, in words."""
    first = max(rows, key=lambda r: worst(r, DEFAULT))
    lost = {o: sum(worst(r, o) > LOSS_PERCENT for r in rows) for o in first["answers"]}
    unpriced = sum(bool(r.get("unknown")) for r in rows)
    loss, scales = worst(first, DEFAULT), f"k from {ANSWERED[0]:g} to {ANSWERED[-1]:g}"
    name = f"{first['set']} {first['front_end']} program {first['program']} under {first['referee']}"
    lines = [
        f"- **The worst row**: {name} takes {loss:.1f} % longer at its worst {scales}.",
        f"- **{lost[DEFAULT]} of {len(rows)} rows** take over {LOSS_PERCENT:g} % longer at some {scales}"
        + "".join(f", with `{o}` {count} rows" for o, count in lost.items() if o != DEFAULT)
        + ".",
    ]
    if any(r["front_end"] == "JAX" for r in rows):
        said = "rows some kernel or collective has no price of XLA's, and takes what our costs say."
        lines.append(f"- In {unpriced} {said}")
    return [*lines, *_effort(rows), ""]


def _effort(rows: list[dict]) -> list[str]:
    """The processor's time of scheduling with and without a second opinion."""
    known = [r["seconds"] for r in rows if {DEFAULT, "makespan"} <= set(r.get("seconds", ()))]
    if not known:
        return []
    total = {name: sum(seconds[name] for seconds in known) for name in (DEFAULT, "makespan")}
    opinions = [r["answers"][DEFAULT].get("second_opinion") or {} for r in rows]
    asking = sum(o.get("estimated_ns", 0) + o.get("scheduled_ns", 0) for o in opinions) / 1e9
    replaced = sum(bool(o.get("replaced")) for o in opinions)
    return [
        f"- PyTorch's costs replaced the answer in {replaced} rows. All schedules took {total[DEFAULT]:.0f} s of the "
        f"processor, of which PyTorch's estimates and scheduler took {asking:.0f} s; with `makespan`, which asks "
        f"nobody, {total['makespan']:.0f} s."
    ]


def each(rows: list[dict]) -> list[str]:
    """All rows, the worst one first."""
    others = [o for o in rows[0]["answers"] if o != DEFAULT]
    scales = " | ".join(f"k = {k:g}" for k in SCALES)
    lines = [
        "## Each program, the worst row first",
        "",
        f"Sorted by the worst change of the default objective at a k from {ANSWERED[0]:g} to {ANSWERED[-1]:g}. "
        "*peak* is that of the default's answer, in % of the limit.",
        "",
        f"| programs | program | costs | compared with | theirs at k = 1, ms | {scales} | worst "
        + "".join(f"| worst of `{o}` " for o in others)
        + "| peak |",
        "|---" * (7 + len(others) + len(SCALES)) + "|",
    ]
    for r in sorted(rows, key=lambda r: -worst(r, DEFAULT)):
        lines.append(
            f"| {r['set']} {r['front_end']} | {r['program']} | {r['referee']} | {r['against']} "
            f"| {r['peer_ms'][SCALES.index(1.0)]:.2f} | "
            + " | ".join(f"{c:+.1f}" for c in changes(r, DEFAULT))
            + f" | **{worst(r, DEFAULT):+.1f}** | "
            + "".join(f"{worst(r, o):+.1f} | " for o in others)
            + f"{100 * r['answers'][DEFAULT]['peak_bytes'] / max(1, r['limit_bytes']):.0f} |"
        )
    return lines


def page(results: dict) -> str:
    lines = [HEAD.format(**results["versions"])]
    if results["rows"]:
        lines += [*verdict(results["rows"]), *summary(results["rows"]), "", *each(results["rows"])]
    if results["failed"]:
        lines += ["", "## Not measured", "", *(f"- {name}: {reason}" for name, reason in results["failed"])]
    return "\n".join(lines).rstrip() + "\n"
