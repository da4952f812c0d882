# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The makespan of an answer whose activities share the resources of a device (Models.md, "Contention")."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .core import NOTHING, WHOLE, Numbers, Problem, Step


def makespan(problem: Problem, steps: Sequence[Step], done: dict[int, int]) -> int:
    """Plays the steps; `done` is the step of each start. Returns ns."""
    return play(problem, steps, done).now


def play(problem: Problem, steps: Sequence[Step], done: dict[int, int]) -> Clock:
    """The same; returns the clock after the last step."""
    clock, work = Clock(problem), dict[int, Work]()
    for at, step in enumerate(steps):
        if step.is_start:
            work[at] = clock.put(step.lanes[0], step.cost, step.demand, at)
            clock.run(0, step.issue)
            continue
        for lane in step.lanes:
            clock.run(lane, 0)
        for start in step.awaits:
            clock.finish(work[done[start]])
        clock.run(0, max(step.ready - clock.now, 0))
        clock.run(0, step.cost, step.demand, at)
    for lane in range(len(problem.lanes)):
        clock.run(lane, 0)
    return clock


@dataclass
class Work:
    left: int  # millionths of a nanosecond
    demand: Numbers
    step: int = -1  # that it is of; -1: of none
    begin: int = -1  # ns, once it runs
    done: bool = False


class Clock:
    """Time, and the work that lies on each lane. The first one of each lane runs (Models.md, "Contention")."""

    def __init__(self, problem: Problem) -> None:
        self.now, self.lanes = 0, [deque[Work]() for _ in problem.lanes]
        self.spans = dict[int, tuple[int, int]]()  # by step: when it began and ended
        for lane, end in enumerate(problem.busy_until):
            self.put(lane, end, NOTHING)
        self.run(0, 0)

    def put(self, lane: int, cost: int, demand: Numbers, step: int = -1) -> Work:
        """Puts work behind what lies on a lane."""
        self.lanes[lane].append(work := Work(cost * WHOLE, demand, step))
        self.drop_finished()
        return work

    def run(self, lane: int, cost: int, demand: Numbers = NOTHING, step: int = -1) -> None:
        self.finish(self.put(lane, cost, demand, step))

    def finish(self, work: Work) -> None:
        """Lets time pass until the work is done."""
        while not work.done:
            running = [lane[0] for lane in self.lanes if lane]
            rates = rates_of(tuple(other.demand for other in running))
            passed = min(-(-other.left // rate) for other, rate in zip(running, rates))
            self.now += passed
            for other, rate in zip(running, rates):
                other.left -= rate * passed
            self.drop_finished()

    def drop_finished(self) -> None:
        for lane in self.lanes:
            while lane:
                work = lane[0]
                work.begin = self.now if work.begin < 0 else work.begin
                if work.left > 0:
                    break
                lane.popleft().done = True
                if work.step >= 0:
                    self.spans[work.step] = work.begin, self.now


@functools.lru_cache(maxsize=1 << 16)
def rates_of(demands: tuple[Numbers, ...]) -> Numbers:
    """The rates of activities that run together, in millionths: weighted max-min fairness of each resource."""
    rates = [WHOLE] * len(demands)
    for share in range(0, len(NOTHING), 2):
        users = [(demand[share], demand[share + 1], at) for at, demand in enumerate(demands) if demand[share]]
        left, weights = WHOLE, sum(weight for _, weight, _ in users)
        for need, weight, at in sorted(users, key=lambda user: Fraction(user[0], user[1])):
            if need * weights <= left * weight:
                left, weights = left - need, weights - weight
            else:
                rates[at] = max(1, min(rates[at], WHOLE * left * weight // (weights * need)))
    return rates
