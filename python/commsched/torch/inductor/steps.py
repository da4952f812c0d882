# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Orders of kernels as numbers alone: nothing in here knows Inductor.

A step has dependences and bytes. Starts move forward and waits back as far as both allow.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
from collections.abc import Iterable, Sequence


@dataclasses.dataclass
class Step:
    """One kernel.

    Args:
        before: indices of the steps that it must follow.
        start: whether it starts a collective.
        wait: whether it waits for one.
        allocates: bytes of its results.
        frees: bytes that nobody needs after it.
    """

    before: Sequence[int] = ()
    start: bool = False
    wait: bool = False
    allocates: int = 0
    frees: int = 0


def by_position(positions: Sequence[int], before: Sequence[Iterable[int]]) -> list[int]:
    """Indices in an order that keeps `before`. The position decides between several. O((n + edges) log n)."""
    after: list[list[int]] = [[] for _ in positions]
    missing = [0] * len(positions)
    for i, sources in enumerate(before):
        for j in set(sources):
            after[j].append(i)
            missing[i] += 1
    ready = [(positions[i], i) for i, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for j in after[i]:
            missing[j] -= 1
            if not missing[j]:
                heapq.heappush(ready, (positions[j], j))
    return order


def live_bytes(steps: Sequence[Step]) -> list[int]:
    """Indexed by step: the bytes that are live while it runs, without those that are live before the first step."""
    live, result = 0, []
    for step in steps:
        live += step.allocates
        result.append(live)
        live -= step.frees
    return result


class _Maximum:
    """The maximum of a range of a list. Building takes O(n log n) once, a query O(1)."""

    def __init__(self, values: Sequence[int]):
        self.rows = [list(values)]
        width = 1
        while 2 * width <= len(values):
            row = self.rows[-1]
            self.rows.append([max(row[i], row[i + width]) for i in range(len(row) - width)])
            width *= 2

    def of(self, begin: int, end: int) -> int:
        """The maximum over [begin, end), which must not be empty."""
        level = (end - begin).bit_length() - 1
        row = self.rows[level]
        return max(row[begin], row[end - (1 << level)])


def starts_early(steps: Sequence[Step], limit: int) -> list[int]:
    """The order with every start as early as possible. O((n + edges) log n).

    A start comes as soon as its operands are there, the starts before it are issued, and the live bytes stay within
    `limit` until its old place.
    """
    maximum = _Maximum(live_bytes(steps))
    waiting = collections.deque(i for i, s in enumerate(steps) if s.start)
    placed, order, early = [False] * len(steps), [], 0
    for i, step in enumerate(steps):
        while waiting and waiting[0] > i:
            s = waiting[0]
            if not all(placed[j] for j in steps[s].before):
                break
            if maximum.of(i, s) + early + steps[s].allocates > limit:
                break
            waiting.popleft()
            placed[s] = True
            order.append(s)
            early += steps[s].allocates
        if placed[i]:
            early -= step.allocates  # From here on it would be live anyway.
            continue
        if step.start:
            waiting.popleft()
        placed[i] = True
        order.append(i)
    return order


def waits_late(steps: Sequence[Step], limit: int) -> list[int]:
    """The order with every wait as late as the first step that needs it, and `limit` on the live bytes, allow.

    The mirror image of `starts_early`: the latest of the waits that nothing keeps is placed first. O((n + edges) log
    n).
    """
    maximum = _Maximum(live_bytes(steps))
    needed = [0] * len(steps)
    for step in steps:
        for j in set(step.before):
            needed[j] += 1
    ready = [-i for i, s in enumerate(steps) if s.wait and not needed[i]]
    heapq.heapify(ready)
    placed, order, late = [False] * len(steps), [], 0

    def place(i: int) -> None:
        placed[i] = True
        order.append(i)
        for j in set(steps[i].before):
            needed[j] -= 1
            if steps[j].wait and not needed[j]:
                heapq.heappush(ready, -j)

    for end in range(len(steps), 0, -1):
        while ready:
            i = -ready[0]
            if not placed[i]:
                if i >= end - 1 or maximum.of(i + 1, end) + late + steps[i].frees > limit:
                    break
                late += steps[i].frees
                place(i)
            heapq.heappop(ready)
        if placed[end - 1]:
            late -= steps[end - 1].frees  # Before here its inputs are live anyway.
        else:
            place(end - 1)
    return order[::-1]
