# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Intervals of time. Lists of them are disjoint and in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


def united(intervals: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def without(given: Sequence[Interval], removed: Sequence[Interval]) -> list[Interval]:
    found: list[Interval] = []
    at = 0
    for start, end in given:
        while at < len(removed) and removed[at][1] <= start:
            at += 1
        i = at
        while i < len(removed) and removed[i][0] < end:
            if removed[i][0] > start:
                found.append((start, removed[i][0]))
            start = max(start, removed[i][1])
            i += 1
        if start < end:
            found.append((start, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)
