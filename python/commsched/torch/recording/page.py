# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Draws the predicted and the measured timeline of recorded codes, one below the other.

A collective is drawn from its start to the end of its wait, for that is what stamps tell. It may have been complete
before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ... import recorded

NS_PER_US = 1000
_NOTE = "A collective is drawn from its start to the end of its wait; it may have been complete before."


def _flights(parts: Sequence[dict]) -> list[tuple[int, int]]:
    """The parts that start a collective, or -1 for what another graph started, and that wait for it, in order.

    The second is the number of parts if another graph waits for it.
    """
    waited = {p.get("start", -1): i for i, p in enumerate(parts) if p["part"] == "wait"}
    ours = [(i, waited.get(i, len(parts))) for i, p in enumerate(parts) if p["part"] == "start"]
    others = [(-1, i) for i, p in enumerate(parts) if p["part"] == "wait" and "start" not in p]
    return sorted(others + ours)


def _lanes(flights: Iterable[tuple[int, int]]) -> list[int]:
    """Indexed by flight: the first lane, from 1, in which nothing is in flight when it begins."""
    free: list[int] = []  # Indexed by lane: the part at whose end nothing of it is in flight any more.
    lanes = []
    for start, wait in flights:
        lane = next((i for i, until in enumerate(free) if until < start), len(free))
        free[lane : lane + 1] = [wait]
        lanes.append(lane + 1)
    return lanes


def _side(
    texts: recorded.Texts, title: str, note: str, parts: Sequence[dict], times_ns: Sequence[int], first_match: int
) -> recorded.Timeline:
    """One timeline.

    Args:
        times_ns: the duration of each part.
        first_match: the number by which the page knows the first collective on the other side.
    """
    us = [ns / NS_PER_US for ns in times_ns]
    ends = list(itertools.accumulate(us))
    flights = _flights(parts)
    lanes = _lanes(flights)
    exposed = sum(t for p, t in zip(parts, us) if p["part"] == "wait")
    computation = ends[-1] - exposed
    begin = [ends[start] - us[start] if start >= 0 else 0.0 for start, _ in flights]
    end = [ends[wait] if wait < len(parts) else ends[-1] for _, wait in flights]
    named = [("computation", computation)]
    for lane in range(1, max(lanes, default=0) + 1):
        busy = sum(e - b for e, b, own in zip(end, begin, lanes) if own == lane)
        named.append(("in flight" if lane == 1 else f"in flight {lane}", busy))
    figures = [("makespan", ends[-1]), ("computation", computation), ("exposed", exposed)]
    side = recorded.Timeline(texts, title, note, 0.0, (0.0, ends[-1]), computation, figures, named)
    ops: dict[int, int] = {}  # Indexed by the part that waits.
    for number, ((start, wait), lane) in enumerate(zip(flights, lanes)):
        part = parts[start if start >= 0 else wait]
        op = side.add(lane, begin[number], end[number], part.get("kind", "collective"))
        hidden = us[wait] if wait < len(parts) else 0.0
        side.describe_collective(op, part.get("bytes", -1), 0, hidden, 0.0, first_match + number)
        ops[wait] = op
    for i, (part, time) in enumerate(zip(parts, us)):
        if not time:
            continue
        if part["part"] == "wait":
            op = side.add(0, ends[i] - time, ends[i], "exposed", exposed=True)
            side.describe_exposed(op, ops[i], time, "")
        else:
            side.add(0, ends[i] - time, ends[i], part["name"] if part["part"] == "kernels" else f"start {part['name']}")
    return side


def write_page(codes: Sequence[tuple[dict, Sequence[int]]], path: str) -> None:
    """Writes a page with two timelines for each code, as a whole or not at all.

    Args:
        codes: what was predicted of each code (`inductor.marks`), and how long each of its parts took, ns.

    Raises:
        ValueError: there are no codes, or the file cannot be written. The text names it.
    """
    if not codes:
        raise ValueError(f"expected a code that has run twice for '{path}', got none")
    texts, sides, match = recorded.Texts(), [], 0
    for code, measured in codes:
        predicted = [part["ns"] for part in code["parts"]]
        for note, times in (("predicted", predicted), ("measured", measured)):
            sides.append(_side(texts, f"{code['direction']}, {note}", "", code["parts"], times, match))
        match += len(_flights(code["parts"]))
    recorded.write_page(path, texts, sides, [_NOTE])
