# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Levels of a bound (Lemmas 3 and 4 of Bounds.md): work of one lane that must be over before a moment begins.

Which work that is follows from the dependences. Sets of work are bits of large integers, so this takes O(N^2 / 64)
words.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from .core import Bound, require


def check(
    bound: Bound, step: int, rows: Sequence[tuple[int, int, int, int]], time: list[int], leave: list[int]
) -> None:
    """Checks levels, as seen from the beginning (step 1) or from the end (step -1).

    Each row is a moment, a lane, `least` and `value`: the work of the lane that is over at the moment, and whose own
    `time` is at least `least`, takes it to `value`. `leave` is the earliest end of each moment.
    """
    moments, size, work = bound.moments, len(bound.moments), Work(bound, time)
    issues = {bound.first[start]: bound.first[start] + 2 for start in bound.problem.starts} if step < 0 else {}
    raised = {at: value for at, _, _, value in rows}
    issued, queue = list(work.own), list(range(size))
    for start in bound.problem.starts:  # A lane serves in the order of issue.
        turn = bound.first[start]
        issued[turn] = issued[turn + 2] = work.own[turn + 1]
        queue[turn + 1] -= step
    over, earlier = [0] * size, [0] * size  # By moment: work that is over, and work that was issued before.
    for at in range(size)[::step]:
        moment = moments[at]
        for other in (moment.before, moment.after)[step < 0]:
            over[at] |= over[other] | work.own[other]
            earlier[at] |= earlier[other] | issued[other]
        for lane in moment.lanes:
            over[at] |= earlier[queue[at]] & work.mask[lane] if lane else 0
    for at, lane, least, value in rows:
        counted = over[at]
        if issue := issues.get(at):
            # From the end, the time of an issue follows from that of its turn, which may rest on this level.
            alone = max([raised.get(issue, 0), *(leave[other] for other in moments[issue].after)])
            counted &= ~work.own[issue] if alone < least else -1
        total = work.sum_of(counted, lane, least)
        # Without any work, nothing says that the moment comes after `least`.
        require(total > 0, f"a level of {value} ns rests on no work of lane {lane}")
        require(least + total >= value, f"too little work on lane {lane} for a level of {value} ns")


class Work:
    """Gives each piece of work a bit: those of one lane side by side, the latest first."""

    def __init__(self, bound: Bound, time: list[int]) -> None:
        moments, first = bound.moments, 0
        self.own = [0] * len(moments)  # by moment: the bits of its work
        self.mask: list[int] = []  # by lane: its bits
        self.pieces: list[tuple[int, list[int], list[int]]] = []
        by_lane: list[list[int]] = [[] for _ in bound.problem.lanes]
        for at, moment in enumerate(moments):
            for lane in moment.lanes if moment.load else ():
                by_lane[lane].append(at)
        for work in by_lane:
            work.sort(key=lambda at: -time[at])
            digits = [0] * max((moments[at].load.bit_length() for at in work), default=0)
            for bit, at in enumerate(work):
                self.own[at] |= 1 << first + bit
                for digit in range(len(digits)):
                    digits[digit] |= (moments[at].load >> digit & 1) << bit
            self.mask.append((1 << len(work)) - 1 << first)
            self.pieces.append((first, [-time[at] for at in work], digits))
            first += len(work)

    def sum_of(self, work: int, lane: int, least: int) -> int:
        """How long the work of a lane takes that has a time of at least `least`, summed digit by digit."""
        first, keys, digits = self.pieces[lane]
        chosen = work >> first & (1 << bisect.bisect_right(keys, -least)) - 1
        return sum((chosen & digit).bit_count() << place for place, digit in enumerate(digits))
