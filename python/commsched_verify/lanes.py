# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The picture of an answer: what runs on each lane, and when. It is drawn from the play that the checker checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from .core import Answer, Problem

#: Units of the picture from the first moment to the last one. Bars with less than one between them are drawn as one.
UNITS = 4000


@dataclass
class Bar:
    """What runs on a lane from one time to another one, ns. Bars of one kind without a title may be joined."""

    begin: int
    end: int
    kind: str
    title: str = ""


def lanes_of(block: dict[str, Any]) -> list[tuple[str, list[Bar]]]:
    """Of each lane its name and its bars, by time. Empty if the times are not known: a module is missing."""
    problem = Problem(**block["problem"])
    answer = Answer(problem, **block["answer"])
    makespan = answer.makespan() if len(answer.done) == problem.size else None
    if makespan is None:
        return []
    spans = {at: (end - step.cost, end) for at, (step, end) in enumerate(zip(answer.steps, answer.end))}
    if problem.demands:
        spans = problem.extension("contention", "the picture").play(problem, answer.steps, answer.done).spans
    rows: list[list[Bar]] = [[] for _ in problem.lanes]
    for lane, end in enumerate(problem.busy_until):
        rows[lane].append(Bar(0, end, "before", "from before this block"))
    now = problem.busy_until[0]
    for at, step in enumerate(answer.steps):
        begin, end = spans.get(at, (0, 0))
        if step.is_start:
            rows[step.lanes[0]].append(Bar(begin, end, "collective", title_of(block, at)))
            rows[0].append(Bar(now, now + step.issue, "compute"))
            now += step.issue
        else:
            for lane in (0, *step.lanes):
                rows[lane].append(Bar(begin, end, "compute"))
            now = max(now, end)
    rows[0] = list(with_waits(rows[0], makespan))
    return [(str(name), [bar for bar in row if bar.end > bar.begin]) for name, row in zip(problem.lanes, rows)]


def with_waits(bars: Iterable[Bar], makespan: int) -> Iterator[Bar]:
    """The bars, and between them the times in which nothing computes."""
    now = 0
    for bar in [*bars, Bar(makespan, makespan, "compute")]:
        if bar.begin > now:
            yield Bar(now, bar.begin, "waits", "nothing computes")
        yield bar
        now = max(now, bar.end)


def title_of(block: dict[str, Any], at: int) -> str:
    """What a start is: the description and the location of its collective, or of those in its bucket."""
    event = block["answer"]["events"][at]
    nodes = [event] if isinstance(event, int) else block["answer"]["buckets"][event[1]]["members"]
    try:
        notes = [f"{what} ({where})" for node, _, what, where in block.get("collectives", ()) if node in nodes]
    except (TypeError, ValueError):
        notes = []  # Only the comparison of ranks reads these notes, so they may be anything.
    return ("" if isinstance(event, int) else f"{len(nodes)} merged: ") + "; ".join(notes)


def joined(bars: Iterable[Bar], makespan: int) -> Iterator[Bar]:
    """The bars in units of the picture. Those of one kind that nobody could tell apart are one."""
    last: Bar | None = None
    for bar in bars:
        begin, end = bar.begin * UNITS // makespan, -(-bar.end * UNITS // makespan)
        if last and last.kind == bar.kind and begin - last.end < 1 and (not bar.title or end - begin < 2):
            last.end = max(last.end, end)
            continue
        if last:
            yield last
        last = Bar(begin, end, bar.kind, bar.title)
    if last:
        yield last


def picture(block: dict[str, Any], makespan: int, bound: int) -> str:
    """The lanes as HTML, with a line at the bound. Empty without times."""
    lanes = lanes_of(block) if makespan > 0 else []
    place = bound * UNITS // max(makespan, 1)
    parts = []
    for name, bars in lanes:
        drawn = []
        for bar in joined(bars, makespan):
            title = f"<title>{escape(bar.title)}</title>" if bar.title else ""
            width = max(bar.end - bar.begin, 1)
            kind = f"{bar.kind} wide" if bar.title and width > UNITS // 80 else bar.kind  # apart from its neighbours
            drawn.append(f'<rect class="{kind}" x="{bar.begin}" y="0" width="{width}" height="10">{title}</rect>')
        line = f'<rect class="bound" x="{min(place, UNITS - 6)}" y="0" width="6" height="10"/>'
        svg = f'<svg viewBox="0 0 {UNITS} 10" preserveAspectRatio="none" role="img" aria-label="lane {escape(name)}">'
        parts.append(f'<div class="lane"><bdi>{escape(name)}</bdi>{svg}{"".join(drawn)}{line}</svg></div>')
    return "\n".join(parts)
