# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Prints the figures of one rank."""

from __future__ import annotations

from .analysis import Analysis


def _ms(us: float) -> str:
    return f"{us / 1000:.3f}"


def _bytes(count: int) -> str:
    if count < 0:
        return "?"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def table(a: Analysis, most: int) -> str:
    """The figures of one step as text, and the collectives that are exposed longest."""
    n = a.trace.steps
    who = a.trace.name if a.trace.rank is None else f"rank {a.trace.rank}, {a.trace.name}"
    lines = [f"{who}: {n} step{'s' if n > 1 else ''}, times in ms of one"]
    for depth, name, us in a.figures():
        share = 100 * n * us / a.span if a.span else 0
        lines.append(f"  {'  ' * depth + name:<30} {_ms(us):>12} {share:6.1f} %")
    rows = [r for r in a.rows if r.exposed > 0][:most]
    if rows:
        lines.append(f"  {'exposed':>12} {'time':>12} {'calls':>7} {'bytes':>10} {'ranks':>6}  collective")
    for r in rows:
        ranks = str(r.ranks) if r.ranks else "?"
        lines.append(
            f"  {_ms(r.exposed / n):>12} {_ms(r.time / n):>12} {r.calls / n:>7.3g} {_bytes(r.nbytes):>10} {ranks:>6}"
            f"  {r.kind}"
        )
    return "\n".join(lines)
