# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Timelines that somebody recorded, as the page that `comm-opt --comm-timeline=FILE.html` writes for schedules.

A `Timeline` collects the tables that include/CommSched-c/Timeline.h describes; `write_page` writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from . import _commsched

# The latest moment of a page, ns (CommSched-c/Timeline.h).
_MOST_NS = 1 << 53


def _ns(us: float) -> int:
    """A time in the unit of the page.

    Raises:
        ValueError: the page cannot show it.
    """
    if not abs(us) * 1000 <= _MOST_NS:
        raise ValueError(f"expected times of at most {_MOST_NS / 1000:.3g} us for a page, got {us:.3g} us")
    return round(us * 1000)


class Texts:
    """The texts of a page, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """-1 of an empty text."""
        return self._numbers.setdefault(text, len(self._numbers)) if text else -1

    def all(self) -> list[str]:
        return list(self._numbers)


class Timeline:
    """One side of a page, whose moments are given in us.

    Args:
        origin: the moment that the page calls 0, on the clock of this timeline, us.
        span: from the first moment to the last, us.
        bound: no order takes less from the first moment to the last, us.
        figures: names and us. The page shows the others as shares of the first.
        lanes: names, and for how long each is busy, us. Lane 0 computes.
    """

    def __init__(
        self,
        texts: Texts,
        title: str,
        note: str,
        origin: float,
        span: tuple[float, float],
        bound: float,
        figures: Sequence[tuple[str, float]],
        lanes: Sequence[tuple[str, float]],
    ) -> None:
        self._texts = texts
        self._origin = origin
        self._side: dict[str, Any] = {
            "title": title,
            "note": note,
            "begin": self._moment(span[0]),
            "end": self._moment(span[1]),
            "bound": _ns(bound),
            "figures": [{"name": name, "ns": _ns(us)} for name, us in figures],
            "lanes": [name for name, _ in lanes],
            "loads": [_ns(us) for _, us in lanes],
        }
        self._counts: list[int] = []
        for table, columns in (
            ("ops", ("kind", "group")),
            ("starts", ("op", "bytes", "ranks", "exposed", "late", "match")),
            ("waits", ("op", "start", "exposed", "factor")),
            ("spans", ("op", "row", "start", "length", "stall")),
        ):
            self._side[table] = {column: [] for column in columns}

    def _moment(self, us: float) -> int:
        # Differences of large times are rounded, which must not put the first moment of all before 0.
        return max(0, _ns(us - self._origin))

    def _add(self, table: str, *row: int) -> None:
        for column, value in zip(self._side[table].values(), row):
            column.append(value)

    def add(
        self, lane: int, start: float, end: float, kind: str, group: str = "", count: int = 1, exposed: bool = False
    ) -> int:
        """Adds a rectangle. Returns the number of its operation.

        Args:
            count: of how many operations that are drawn as one it is the first.
        """
        op = len(self._counts)
        self._counts.append(count)
        self._add("ops", self._texts.number(kind or "?"), self._texts.number(group))
        begin = self._moment(start)
        self._add("spans", op, lane, begin, self._moment(end) - begin, int(exposed))
        return op

    def describe_collective(self, op: int, nbytes: int, ranks: int, exposed: float, late: float, match: int) -> None:
        """Says more of an operation.

        Args:
            nbytes: -1: unknown.
            ranks: of its group. 0: unknown.
            exposed: us.
            late: the part of it in which other ranks have not come, us.
            match: the number of the same collective on other sides, or -1.
        """
        self._add("starts", op, nbytes, ranks, _ns(exposed), _ns(late), match)

    def describe_exposed(self, op: int, collective: int, us: float, why: str) -> None:
        """Says during which collective nothing is computed, and why."""
        self._add("waits", op, collective, _ns(us), self._texts.number(why))

    def to_json(self) -> dict[str, Any]:
        if any(count > 1 for count in self._counts):
            self._side["ops"]["count"] = self._counts
        return self._side


def write_page(path: str, texts: Texts, timelines: Sequence[Timeline], notes: Sequence[str]) -> None:
    """Writes the file as a whole, or not at all.

    Raises:
        ValueError: the file cannot be written. The text names it.
    """
    sides = [timeline.to_json() for timeline in timelines]
    request = json.dumps({"strings": texts.all(), "notes": notes, "sides": sides}, separators=(",", ":"))
    try:
        _commsched.write_timeline_page(request.encode(), path)
    except _commsched.Error as error:
        raise ValueError(str(error)) from None
